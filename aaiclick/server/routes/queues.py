"""Queues: what waits in them, their limits, pause and resume."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import Path

from aaiclick.server import shapes
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changing, note, reading
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.store import control, reads
from aaiclick.store.orgs import Limits

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

routes = Routes("queues")

QueueName = Annotated[shapes.Name, Path(description="Name of a queue")]


@routes.get("/v1/queues", Permission.READER)
async def index(call: Caller) -> list[shapes.Queue]:
    """List queues with what waits in them and why."""
    rows = await call.service.depths.get(call.principal.org_id, lambda: _count(call))
    return [
        shapes.Queue(
            **{name: row[name] for name in shapes.Queue.model_fields if name not in ("name", "weight")},
            name=row["queue"],
            weight=row["weight"] or 1,
        )
        for row in rows
    ]


@routes.put("/v1/queues/{name:path}", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def limit(call: Caller, name: QueueName, body: shapes.LimitsIn) -> None:
    """Give a queue its share and its limits; what is left out is lifted."""
    async with _changing(call) as connection:
        await control.set_queue(connection, name, Limits(**body.model_dump()), call.principal.org_id)
        await note(call, connection, "queue.limit", name, body.model_dump(exclude_none=True))


@routes.post("/v1/queues/{name:path}/pause", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def pause(call: Caller, name: QueueName) -> None:
    """Let nothing more of a queue begin."""
    async with _changing(call) as connection:
        await control.pause_queue(connection, name, call.principal.org_id)
        await note(call, connection, "queue.pause", name)


@routes.post("/v1/queues/{name:path}/resume", Permission.WRITER, status_code=HTTPStatus.NO_CONTENT)
async def resume(call: Caller, name: QueueName) -> None:
    """Let a paused queue go on."""
    async with _changing(call) as connection:
        await control.resume_queue(connection, name, call.principal.org_id)
        await note(call, connection, "queue.resume", name)


async def _count(call: Call) -> list[asyncpg.Record]:
    async with reading(call) as connection:
        return await reads.queue_depths(connection, call.principal.org_id)


@asynccontextmanager
async def _changing(call: Call) -> AsyncGenerator[Connection]:
    """What is changed here is seen by who asks next."""
    async with changing(call) as connection:
        yield connection
    call.service.depths.forget(call.principal.org_id)
