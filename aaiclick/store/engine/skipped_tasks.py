"""Skip tasks that a branch left out, and start handlers: tasks that run after the end of their predecessors.

Counters count what has not succeeded, so a skip changes few of them: joins with the rule `any` and groups count skipped
nodes as done, all other dependents are skipped too. The `unmet` of a handler counts predecessors that have not ended.
The caller holds the exclusive graph lock of the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.engine.dynamic_tasks import PropagationDelta
from aaiclick.store.engine.leases_and_outcomes import Failure, Success
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

UNKNOWN_BRANCH_FINGERPRINT = "unknown branch"


@dataclass(slots=True)
class StartedHandlers:
    """Queues with ready handlers, concurrency keys of held ones, and ids of those that are to be skipped."""

    ready: set[str] = field(default_factory=set[str])
    keys: set[tuple[UUID, str | None]] = field(default_factory=set[tuple[UUID, str | None]])
    skipped: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Dependents that a branch did not choose."""

    tasks: Sequence[int]
    groups: Sequence[int]


async def choose_branches(connection: Connection, success: Success) -> LeftOut | Failure:
    """The dependents that a branch leaves out; a failure if it chose a task that does not depend on it."""
    chosen = set(success.branch or ())
    rows = await connection.fetch(statement("list_branches"), success.lease.task_id)
    names = {row["id"]: {row["name"], row["name"].rsplit(".", 1)[-1]} for row in rows}
    unknown = sorted(chosen - set[str]().union(*names.values()))
    if unknown:
        dependents = ", ".join(sorted({row["name"] for row in rows})) or "none"
        error = f"The task chose {', '.join(unknown)}, which does not depend on it. Its dependents: {dependents}."
        return Failure(success.lease, error, UNKNOWN_BRANCH_FINGERPRINT, permanent=True, began=success.began)
    left_out = [row for row in rows if not names[row["id"]] & chosen]
    return LeftOut(
        [row["id"] for row in left_out if row["is_task"]], [row["id"] for row in left_out if not row["is_task"]]
    )


async def skip_nodes(connection: Connection, delta: PropagationDelta, now: datetime | None) -> list[asyncpg.Record]:
    """Skip the nodes of `delta` and their dependents; returns the skipped tasks."""
    skipped: list[asyncpg.Record] = []
    tasks, groups = delta.skipped_tasks, delta.skipped_groups
    delta.skipped_tasks, delta.skipped_groups = [], []
    while tasks or groups:
        rows = await connection.fetch(statement("skip_tasks"), sorted(tasks), sorted(groups), now)
        skipped += [row for row in rows if row["is_task"]]
        delta.removed_members += Counter[int](row["group_id"] for row in rows if row["group_id"] is not None)
        linked = [row["id"] for row in rows if row["has_dependents"]]
        effects = await connection.fetch(statement("list_skip_effects"), linked) if linked else []
        for row in effects:
            delta.tasks += [row["id"]] * row["met"]
        tasks = [row["id"] for row in effects if row["skipped"] and row["is_task"]]
        groups = [row["id"] for row in effects if row["skipped"] and not row["is_task"]]
    return skipped


async def skip_unreachable(connection: Connection, job_id: int, now: datetime | None) -> int:
    """Skip waiting nodes of a job that depend on skipped ones; returns their number. The caller recounts the job."""
    rows = await connection.fetch(statement("list_unreachable_after_skips"), job_id)
    tasks = [row["id"] for row in rows if row["is_task"]]
    groups = [row["id"] for row in rows if not row["is_task"]]
    await skip_nodes(connection, PropagationDelta(skipped_tasks=tasks, skipped_groups=groups), now)
    return len(rows)


async def advance_handlers(
    connection: Connection, ended: Collection[int], released: Sequence[int], now: datetime | None
) -> StartedHandlers:
    """Count ended tasks down in their handlers, and start those that wait for nothing more.

    `released` are handlers of discarded tasks.
    """
    if not ended and not released:
        return StartedHandlers()
    rows = await connection.fetch(statement("advance_handlers"), sorted(ended), list(released), now)
    return await start_handlers(connection, [row["id"] for row in rows], now)


async def start_handlers(connection: Connection, handlers: Sequence[int], now: datetime | None) -> StartedHandlers:
    """Make handlers ready, or return them as skipped."""
    started = StartedHandlers()
    for row in await connection.fetch(statement("start_handlers"), list(handlers), now) if handlers else []:
        if row["skipped"]:
            started.skipped.append(row["id"])
        elif row["readiness"] == "READY":
            started.ready.add(row["queue"])
        elif row["readiness"] == "HELD":
            started.keys.add((row["org_id"], row["concurrency_key"]))
    return started
