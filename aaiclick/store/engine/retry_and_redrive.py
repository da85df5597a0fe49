"""Retry failed tasks of a job, redrive dead letters, clear a task with everything downstream.

Failures change no dependency counters (see `plan`), so restarted tasks find them correct. Tasks that were cancelled
because of a restarted task restart too; if another failed predecessor remains, they are cancelled again because of it.
Handlers of restarted tasks, and everything downstream of those, are reset: they run or are skipped again.
An ended job with a limit waits for its turn again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.store.clock import read_clock
from aaiclick.store.deadlock_retry import retry_on_deadlock
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.dynamic_tasks import PropagationDelta
from aaiclick.store.engine.job_concurrency import await_turn_of_restart, lock_limited_job
from aaiclick.store.engine.skipped_tasks import skip_nodes, skip_unreachable, start_handlers
from aaiclick.store.engine.task_input_check import check_inputs
from aaiclick.store.statements import statement
from aaiclick.store.tables.table_references import release_results

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

COMPENSATOR = "aaiclick.orchestration.compensation.run_compensations"
"""Entrypoint of the handler that undoes the steps of a failed job."""

BATCH_SIZE = 10_000
"""Dead letters per pass."""


async def retry_failed_tasks(
    connection: Connection, job_id: int, *, cancelled: bool = False, now: datetime | None = None
) -> set[int]:
    """Restart the failed tasks of a job, with `cancelled` also the cancelled ones; returns all restarted tasks."""

    async def retry_in_transaction() -> set[int]:
        async with failpoints.transaction(connection, "retry"):
            await lock_limited_job(connection, job_id)
            rows = await connection.fetch(statement("list_failed_roots"), job_id)
            if not rows and await connection.fetchrow(statement("get_job_head"), job_id) is None:
                raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
            roots = [row["id"] for row in rows if cancelled or row["status"] != "CANCELLED"]
            steps = await _list_undone_steps(connection, job_id, roots)
            await await_turn_of_restart(connection, job_id, [*steps, *roots])
            if steps:
                return set(await _reset_downstream(connection, job_id, [*steps, *roots], now))
            return await _restart_tasks(connection, job_id, roots, now)

    return await retry_on_deadlock(retry_in_transaction)


async def _list_undone_steps(connection: Connection, job_id: int | None, roots: Sequence[int]) -> list[int]:
    """Undone steps of a job, which restart with the roots; empty if those are handlers or compensations."""
    if job_id is None or not roots:
        return []
    rows = await connection.fetch(statement("list_undone_steps"), job_id, COMPENSATOR, list(roots))
    return [row["id"] for row in rows]


async def redrive_dead_letters(
    connection: Connection,
    *,
    task_ids: Sequence[int] | None = None,
    org_id: UUID | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    limit: int | None = BATCH_SIZE,
    per_second: float | None = None,
    first_position: int = 0,
    now: datetime | None = None,
) -> set[int]:
    """Restart dead letters: `task_ids`, or all that match, oldest first.

    `per_second` spreads them over time, beginning at `first_position` of that schedule. Without a limit it works in
    batches until none is left that was dead at the beginning.
    """
    ids = None if task_ids is None else list(task_ids)
    dead_before = await read_clock(connection, now) if limit is None else None
    spacing = 1.0 / per_second if per_second else 0.0
    position = first_position
    restarted: set[int] = set()
    previous_batch: set[int] = set()
    while rows := await connection.fetch(
        statement("find_dead_letters"),
        org_id,
        type,
        fingerprint,
        ids,
        BATCH_SIZE if limit is None else limit,
        dead_before,
    ):
        batch = {row["id"] for row in rows}
        if batch == previous_batch:  # tasks that cannot restart would be found for ever
            break
        previous_batch = batch
        for job_id, roots in _group_by_job(rows).items():
            restarted |= await _redrive_job(connection, job_id, roots, now, spacing, position)
            position += len(roots)
        if limit is not None:
            break
    return restarted


def _group_by_job(rows: Sequence[asyncpg.Record]) -> dict[int | None, list[int]]:
    by_job: dict[int | None, list[int]] = defaultdict(list)
    for row in rows:
        by_job[row["job_id"]].append(row["id"])
    return by_job


async def _redrive_job(
    connection: Connection,
    job_id: int | None,
    roots: Sequence[int],
    now: datetime | None,
    spacing: float,
    first_position: int,
) -> set[int]:
    async def redrive_in_transaction() -> set[int]:
        async with failpoints.transaction(connection, "redrive"):
            if job_id is not None:
                await lock_limited_job(connection, job_id)
            locked = {row["id"] for row in await connection.fetch(statement("lock_dead_letters"), roots)}
            dead = [root for root in roots if root in locked]
            if job_id is not None and dead:
                steps = await _list_undone_steps(connection, job_id, dead)
                await await_turn_of_restart(connection, job_id, [*steps, *dead])
                if steps:
                    return set(await _reset_downstream(connection, job_id, [*steps, *dead], now))
            return await _restart_tasks(connection, job_id, dead, now, spacing, first_position)

    return await retry_on_deadlock(redrive_in_transaction)


async def discard_dead_letters(
    connection: Connection,
    *,
    task_ids: Sequence[int] | None = None,
    org_id: UUID | None = None,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    limit: int | None = BATCH_SIZE,
) -> set[int]:
    """Mark dead letters as FAILED: `task_ids`, or all that match. Their jobs do not change.

    Without a limit it works in batches until none is left.
    """
    ids = None if task_ids is None else list(task_ids)
    at_once = BATCH_SIZE if limit is None else limit
    discarded: set[int] = set()
    while rows := await connection.fetch(statement("discard_dead_letters"), org_id, type, fingerprint, ids, at_once):
        discarded |= {row["id"] for row in rows}
        if limit is not None:
            break
    return discarded


async def _restart_tasks(
    connection: Connection,
    job_id: int | None,
    roots: Sequence[int],
    now: datetime | None,
    spacing: float = 0.0,
    first_position: int = 0,
) -> set[int]:
    if not roots:
        return set()
    rows = await connection.fetch(statement("restart_tasks"), list(roots), job_id, spacing, now, first_position)
    if job_id is not None:
        await connection.execute(statement("clear_group_failures"), job_id, [*roots, job_id])
        handlers = await connection.fetch(statement("list_handlers_of_tasks"), [row["id"] for row in rows])
        if handlers or await connection.fetch(statement("list_unreachable_after_skips"), job_id):
            await _reset_downstream(connection, job_id, [row["id"] for row in handlers], now)
            return {row["id"] for row in rows}
        await _cancel_after_failures(connection, job_id, now)
    await _make_ready(connection, rows)
    if job_id is not None:
        await connection.execute(statement("recount_job"), job_id, now)
    return {row["id"] for row in rows}


async def _reset_downstream(
    connection: Connection, job_id: int, task_ids: Sequence[int], now: datetime | None
) -> list[int]:
    """Reset tasks of a job and everything downstream, and recount the job; returns the reset tasks."""
    tasks, groups = await _list_downstream(connection, task_ids)
    await connection.execute(statement("reset_tasks"), tasks, now)
    await connection.execute(statement("release_child_keys"), tasks, True)
    await connection.execute(statement("clear_group_skips"), groups, job_id)
    await release_results(connection, tasks)
    await recount_job(connection, job_id, tasks, now)
    return tasks


async def _list_downstream(connection: Connection, task_ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """The tasks and groups downstream of tasks, with the tasks themselves."""
    nodes = [row for task_id in task_ids for row in await connection.fetch(statement("list_downstream"), task_id)]
    tasks = {row["id"] for row in nodes if row["is_task"]}
    return sorted(tasks), sorted({row["id"] for row in nodes} - tasks)


async def list_cleared_tasks(connection: Connection, task_id: int) -> list[int]:
    """The tasks that a clear of a task resets."""
    jobs = await connection.fetch(statement("list_jobs_of_tasks"), [task_id])
    steps = await _list_undone_steps(connection, jobs[0]["job_id"] if jobs else None, [task_id])
    tasks, _ = await _list_downstream(connection, [task_id, *steps])
    return tasks


async def clear_tasks(
    connection: Connection, task_id: int, other_ids: Sequence[int] = (), *, now: datetime | None = None
) -> set[int]:
    """Reset a task, `other_ids` and undone steps of its job, and everything downstream; returns the ids.

    Running attempts lose their leases. Raises ConflictError if an input was released.
    """
    cleared = [task_id, *other_ids]

    async def clear_in_transaction() -> set[int]:
        async with failpoints.transaction(connection, "clear"):
            jobs = await connection.fetch(statement("list_jobs_of_tasks"), cleared)
            if len(jobs) > 1:
                raise SubmitError(
                    "The tasks belong to different jobs.", remedy="Clear the tasks of each job separately."
                )
            job_id = jobs[0]["job_id"] if jobs else None
            if job_id is not None:
                await lock_limited_job(connection, job_id)
            roots = [*cleared, *await _list_undone_steps(connection, job_id, cleared)]
            tasks, _ = await _list_downstream(connection, roots)
            if job_id is not None:
                await check_inputs(connection, job_id, roots, tasks)
                await await_turn_of_restart(connection, job_id, roots)
                return set(await _reset_downstream(connection, job_id, roots, now))
            if await connection.execute(statement("reset_tasks"), tasks, now) == "UPDATE 0":
                raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls' lists them.")
            await connection.execute(statement("release_child_keys"), tasks, True)
            await release_results(connection, tasks)
            await _make_ready(connection, await connection.fetch(statement("unblock_task"), task_id))
            return set(tasks)

    return await retry_on_deadlock(clear_in_transaction)


async def recount_job(connection: Connection, job_id: int, tasks: Sequence[int], now: datetime | None) -> None:
    """Recompute all counters of a job, of which `tasks` have just been reset.

    Repeated until nothing changes: tasks that are cancelled or skipped here change counters of groups and handlers.
    """
    await connection.execute(statement("clear_group_failures"), job_id, list(tasks))
    ready: set[str] = set()
    keys: set[tuple[UUID, str | None]] = set()
    while True:
        while await connection.fetch(statement("recount_groups"), job_id, now):
            pass
        rows = await connection.fetch(statement("recount_tasks"), job_id, now)
        changed = await _cancel_after_failures(connection, job_id, now)
        changed += await skip_unreachable(connection, job_id, now)
        if changed:
            continue
        waiting = await connection.fetch(statement("list_waiting_handlers"), job_id)
        started = await start_handlers(connection, [row["id"] for row in waiting], now)
        ready |= started.ready
        keys |= started.keys
        if not await skip_nodes(connection, PropagationDelta(skipped_tasks=started.skipped), now):
            break
    await _make_ready(connection, rows, ready, keys)
    await connection.execute(statement("recount_job"), job_id, now)


async def _cancel_after_failures(connection: Connection, job_id: int, now: datetime | None) -> int:
    count = 0
    for row in await connection.fetch(statement("list_failed_roots"), job_id):
        count += await connection.fetchval(statement("cancel_downstream"), row["id"], now)
    return count


async def _make_ready(
    connection: Connection,
    rows: Sequence[asyncpg.Record],
    ready: Collection[str] = (),
    keys: Collection[tuple[UUID, str | None]] = (),
) -> None:
    """Admit held tasks and notify workers: of `rows`, and of the queues `ready` and concurrency `keys`."""
    held = {(row["org_id"], row["concurrency_key"]) for row in rows if row["readiness"] == "HELD"}
    queues = {row["queue"] for row in rows if row["readiness"] == "READY"}
    queues |= await admit_held_tasks(connection, held.union(keys))
    await notify_ready(connection, queues.union(ready))
