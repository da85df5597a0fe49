"""What follows when tasks end: groups, dependents, slots, jobs, in this order, in the transaction that ended them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.claims import notify_ready
from aaiclick.store.growth import Loosened, fill_in
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

UNSUCCESSFUL = ("FAILED", "DEAD_LETTER", "CANCELLED")
SATISFIED = ("COMPLETED", "PASSED_OVER", "PASSED_AGAIN")
"""What dependents wait for: a task that completed, or one that is not critical and has failed for good."""


async def propagate(
    connection: Connection,
    ended: Sequence[asyncpg.Record],
    now: datetime | None,
    loosened: Loosened | None = None,
    events: Counter[int] | None = None,
) -> None:
    """Tell everybody what became of `ended`: rows with id, org_id, job_id, group_id, followed, concurrency_key, status;
    completed ones also say whether groups wait for them (`gates`). `events` were emitted for these jobs.

    The caller holds the graph locks of their jobs (see docs/engine.md).
    """
    loosened = loosened or Loosened()
    completed = [row for row in ended if row["status"] in SATISFIED]
    # The dependents of a task that was passed over before have gone on.
    new = [row for row in completed if row["status"] == "PASSED_OVER" or not row["passed_over"]]
    ready, keys, finished = await _advance(connection, new, loosened, now)
    ready |= {row["queue"] for row in ended if row["status"] == "PENDING"}
    cancelled: Counter[int] = Counter()
    failed = [row for row in ended if row["status"] in UNSUCCESSFUL and linked(row) and not row["passed_over"]]
    doomed = [(row["id"], row["job_id"]) for row in failed]
    for task_id, job_id in doomed + loosened.hopeless:
        cancelled[job_id] += await connection.fetchval(statement("doom"), task_id, now)
    keys.update((row["org_id"], row["concurrency_key"]) for row in ended)
    ready |= await admit(connection, keys)
    await notify_ready(connection, ready)
    await settle(
        connection,
        completed=finished + Counter(row["job_id"] for row in completed),
        failed=Counter(row["job_id"] for row in ended if row["status"] in ("FAILED", "DEAD_LETTER")),
        cancelled=cancelled + Counter(row["job_id"] for row in ended if row["status"] == "CANCELLED"),
        causes={row["job_id"]: row["cause"] for row in reversed(ended) if row["status"] in ("FAILED", "DEAD_LETTER")},
        events=events,
        now=now,
    )


def linked(row: asyncpg.Record) -> bool:
    """Whether its end concerns other tasks of its job."""
    return bool(row["job_id"] is not None and (row["followed"] or row["group_id"] is not None))


async def _advance(
    connection: Connection, completed: Sequence[asyncpg.Record], loosened: Loosened, now: datetime | None
) -> tuple[set[str], set[tuple[UUID, str | None]], Counter[int]]:
    """Completed tasks → groups → tasks, of which some complete by that, and so on. Returns the queues with ready work,
    the keys with new candidates, and how many tasks of each job have completed on the way.
    """
    ready: set[str] = set()
    keys: set[tuple[UUID, str | None]] = set()
    finished: Counter[int] = Counter()
    while True:
        done = [row["id"] for row in completed if row["followed"]]
        left = loosened.left + Counter[int](row["group_id"] for row in completed if row["group_id"] is not None)
        gates = [row["id"] for row in completed if row["gates"]]
        met, opened = await advance_groups(connection, gates, left, [], now, loosened.groups)
        if not (done or met or opened or loosened.tasks):
            return ready, keys, finished
        rows = await connection.fetch(statement("advance_tasks"), done + met, opened, now, loosened.tasks)
        ready |= {row["queue"] for row in rows if row["readiness"] == "READY"}
        keys |= {(row["org_id"], row["concurrency_key"]) for row in rows}
        completed, loosened = [row for row in rows if row["id"] is not None], Loosened()
        if not completed:
            return ready, keys, finished
        finished.update(row["job_id"] for row in completed)
        await fill_in(connection, [row["id"] for row in completed])


async def advance_groups(
    connection: Connection,
    done: Iterable[int],
    left: Counter[int],
    opened: list[int],
    now: datetime | None,
    loosened: Sequence[int] = (),
) -> tuple[list[int], list[int]]:
    """Follow the cascade through groups to its end; returns the groups that completed and those that opened."""
    met, all_completed, all_opened = list(done), list[int](), list[int]()
    while met or left or opened or loosened:
        rows = await connection.fetch(
            statement("advance_groups"), met, list(left.keys()), list(left.values()), opened, now, list(loosened)
        )
        loosened = ()
        opened = [row["id"] for row in rows if row["opened"]]
        ended = [row for row in rows if row["completed"]]
        met = [row["id"] for row in ended]
        left = Counter(row["parent_group_id"] for row in ended if row["parent_group_id"] is not None)
        all_completed += met
        all_opened += opened
    return all_completed, all_opened


async def settle(
    connection: Connection,
    *,
    completed: Counter[int] | None = None,
    failed: Counter[int] | None = None,
    cancelled: Counter[int] | None = None,
    causes: Mapping[int, str] | None = None,
    events: Counter[int] | None = None,
    now: datetime | None = None,
) -> dict[int, str]:
    """Count tasks that ended in their jobs, the last thing a transaction does; returns the jobs' statuses."""
    completed, failed, cancelled = completed or Counter(), failed or Counter(), cancelled or Counter()
    jobs = sorted(job for job in {*completed, *failed, *cancelled} if job is not None)  # pyright: ignore[reportUnnecessaryComparison]
    if not jobs:
        return {}
    rows = await connection.fetch(
        statement("settle_jobs"),
        jobs,
        [completed[job] for job in jobs],
        [failed[job] for job in jobs],
        [cancelled[job] for job in jobs],
        now,
        [(causes or {}).get(job) for job in jobs],
        [(events or Counter()).get(job, 0) for job in jobs],
    )
    return {row["id"]: row["status"] for row in rows}
