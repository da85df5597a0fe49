"""Enqueue tasks without a job, in the caller's transaction if there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.store.clock import read_clock
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.submission_plan import Counters, NewTask
from aaiclick.store.engine.submit import make_records
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement
from aaiclick.store.tables.table_references import hold_arguments

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_DEBOUNCE_INTERVALS = 10
"""Maximum delay of an item with a payload that is replaced repeatedly."""

COPY_MIN_TASKS = 50
"""Fewer tasks are inserted by a statement: COPY needs one more round trip."""

_NO_COUNTERS = Counters.empty()


async def enqueue_tasks(connection: Connection, tasks: Sequence[NewTask], org_id: UUID = DEFAULT_ORG_ID) -> list[int]:
    """Insert `tasks`; returns one id for each: that of the existing task, if its idempotency key is taken."""
    if any(task.options.concurrency_key is not None for task in tasks):
        async with failpoints.transaction(connection, "enqueue_limited"):
            ids = await _insert_tasks(connection, tasks, org_id)
            keys = ((org_id, task.options.concurrency_key) for task in tasks)
            await notify_ready(connection, await admit_held_tasks(connection, keys))
        return ids
    if len(tasks) < COPY_MIN_TASKS or any(task.idempotency_key is not None for task in tasks):
        async with failpoints.statement("enqueue"):
            return await _insert_tasks(connection, tasks, org_id)
    async with failpoints.transaction(connection, "enqueue_many"):
        columns, records = make_records(tasks, org_id, None, _NO_COUNTERS)
        await connection.copy_records_to_table("tasks", records=records, columns=columns)
        await notify_ready(connection, {task.options.queue for task in tasks if task.options.run_at is None})
    return [task.id for task in tasks]


@dataclass(frozen=True, slots=True)
class Debounce:
    """Delay of an item, during which a later item with the same key replaces its payload, or is merged into it."""

    seconds: float
    key: str = ""
    is_merged: bool = False


async def enqueue_debounced(
    connection: Connection, task: NewTask, debounce: Debounce, org_id: UUID = DEFAULT_ORG_ID
) -> int:
    """Enqueue an item, or update the one that waits under the same key; returns the id of the item that will run.

    The row lock of the waiting item decides between this update and a claim: either the claim reads this payload, or
    a new item is inserted.
    """
    key = f"debounce:{debounce.key}"
    async with failpoints.transaction(connection, "enqueue_debounced"):
        run_at = await read_clock(connection) + timedelta(seconds=debounce.seconds)
        options = replace(task.options, run_at=run_at)
        while True:
            item_id = await connection.fetchval(
                statement("debounce_task"), task.id, org_id, task.type, task.entrypoint, task.kwargs, key,
                debounce.is_merged, MAX_DEBOUNCE_INTERVALS * debounce.seconds, *options.values(),
            )  # fmt: skip
            if item_id is not None:
                return int(item_id)
            await connection.execute(statement("release_debounce_key"), org_id, task.type, key)


async def enqueue_with_tables(
    connection: Connection,
    tasks: Sequence[NewTask],
    tables: Sequence[tuple[int, str]],
    tables_of_sessions: Mapping[str, int],
    org_id: UUID = DEFAULT_ORG_ID,
) -> list[int]:
    """Insert `tasks` with (task, table) references to the Objects and Views in their arguments, held until they end."""
    async with failpoints.transaction(connection, "enqueue_with_tables"):
        ids = await enqueue_tasks(connection, tasks, org_id)
        new = {task.id for task in tasks} & set(ids)
        references = [(task, name) for task, name in tables if task in new]
        names = {task.id: f"The item of type {task.type!r}" for task in tasks}
        referenced = {name for _, name in references}
        session_tables = {name: tables_of_sessions[name] for name in tables_of_sessions if name in referenced}
        await hold_arguments(connection, None, references, session_tables, names, org_id)
    return ids


async def _insert_tasks(connection: Connection, tasks: Sequence[NewTask], org_id: UUID) -> list[int]:
    # In the order of keys: two concurrent inserts of the same keys cannot deadlock.
    rows = await connection.fetch(statement("enqueue_tasks"), org_id, *_columns(sorted(tasks, key=_lock_order)))
    inserted = {row["id"] for row in rows}
    if len(inserted) == len(tasks):
        return [task.id for task in tasks]
    duplicates = [task for task in tasks if task.id not in inserted]
    rows_by_key = await connection.fetch(
        statement("find_tasks_by_keys"),
        org_id,
        [task.type for task in duplicates],
        [task.idempotency_key for task in duplicates],
    )
    first_ids: dict[int, int] = {duplicates[int(row["nth"]) - 1].id: row["id"] for row in rows_by_key}
    return [task.id if task.id in inserted else first_ids[task.id] for task in tasks]


def _lock_order(task: NewTask) -> tuple[str, str]:
    return task.type, task.idempotency_key or ""


def _columns(tasks: Sequence[NewTask]) -> Iterator[tuple[object, ...]]:
    rows = (
        (task.id, task.type, task.entrypoint, task.kwargs, task.idempotency_key, *task.options.values())
        for task in tasks
    )
    return zip(*rows, strict=True)
