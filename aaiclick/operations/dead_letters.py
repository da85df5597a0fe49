"""Operations on dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.api.dead_letters import DeadLetter, DeadLetterGroup, DeadLetterSelection, RedriveRequest
from aaiclick.api.field_types import ChangedIdsResponse, Page
from aaiclick.catalog.dataset_visibility import REDACTED_ERROR, hidden_dead_letters, redact_tasks
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.job_and_task_lookups import changed_ids, storable_ids
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import invalid_cursor, make_page, read_cursor
from aaiclick.operations.row_conversion import from_row
from aaiclick.store.engine import queries, user_actions
from aaiclick.store.engine.retry_and_redrive import BATCH_SIZE

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.READER, changes=False)
async def list_dead_letters(
    connection: Connection,
    actor: Actor,
    *,
    type: str | None = None,  # noqa: A002  (the column's name)
    fingerprint: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[DeadLetter]:
    """List dead letters, newest first."""
    reader = await dataset_reader(connection, actor)
    rows = await queries.list_dead_letters(
        connection,
        org_id=actor.visible_org_id,
        type=type,
        fingerprint=fingerprint,
        before=_read_time_cursor(cursor),
        limit=limit + 1,
        hidden=await hidden_dead_letters(connection, reader) if fingerprint else queries.NO_ORIGINS,
    )
    visible_rows = await redact_tasks(connection, reader, rows)
    return make_page(
        visible_rows,
        limit,
        lambda row: from_row(DeadLetter, row),
        lambda row: [row["completed_at"].isoformat(), row["id"]],
    )


@operation(Permission.READER, changes=False)
async def group_dead_letters(connection: Connection, actor: Actor) -> list[DeadLetterGroup]:
    """Count dead letters by error fingerprint, most frequent first."""
    hidden = await hidden_dead_letters(connection, await dataset_reader(connection, actor))
    rows = await queries.group_dead_letters(connection, actor.visible_org_id, hidden)
    return [
        from_row(
            DeadLetterGroup,
            row,
            fingerprint=row["error_fingerprint"],
            error=REDACTED_ERROR if row["hidden"] else row["error"],
        )
        for row in rows
    ]


@operation(Permission.WRITER)
async def redrive_dead_letters(connection: Connection, actor: Actor, selection: RedriveRequest) -> ChangedIdsResponse:
    """Redrive dead letters, at most ten thousand at a time."""
    redriven: set[int] = set()
    for org_id in await _selected_orgs(connection, actor, selection):
        restarted = await user_actions.redrive_dead_letters(
            connection,
            **_selection_arguments(selection),
            org_id=org_id,
            per_second=selection.per_second,
            first_position=selection.first_position + len(redriven),
            limit=max(BATCH_SIZE - len(redriven), 1),
        )
        await _write_audit(connection, actor, "dead_letters.redrive", selection, len(restarted), org_id)
        redriven |= restarted
    return changed_ids(redriven)


@operation(Permission.WRITER)
async def discard_dead_letters(
    connection: Connection, actor: Actor, selection: DeadLetterSelection
) -> ChangedIdsResponse:
    """Discard dead letters, at most ten thousand at a time: they become FAILED."""
    discarded: set[int] = set()
    for org_id in await _selected_orgs(connection, actor, selection):
        failed = await user_actions.discard_dead_letters(
            connection,
            **_selection_arguments(selection),
            org_id=org_id,
            limit=max(BATCH_SIZE - len(discarded), 1),
        )
        await _write_audit(connection, actor, "dead_letters.discard", selection, len(failed), org_id)
        discarded |= failed
    return changed_ids(discarded)


async def _selected_orgs(connection: Connection, actor: Actor, selection: DeadLetterSelection) -> list[UUID]:
    """The orgs of the selected dead letters, each of which gets an audit entry."""
    if actor.visible_org_id is not None:
        return [actor.visible_org_id]
    return await queries.list_orgs_of_dead_letters(connection, **_selection_arguments(selection))


def _selection_arguments(selection: DeadLetterSelection) -> dict[str, Any]:
    return {
        "task_ids": storable_ids(selection.ids),
        "type": selection.type,
        "fingerprint": selection.fingerprint,
    }


async def _write_audit(
    connection: Connection, actor: Actor, action: str, selection: DeadLetterSelection, count: int, org_id: UUID
) -> None:
    named = None if selection.ids is None else len(selection.ids)
    detail = {"type": selection.type, "fingerprint": selection.fingerprint, "named": named, "tasks": count}
    await write_audit(connection, actor, action, "dead letters", detail, org_id=org_id)


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
