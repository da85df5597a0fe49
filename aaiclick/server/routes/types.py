"""Types of tasks: the settings that all tasks of one share."""

from __future__ import annotations

import json
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel

from aaiclick.server import shapes
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changing, note, reading
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import control
from aaiclick.store.types import list_types

routes = Routes("types")

TypeName = Annotated[shapes.Name, Path(description="The type of tasks")]


class TaskType(BaseModel):
    name: str
    retry_policy: shapes.RetryPolicy | None
    paused_at: datetime | None


class Retry(shapes.Sent):
    """How long tasks of a type wait before they are tried again; nothing: as long as all others."""

    retry_policy: shapes.RetryPolicy | None = None


@routes.get("/v1/types", Permission.READER)
async def index(call: Caller) -> list[TaskType]:
    """List the types that have settings of their own."""
    async with reading(call) as connection:
        rows = await list_types(connection, call.principal.org_id)
    return [
        TaskType(
            name=row["name"],
            retry_policy=row["retry_policy"] and shapes.RetryPolicy(**json.loads(row["retry_policy"])),
            paused_at=row["paused_at"],
        )
        for row in rows
    ]


@routes.put("/v1/types/{name:path}", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def retry(call: Caller, name: TypeName, body: Retry) -> None:
    """Set how long tasks of a type wait before they are tried again."""
    policy = body.retry_policy and body.retry_policy.model_dump_json()
    async with changing(call) as connection:
        await control.set_retry_policy(connection, name, policy, call.principal.org_id)
        await note(call, connection, "type.retry", name, body.model_dump(exclude_none=True))


@routes.post("/v1/types/{name:path}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause(call: Caller, name: TypeName) -> None:
    """Let nothing more of a type begin."""
    async with changing(call) as connection:
        await control.pause_type(connection, name, call.principal.org_id)
        await note(call, connection, "type.pause", name)


@routes.post("/v1/types/{name:path}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume(call: Caller, name: TypeName) -> None:
    """Let a paused type go on."""
    async with changing(call) as connection:
        await control.resume_type(connection, name, call.principal.org_id)
        await note(call, connection, "type.resume", name)
