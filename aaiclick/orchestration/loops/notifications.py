"""Notifications: plans messages about incidents by rules, and enqueues those that are due."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.store.engine.notification_deliveries import (
    BATCH_SIZE,
    enqueue_due_notifications,
    has_notification_work,
    mark_delivered,
    route_incidents,
)

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

MAX_BATCHES = 5
"""Batches of incidents per pass: other loops of the leader wait for it."""


async def run_once(connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
    """Run one pass; counts `incidents` that were routed and `messages` that were enqueued."""
    routed = 0
    if not await has_notification_work(connection, now=now):
        return {"incidents": 0, "messages": 0}
    for _ in range(MAX_BATCHES):
        count = await route_incidents(connection, now=now)
        routed += count
        if count < BATCH_SIZE:
            break
    messages = await enqueue_due_notifications(connection, now=now)
    await mark_delivered(connection, now=now)
    return {"incidents": routed, "messages": messages}
