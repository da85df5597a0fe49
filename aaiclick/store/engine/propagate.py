"""Propagate ended tasks to groups, dependents, concurrency slots and jobs, in the transaction that ended them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.dynamic_tasks import PropagationDelta, resolve_returned_results
from aaiclick.store.engine.skipped_tasks import advance_handlers, skip_nodes
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

UNSUCCESSFUL = ("FAILED", "DEAD_LETTER", "CANCELLED")
SATISFIED = ("COMPLETED", "PASSED_OVER", "PASSED_AGAIN")
"""States that satisfy dependents: completed, or failed for good and not critical."""


@dataclass(slots=True)
class Progress:
    """Effects of ended tasks: queues with ready tasks, keys that may have free slots, and counts by job."""

    ready: set[str] = field(default_factory=set[str])
    keys: set[tuple[UUID, str | None]] = field(default_factory=set[tuple[UUID, str | None]])
    completed: Counter[int] = field(default_factory=Counter[int])
    cancelled: Counter[int] = field(default_factory=Counter[int])
    ended: set[int] = field(default_factory=set[int])
    """Ended tasks that may have handlers."""


async def propagate(
    connection: Connection,
    ended: Sequence[asyncpg.Record],
    now: datetime | None,
    delta: PropagationDelta | None = None,
    events: Counter[int] | None = None,
) -> None:
    """Propagate the new statuses of `ended` tasks: rows of the statements that finish, fail and release tasks.

    `events` counts the events emitted per job. The caller holds the graph locks of their jobs (see
    docs/internals/engine.md).
    """
    delta = delta or PropagationDelta()
    completed = [row for row in ended if row["status"] in SATISFIED]
    # Dependents of a task that was passed over before have already advanced.
    new = [row for row in completed if row["status"] == "PASSED_OVER" or not row["passed_over"]]
    progress = Progress(
        ready={row["queue"] for row in ended if row["status"] == "PENDING"},
        keys={(row["org_id"], row["concurrency_key"]) for row in ended},
        completed=Counter(row["job_id"] for row in completed),
        cancelled=Counter(row["job_id"] for row in ended if row["status"] == "CANCELLED"),
        ended={row["id"] for row in ended if _may_have_handlers(row)},
    )
    await _advance_graph(connection, new, delta, progress, now)
    failed = [row for row in ended if row["status"] in UNSUCCESSFUL and is_linked(row) and not row["passed_over"]]
    failed_ids = [(row["id"], row["job_id"]) for row in failed]
    for task_id, job_id in failed_ids + delta.failed_tasks:
        row = await connection.fetchrow(statement("cancel_downstream"), task_id, now)
        assert row is not None  # noqa: S101  (an aggregate)
        progress.cancelled[job_id] += row["cancelled"]
        progress.ended.update(row["with_dependents"])
    await propagate_to_handlers(connection, delta.handlers, progress, now)
    progress.ready |= await admit_held_tasks(connection, progress.keys)
    await notify_ready(connection, progress.ready)
    await update_jobs(
        connection,
        completed=progress.completed,
        failed=Counter(row["job_id"] for row in ended if row["status"] in ("FAILED", "DEAD_LETTER")),
        cancelled=progress.cancelled,
        causes={row["job_id"]: row["cause"] for row in reversed(ended) if row["status"] in ("FAILED", "DEAD_LETTER")},
        events=events,
        now=now,
    )


def is_linked(row: asyncpg.Record) -> bool:
    """Whether the end of the task concerns other tasks of its job."""
    return bool(row["job_id"] is not None and (row["has_dependents"] or row["group_id"] is not None))


def _may_have_handlers(row: asyncpg.Record) -> bool:
    if row["status"] in SATISFIED:
        return row["gates"]
    return row["status"] in UNSUCCESSFUL and row["has_dependents"]


async def propagate_to_handlers(
    connection: Connection, released: Sequence[int], progress: Progress, now: datetime | None
) -> None:
    """Start handlers of `progress.ended`, and skip those without a failure, until nothing changes.

    `released` are handlers that have one predecessor less.
    """
    while progress.ended or released:
        ended, progress.ended = progress.ended, set()
        started = await advance_handlers(connection, ended, released, now)
        released = ()
        progress.ready |= started.ready
        progress.keys |= started.keys
        if started.skipped:
            await _advance_graph(connection, [], PropagationDelta(skipped_tasks=started.skipped), progress, now)


async def _advance_graph(
    connection: Connection,
    completed: Sequence[asyncpg.Record],
    delta: PropagationDelta,
    progress: Progress,
    now: datetime | None,
) -> None:
    """Advance groups and tasks after completions and skips until nothing changes.

    Tasks that returned tasks may complete here.
    """
    if delta.skipped_tasks or delta.skipped_groups:
        skipped = await skip_nodes(connection, delta, now)
        progress.completed.update(row["job_id"] for row in skipped)
        progress.ended.update(row["id"] for row in skipped if row["has_dependents"])
    while True:
        done = [row["id"] for row in completed if row["has_dependents"]]
        ended_members = delta.removed_members + Counter[int](
            row["group_id"] for row in completed if row["group_id"] is not None
        )
        gates = [row["id"] for row in completed if row["gates"]]
        met, opened = await advance_groups(connection, gates, ended_members, [], now, delta.groups)
        if not (done or met or opened or delta.tasks):
            return
        rows = await connection.fetch(statement("advance_tasks"), done + met, opened, now, delta.tasks)
        progress.ready |= {row["queue"] for row in rows if row["readiness"] == "READY"}
        progress.keys |= {(row["org_id"], row["concurrency_key"]) for row in rows}
        completed, delta = [row for row in rows if row["id"] is not None], PropagationDelta()
        if not completed:
            return
        progress.completed.update(row["job_id"] for row in completed)
        progress.ended.update(row["id"] for row in completed if row["gates"])
        await resolve_returned_results(connection, [row["id"] for row in completed])


async def advance_groups(
    connection: Connection,
    done: Iterable[int],
    ended_members: Counter[int],
    opened: list[int],
    now: datetime | None,
    unblocked: Sequence[int] = (),
) -> tuple[list[int], list[int]]:
    """Advance groups until nothing changes; returns the groups that completed and those that opened."""
    met, all_completed, all_opened = list(done), list[int](), list[int]()
    while met or ended_members or opened or unblocked:
        rows = await connection.fetch(
            statement("advance_groups"),
            met,
            list(ended_members.keys()),
            list(ended_members.values()),
            opened,
            now,
            list(unblocked),
        )
        unblocked = ()
        opened = [row["id"] for row in rows if row["opened"]]
        ended = [row for row in rows if row["completed"]]
        met = [row["id"] for row in ended]
        ended_members = Counter(row["parent_group_id"] for row in ended if row["parent_group_id"] is not None)
        all_completed += met
        all_opened += opened
    return all_completed, all_opened


async def update_jobs(
    connection: Connection,
    *,
    completed: Counter[int] | None = None,
    failed: Counter[int] | None = None,
    cancelled: Counter[int] | None = None,
    causes: Mapping[int, str] | None = None,
    events: Counter[int] | None = None,
    now: datetime | None = None,
) -> dict[int, str]:
    """Add ended tasks to the counters of their jobs, last in the transaction; returns the jobs' statuses."""
    completed, failed, cancelled = completed or Counter(), failed or Counter(), cancelled or Counter()
    jobs = sorted(job for job in {*completed, *failed, *cancelled} if job is not None)  # pyright: ignore[reportUnnecessaryComparison]
    if not jobs:
        return {}
    rows = await connection.fetch(
        statement("update_job_counters"),
        jobs,
        [completed[job] for job in jobs],
        [failed[job] for job in jobs],
        [cancelled[job] for job in jobs],
        now,
        [(causes or {}).get(job) for job in jobs],
        [(events or Counter()).get(job, 0) for job in jobs],
    )
    return {row["id"]: row["status"] for row in rows}
