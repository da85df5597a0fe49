"""Routes of task types and their settings."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.field_types import Name
from aaiclick.api.workers import RetryPolicyRequest, TaskType
from aaiclick.operations import queues as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.routing import Context, Routes

routes = Routes("types")

TypeName = Annotated[Name, Path(description="The type of tasks")]


@routes.get("/v1/types", Permission.READER)
async def list_task_types(context: Context) -> list[TaskType]:
    """List task types that have settings."""
    return await context.perform(operations.list_types)


@routes.put("/v1/types/{name:path}", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def set_type_retry_policy(context: Context, name: TypeName, body: RetryPolicyRequest) -> None:
    """Set the retry policy of a task type."""
    await context.perform(operations.set_type_retry_policy, name, body)


@routes.post("/v1/types/{name:path}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause_task_type(context: Context, name: TypeName) -> None:
    """Pause a task type: none of its tasks starts."""
    await context.perform(operations.pause_type, name)


@routes.post("/v1/types/{name:path}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume_task_type(context: Context, name: TypeName) -> None:
    """Resume a paused task type."""
    await context.perform(operations.resume_type, name)
