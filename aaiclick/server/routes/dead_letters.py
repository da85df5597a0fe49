"""Routes of dead letters: list, group by error, redrive and discard."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from aaiclick.api.dead_letters import DeadLetter, DeadLetterGroup, DeadLetterSelection, RedriveRequest
from aaiclick.api.field_types import ChangedIdsResponse, Name, Page
from aaiclick.catalog.visibility import REDACTED_ERROR, hidden_dead_letters, redact_tasks
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import invalid_cursor, make_page, read_cursor
from aaiclick.operations.visibility import dataset_reader
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import changed_ids, tenant_connection, tenant_transaction, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.engine import control, queries

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
    async with tenant_connection(context) as connection:
        reader = await dataset_reader(connection, context.actor)
        rows = await queries.list_dead_letters(
            connection,
            org_id=context.actor.org_id,
            type=type,
            fingerprint=fingerprint,
            before=_read_time_cursor(cursor),
            limit=limit + 1,
            hidden=await hidden_dead_letters(connection, reader) if fingerprint else queries.NO_ORIGINS,
        )
        visible_rows = await redact_tasks(connection, reader, rows)
    return make_page(visible_rows, limit, _to_dead_letter, lambda row: [row["completed_at"].isoformat(), row["id"]])


@routes.get("/v1/dead-letters/groups", Permission.READER)
async def group_dead_letters(context: Context) -> list[DeadLetterGroup]:
    """Group dead letters by error fingerprint, most frequent first."""
    async with tenant_connection(context) as connection:
        untold = await hidden_dead_letters(connection, await dataset_reader(connection, context.actor))
        rows = await queries.group_dead_letters(connection, context.actor.org_id, untold)
    return [
        DeadLetterGroup(
            fingerprint=row["error_fingerprint"],
            count=row["count"],
            first=row["first"],
            last=row["last"],
            type=row["type"],
            example=row["example"],
            error=REDACTED_ERROR if row["untold"] else row["error"],
        )
        for row in rows
    ]


@routes.post("/v1/dead-letters/redrive", Permission.WRITER)
async def redrive_dead_letters(context: Context, body: RedriveRequest) -> ChangedIdsResponse:
    """Redrive dead letters (at most ten thousand at a time)."""
    async with tenant_transaction(context) as connection:
        redriven = await control.redrive_dead_letters(
            connection, per_second=body.per_second, **_selection_arguments(context, body)
        )
        await write_audit(
            context, connection, "dead_letters.redrive", "dead letters", _audit_detail(body, len(redriven))
        )
    return changed_ids(redriven)


@routes.post("/v1/dead-letters/discard", Permission.WRITER)
async def discard_dead_letters(context: Context, body: DeadLetterSelection) -> ChangedIdsResponse:
    """Discard dead letters (at most ten thousand at a time): they become FAILED."""
    async with tenant_transaction(context) as connection:
        discarded = await control.discard_dead_letters(connection, **_selection_arguments(context, body))
        await write_audit(
            context, connection, "dead_letters.discard", "dead letters", _audit_detail(body, len(discarded))
        )
    return changed_ids(discarded)


def _selection_arguments(context: Context, body: DeadLetterSelection) -> dict[str, Any]:
    return {
        "task_ids": None if body.ids is None else [task_id for task_id in body.ids if task_id < 2**63],
        "org_id": context.actor.org_id,
        "type": body.type,
        "fingerprint": body.fingerprint,
    }


def _audit_detail(body: DeadLetterSelection, count: int) -> dict[str, Any]:
    named = None if body.ids is None else len(body.ids)
    return {"type": body.type, "fingerprint": body.fingerprint, "named": named, "tasks": count}


def _read_time_cursor(cursor: str | None) -> tuple[datetime, int] | None:
    match read_cursor(cursor):
        case None:
            return None
        case [str(at), int(task_id)] if 0 <= task_id < 2**63:
            try:
                moment = datetime.fromisoformat(at)
            except ValueError:
                moment = None
            if moment is not None and moment.tzinfo is not None:
                return moment, task_id
        case _:
            pass
    raise invalid_cursor()


def _to_dead_letter(row: Any) -> DeadLetter:
    return DeadLetter(**{name: row[name] for name in DeadLetter.model_fields})
