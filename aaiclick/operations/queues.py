"""Operations on queues and task types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.workers import LimitsRequest, Queue, QueueScale, RetryPolicyRequest, TaskType
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.row_conversion import from_row, to_queue, to_task_type
from aaiclick.store.engine import pause, queries, task_types
from aaiclick.store.tenancy.orgs import ClaimLimits

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_WAITING = 10_000
"""Bound of the waiting tasks that are counted for an autoscaler."""


@operation(Permission.READER, changes=False)
async def list_queues(connection: Connection, actor: Actor) -> list[Queue]:
    """List queues with the number of tasks in each state."""
    return [to_queue(row) for row in await queries.load_queue_depths(connection, actor.visible_org_id)]


@operation(Permission.READER, changes=False)
async def get_queue_scale(connection: Connection, actor: Actor, name: str) -> QueueScale:
    """Return the load of a queue; 0 if there is none of this name."""
    row = await queries.load_queue_scale(connection, actor.org_id, name, MAX_WAITING)
    return from_row(QueueScale, row, tasks=row["waiting"] + row["running"])


@operation(Permission.WRITER)
async def set_queue_limits(connection: Connection, actor: Actor, name: str, limits: LimitsRequest) -> None:
    """Set the weight and limits of a queue; an omitted limit is removed."""
    await pause.set_queue(connection, name, ClaimLimits(**limits.model_dump()), actor.org_id)
    await write_audit(connection, actor, "queue.limit", name, limits.model_dump(exclude_none=True))


@operation(Permission.WRITER)
async def pause_queue(connection: Connection, actor: Actor, name: str) -> None:
    """Pause a queue: running tasks continue, no task starts."""
    await pause.pause_queue(connection, name, actor.org_id)
    await write_audit(connection, actor, "queue.pause", name)


@operation(Permission.WRITER)
async def resume_queue(connection: Connection, actor: Actor, name: str) -> None:
    """Resume a paused queue."""
    await pause.resume_queue(connection, name, actor.org_id)
    await write_audit(connection, actor, "queue.resume", name)


@operation(Permission.READER, changes=False)
async def list_types(connection: Connection, actor: Actor) -> list[TaskType]:
    """List task types that have settings."""
    return [to_task_type(row) for row in await task_types.list_types(connection, actor.visible_org_id)]


@operation(Permission.WRITER)
async def set_type_retry_policy(connection: Connection, actor: Actor, name: str, policy: RetryPolicyRequest) -> None:
    """Set the retry policy of a task type; None restores the default."""
    text = policy.retry_policy and policy.retry_policy.model_dump_json()
    await task_types.set_retry_policy(connection, name, text, actor.org_id)
    await write_audit(connection, actor, "type.retry", name, policy.model_dump(exclude_none=True))


@operation(Permission.WRITER)
async def pause_type(connection: Connection, actor: Actor, name: str) -> None:
    """Pause a task type: running tasks continue, no task starts."""
    await pause.pause_type(connection, name, actor.org_id)
    await write_audit(connection, actor, "type.pause", name)


@operation(Permission.WRITER)
async def resume_type(connection: Connection, actor: Actor, name: str) -> None:
    """Resume a paused task type."""
    await pause.resume_type(connection, name, actor.org_id)
    await write_audit(connection, actor, "type.resume", name)
