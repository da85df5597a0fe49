"""Dead letters: tasks that failed too often, by what went wrong, and what becomes of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from aaiclick.catalog.readable import WITHHELD, as_seen, untold_dead_letters
from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, page, read_cursor
from aaiclick.server.permissions import Permission
from aaiclick.server.problems import MalformedError
from aaiclick.server.routes.common import changed, changing, note, reading, text_id
from aaiclick.server.routes.datasets import reader
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import control, reads

routes = Routes("dead-letters")


@routes.get("/v1/dead-letters", Permission.READER)
async def index(
    call: Caller,
    type: Annotated[shapes.Name | None, Query()] = None,  # noqa: A002  (the column's name)
    fingerprint: Annotated[shapes.Name | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[shapes.DeadLetter]:
    """List dead letters, newest first."""
    async with reading(call) as connection:
        who = await reader(call, connection)
        rows = await reads.list_dead_letters(
            connection,
            org_id=call.principal.org_id,
            type=type,
            fingerprint=fingerprint,
            before=_moment_and_id(cursor),
            limit=limit + 1,
            untold=await untold_dead_letters(connection, who) if fingerprint else reads.NOWHERE,
        )
        seen = await as_seen(connection, who, rows)
    return page(seen, limit, _letter, lambda row: [row["completed_at"].isoformat(), row["id"]])


@routes.get("/v1/dead-letters/groups", Permission.READER)
async def groups(call: Caller) -> list[shapes.DeadLetterGroup]:
    """List kinds of failure among dead letters, most frequent first."""
    async with reading(call) as connection:
        untold = await untold_dead_letters(connection, await reader(call, connection))
        rows = await reads.group_dead_letters(connection, call.principal.org_id, untold)
    return [
        shapes.DeadLetterGroup(
            fingerprint=row["error_fingerprint"],
            count=row["count"],
            first=row["first"],
            last=row["last"],
            type=row["type"],
            example=str(row["example"]),
            error=WITHHELD if row["untold"] else row["error"],
        )
        for row in rows
    ]


@routes.post("/v1/dead-letters/redrive", Permission.WRITER)
async def redrive(call: Caller, body: shapes.Redrive) -> shapes.Changed:
    """Start dead letters over (at most ten thousand at a time)."""
    async with changing(call) as connection:
        back = await control.redrive(connection, per_second=body.per_second, **_chosen(call, body))
        await note(call, connection, "dead_letters.redrive", "dead letters", _detail(body, len(back)))
    return changed(back)


@routes.post("/v1/dead-letters/discard", Permission.WRITER)
async def discard(call: Caller, body: shapes.Choice) -> shapes.Changed:
    """Give dead letters up (at most ten thousand at a time): they have failed for good."""
    async with changing(call) as connection:
        gone = await control.discard(connection, **_chosen(call, body))
        await note(call, connection, "dead_letters.discard", "dead letters", _detail(body, len(gone)))
    return changed(gone)


def _chosen(call: Caller, body: shapes.Choice) -> dict[str, Any]:
    return {
        "task_ids": None if body.ids is None else [int(task_id) for task_id in body.ids if int(task_id) < 2**63],
        "org_id": call.principal.org_id,
        "type": body.type,
        "fingerprint": body.fingerprint,
    }


def _detail(body: shapes.Choice, count: int) -> dict[str, Any]:
    named = None if body.ids is None else len(body.ids)
    return {"type": body.type, "fingerprint": body.fingerprint, "named": named, "tasks": count}


def _moment_and_id(cursor: str | None) -> tuple[datetime, int] | None:
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
    raise MalformedError("The cursor is not one of ours.", remedy="Use 'next' of the page before, unchanged.")


def _letter(row: Any) -> shapes.DeadLetter:
    plain = {name: row[name] for name in shapes.DeadLetter.model_fields if name not in ("id", "job_id")}
    return shapes.DeadLetter(**plain, id=str(row["id"]), job_id=text_id(row["job_id"]))
