"""Routes of dead letters: list, group by error, redrive and discard."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from aaiclick.api.dead_letters import DeadLetter, DeadLetterGroup, DeadLetterSelection, RedriveRequest
from aaiclick.api.field_types import ChangedIdsResponse, Name, Page
from aaiclick.operations import dead_letters as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("dead-letters")


@routes.get("/v1/dead-letters", Permission.READER)
async def list_dead_letters(
    context: Context,
    type: Annotated[Name | None, Query()] = None,  # noqa: A002  (the column's name)
    fingerprint: Annotated[Name | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[DeadLetter]:
    """List dead letters, newest first."""
    return await context.perform(
        operations.list_dead_letters, type=type, fingerprint=fingerprint, cursor=cursor, limit=limit
    )


@routes.get("/v1/dead-letters/groups", Permission.READER)
async def group_dead_letters(context: Context) -> list[DeadLetterGroup]:
    """Group dead letters by error fingerprint, most frequent first."""
    return await context.perform(operations.group_dead_letters)


@routes.post("/v1/dead-letters/redrive", Permission.WRITER)
async def redrive_dead_letters(context: Context, body: RedriveRequest) -> ChangedIdsResponse:
    """Redrive dead letters (at most ten thousand at a time)."""
    return await context.perform(operations.redrive_dead_letters, body)


@routes.post("/v1/dead-letters/discard", Permission.WRITER)
async def discard_dead_letters(context: Context, body: DeadLetterSelection) -> ChangedIdsResponse:
    """Discard dead letters (at most ten thousand at a time): they become FAILED."""
    return await context.perform(operations.discard_dead_letters, body)
