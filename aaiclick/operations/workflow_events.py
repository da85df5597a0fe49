"""Operations on events that tasks wait for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aaiclick.api.workflow_events import SendEventRequest, SentEvent
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.store.engine import waits

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.WRITER)
async def send_event(connection: Connection, actor: Actor, event: SendEventRequest) -> SentEvent:
    """Send an event: tasks that wait for its name and key go on."""
    event_id, count = await waits.send_event(
        connection, actor.org_id, event.name, event.key, json.dumps(event.payload), keep_seconds=event.keep_seconds
    )
    detail = {"key": event.key, "event": str(event_id), "ended_waits": count}
    await write_audit(connection, actor, "events.send", event.name, detail)
    return SentEvent(id=event_id, ended_waits=count)
