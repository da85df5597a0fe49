"""Operations on incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aaiclick.api.field_types import Page
from aaiclick.api.incidents import Incident, IncidentState, fix_command
from aaiclick.catalog.dataset_visibility import REDACTED_ERROR
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.row_conversion import from_row
from aaiclick.store.catalog.datasets import hidden_incident_ids
from aaiclick.store.engine import incidents as store
from aaiclick.store.enums import IncidentRule

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

    Row = Mapping[str, Any] | asyncpg.Record


@operation(Permission.READER, changes=False)
async def list_incidents(
    connection: Connection,
    actor: Actor,
    *,
    acknowledged: bool | None = None,
    rule: IncidentRule | None = None,
    closed: bool = False,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Incident]:
    """List open incidents, newest first; with `closed` also those that are over."""
    before = read_id_cursor(cursor, store.LAST_ID)
    rows = await store.list_incidents(
        connection, actor.org_id, before=before, limit=limit + 1, acknowledged=acknowledged, rule=rule,
        with_closed=closed,
    )  # fmt: skip
    incidents = await _to_incidents(connection, actor, rows)
    return make_page(incidents, limit, lambda incident: incident, lambda incident: incident.id)


@operation(Permission.READER, changes=False)
async def get_incident(connection: Connection, actor: Actor, incident_id: int) -> Incident:
    """Get an incident."""
    return await _to_incident(connection, actor, await store.get_incident(connection, actor.org_id, incident_id))


@operation(Permission.WRITER)
async def acknowledge_incident(connection: Connection, actor: Actor, incident_id: int) -> Incident:
    """Acknowledge an open incident: it is not escalated any more."""
    row = await store.acknowledge_incident(connection, actor.org_id, incident_id, actor.name)
    await write_audit(connection, actor, "incident.acknowledge", incident_id, {"title": row["title"]})
    return await _to_incident(connection, actor, row)


@operation(Permission.WRITER)
async def snooze_incident(connection: Connection, actor: Actor, incident_id: int, seconds: float = 3600.0) -> Incident:
    """Send no messages about an open incident for some time; then one if it is still open."""
    row = await store.snooze_incident(connection, actor.org_id, incident_id, seconds)
    await write_audit(connection, actor, "incident.snooze", incident_id, {"title": row["title"], "seconds": seconds})
    return await _to_incident(connection, actor, row)


@operation(Permission.WRITER)
async def close_incident(connection: Connection, actor: Actor, incident_id: int) -> Incident:
    """Close an open incident; another occurrence opens a new one."""
    row = await store.close_incident(connection, actor.org_id, incident_id, actor.name)
    await write_audit(connection, actor, "incident.close", incident_id, {"title": row["title"]})
    return await _to_incident(connection, actor, row)


async def _to_incident(connection: Connection, actor: Actor, row: Row) -> Incident:
    (incident,) = await _to_incidents(connection, actor, [row])
    return incident


async def _to_incidents(connection: Connection, actor: Actor, rows: Sequence[Row]) -> list[Incident]:
    """Convert rows; causes that are hidden from the actor are replaced."""
    hidden = await hidden_incident_ids(connection, await dataset_reader(connection, actor), rows)
    incidents: list[Incident] = []
    for row in rows:
        is_hidden = row["id"] in hidden
        command = fix_command(
            row["rule"], job_id=row["job_id"], task_id=row["task_id"], task_type=row["task_type"],
            error_fingerprint=None if is_hidden else row["error_fingerprint"],
        )  # fmt: skip
        cause = row["cause"] and REDACTED_ERROR if is_hidden else row["cause"]
        incidents.append(from_row(Incident, row, state=_state_of(row), command=command, cause=cause))
    return incidents


def _state_of(row: Row) -> IncidentState:
    if row["closed_at"] is not None:
        return "closed"
    if row["snoozed_until"] is not None:
        return "snoozed"
    return "open" if row["acknowledged_at"] is None else "acknowledged"
