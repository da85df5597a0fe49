"""Plain queue items: tasks without a job, in the caller's own transaction if there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import faults
from aaiclick.store.claims import notify_ready
from aaiclick.store.plan import Counters, NewTask
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement
from aaiclick.store.submit import TASK_COLUMNS, record
from aaiclick.store.tables import hold_arguments
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

COPIED_FROM = 50
"""Fewer are inserted by a statement: COPY needs one more round trip."""

_NONE = Counters.none()


async def enqueue_tasks(connection: Connection, tasks: Sequence[NewTask], org_id: UUID = DEFAULT_ORG_ID) -> list[int]:
    """Insert `tasks`; returns one id for each: the id of the first with its idempotency key, if it is not the first."""
    if any(task.concurrency_key is not None for task in tasks):
        async with faults.transaction(connection, "enqueue_limited"):
            ids = await _insert(connection, tasks, org_id)
            await notify_ready(connection, await admit(connection, ((org_id, task.concurrency_key) for task in tasks)))
        return ids
    if len(tasks) < COPIED_FROM or any(task.idempotency_key is not None for task in tasks):
        async with faults.statement("enqueue"):
            return await _insert(connection, tasks, org_id)
    async with faults.transaction(connection, "enqueue_many"):
        records = [record(task, org_id, None, _NONE, set()) for task in tasks]
        await connection.copy_records_to_table("tasks", records=records, columns=TASK_COLUMNS)
        await notify_ready(connection, {task.queue for task in tasks if task.available_at is None})
    return [task.id for task in tasks]


async def enqueue_with_tables(
    connection: Connection,
    tasks: Sequence[NewTask],
    tables: Sequence[tuple[int, str]],
    adopted: Mapping[str, int],
    org_id: UUID = DEFAULT_ORG_ID,
) -> list[int]:
    """The same for tasks among whose arguments are Objects or Views: (task, table) pairs, held until they are over."""
    async with faults.transaction(connection, "enqueue_with_tables"):
        ids = await enqueue_tasks(connection, tasks, org_id)
        new = {task.id for task in tasks} & set(ids)
        held = [(task, name) for task, name in tables if task in new]
        names = {task.id: f"The item of type {task.type!r}" for task in tasks}
        used = {name for _, name in held}
        lent = {name: adopted[name] for name in adopted if name in used}
        await hold_arguments(connection, None, held, lent, names, org_id)
    return ids


async def _insert(connection: Connection, tasks: Sequence[NewTask], org_id: UUID) -> list[int]:
    # In the order of keys: of two that insert the same ones at once, one waits for the other, never both.
    rows = await connection.fetch(statement("enqueue"), org_id, *_columns(sorted(tasks, key=_order)))
    inserted = {row["id"] for row in rows}
    if len(inserted) == len(tasks):
        return [task.id for task in tasks]
    late = [task for task in tasks if task.id not in inserted]
    found = await connection.fetch(
        statement("tasks_by_key"), org_id, [task.type for task in late], [task.idempotency_key for task in late]
    )
    first: dict[int, int] = {late[int(row["nth"]) - 1].id: row["id"] for row in found}
    return [task.id if task.id in inserted else first[task.id] for task in tasks]


def _order(task: NewTask) -> tuple[str, str]:
    return task.type, task.idempotency_key or ""


def _columns(tasks: Sequence[NewTask]) -> list[list[Any]]:
    names = (
        "id", "type", "entrypoint", "kwargs", "queue", "priority", "max_attempts", "timeout_seconds", "retry_policy",
        "available_at", "idempotency_key", "concurrency_key", "concurrency_limit", "critical",
    )  # fmt: skip
    return [[getattr(task, name) for task in tasks] for name in names]
