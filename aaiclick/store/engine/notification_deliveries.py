"""Messages about incidents: planned by rules, enqueued when they are due, delivered by tasks.

An incident is its own outbox: messages are planned in the transaction that marks it as routed, and enqueued in the
transaction that marks them as sent. A unique index admits each event of an incident once per channel. A channel gets at
most MAX_MESSAGES messages in RATE_SECONDS: when more are due, one digest has all of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import DeliveryError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.incidents import LAST_ID, NOTIFICATION_KEY
from aaiclick.store.engine.notification_rules import (
    Channel,
    choose_channels,
    due_time,
    escalation_time,
    list_channels,
    load_rules,
)
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import NOTIFICATION_QUEUE, NotificationEvent
from aaiclick.store.statements import statement
from aaiclick.store.task_options import TaskOptions

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

TASK_TYPE = "aaiclick.notification"
BATCH_SIZE = 500
DUE_BATCH_SIZE = 10_000
MAX_MESSAGES = 10
RATE_SECONDS = 60.0
MAX_ATTEMPTS = 24
RETRY_POLICY = json.dumps({"base_seconds": 5.0, "cap_seconds": 900.0})
"""Attempts at 5, 10, 20, 40, 80, 160, 320, 640 and then every 900 s: about four hours, then a dead letter."""

MAX_DELIVERIES_AT_ONCE = 2
"""Concurrent deliveries to one channel: one that does not answer holds up no other."""


async def has_notification_work(connection: Connection, *, now: datetime | None = None) -> bool:
    """Whether a pass of the leader has something to do."""
    return await connection.fetchval(statement("has_notification_work"), now)


async def route_incidents(connection: Connection, *, now: datetime | None = None) -> int:
    """Plan messages about incidents that were opened, closed, escalated or woken; returns how many incidents."""
    async with failpoints.transaction(connection, "route_incidents"):
        unrouted = await connection.fetch(statement("lock_unrouted_incidents"), BATCH_SIZE, now)
        escalating = await connection.fetch(statement("lock_escalating_incidents"), BATCH_SIZE, now)
        woken = await connection.fetch(statement("lock_woken_incidents"), BATCH_SIZE, now)
        incidents = [*unrouted, *escalating, *woken]
        if not incidents:
            return 0
        orgs = {row["org_id"] for row in incidents}
        rules = await load_rules(connection, orgs)
        channels = {(channel.org_id, channel.name): channel for channel in await list_channels(connection, orgs)}
        announced = await _load_announced_channels(connection, [row["id"] for row in incidents])
        plan = _Plan(channels)
        for row in unrouted:
            names = announced.get(row["id"], set())
            if row["opened_routed_at"] is None:
                names = choose_channels(row, rules.get(row["org_id"], []))
                plan.add(row, names, "opened")
            if row["closed_at"] is not None:
                plan.add(row, names, "closed")
        for row in escalating:
            plan.add(row, choose_channels(row, rules.get(row["org_id"], []), escalated=True), "escalated")
        for row in woken:
            plan.add(row, announced.get(row["id"], set()), "reminder")
        await plan.write(connection)
        await connection.execute(
            statement("mark_incidents_routed"),
            [row["id"] for row in unrouted],
            [row["closed_at"] is not None for row in unrouted],
            [escalation_time(row, rules.get(row["org_id"], []), row["now"]) for row in unrouted],
        )
        await connection.execute(statement("mark_incidents_escalated"), [row["id"] for row in escalating], now)
        await connection.execute(statement("mark_incidents_woken"), [row["id"] for row in woken])
        return len(incidents)


class _Plan:
    """Rows of `notifications` to insert."""

    def __init__(self, channels: dict[tuple[UUID, str], Channel]) -> None:
        self._channels = channels
        self._rows: list[tuple[UUID, int, str, str, datetime]] = []

    def add(self, incident: asyncpg.Record, names: set[str], event: NotificationEvent) -> None:
        for name in sorted(names):
            channel = self._channels.get((incident["org_id"], name))
            if channel is not None:
                due = due_time(channel, incident["severity"], incident["now"])
                self._rows.append((incident["org_id"], incident["id"], name, event, due))

    async def write(self, connection: Connection) -> None:
        if self._rows:
            columns = (list(values) for values in zip(*self._rows, strict=True))
            await connection.execute(statement("plan_notifications"), *columns)


async def _load_announced_channels(connection: Connection, incident_ids: Sequence[int]) -> dict[int, set[str]]:
    """Channels that messages about incidents were planned for."""
    channels: dict[int, set[str]] = {}
    for row in await connection.fetch(statement("list_channels_of_incidents"), list(incident_ids)):
        channels.setdefault(row["incident_id"], set()).add(row["channel"])
    return channels


async def enqueue_due_notifications(connection: Connection, *, now: datetime | None = None) -> int:
    """Enqueue a task for each message that is due; returns how many. Messages over the limit of their channel wait."""
    async with failpoints.transaction(connection, "enqueue_notifications"):
        rows = await connection.fetch(statement("lock_due_notifications"), DUE_BATCH_SIZE, RATE_SECONDS, now)
        sent: list[tuple[int, int]] = []
        for (org_id, channel), group in groupby(rows, key=lambda row: (row["org_id"], row["channel"])):
            notifications = list(group)
            messages = split_messages([(row["id"], row["held"]) for row in notifications], notifications[0]["sent"])
            tasks = [_make_task(channel, ids) for ids in messages]
            if tasks:
                await enqueue_tasks(connection, tasks, org_id)
            sent += [(id_, task.id) for task, ids in zip(tasks, messages, strict=True) for id_ in ids]
        if sent:
            await connection.execute(
                statement("mark_notifications_sent"), [id_ for id_, _ in sent], [task for _, task in sent], now
            )
        return len({task for _, task in sent})


def split_messages(notifications: Sequence[tuple[int, bool]], sent: int) -> list[list[int]]:
    """Divide due notifications (id, held back) of a channel into messages, after `sent` in the last RATE_SECONDS.

    Those that were held back are one digest, all others have one message each. When the limit is reached, the last
    message has all that are left; after it none is sent.
    """
    left = MAX_MESSAGES - sent
    if left <= 0:
        return []
    held = [id_ for id_, is_held in notifications if is_held]
    messages = [held] if held else []
    messages += [[id_] for id_, is_held in notifications if not is_held]
    if len(messages) <= left:
        return messages
    return [*messages[: left - 1], list(chain.from_iterable(messages[left - 1 :]))]


def _make_task(channel: str, ids: Sequence[int]) -> NewTask:
    options = TaskOptions(
        max_attempts=MAX_ATTEMPTS, queue=NOTIFICATION_QUEUE, retry_policy=RETRY_POLICY,
        concurrency_key=NOTIFICATION_KEY + channel, concurrency_limit=MAX_DELIVERIES_AT_ONCE,
    )  # fmt: skip
    kwargs = json.dumps({"channel": channel, "notifications": [str(id_) for id_ in ids]})
    return NewTask(get_snowflake_id(), TASK_TYPE, None, kwargs, options=options)


async def mark_delivered(connection: Connection, *, now: datetime | None = None) -> None:
    """Mark notifications of completed tasks as delivered, and close incidents of channels that work again."""
    async with failpoints.statement("mark_delivered"):
        await connection.execute(statement("mark_notifications_delivered"), BATCH_SIZE)
    await connection.execute(statement("close_channel_incidents"), now)


async def has_undelivered(connection: Connection) -> bool:
    """Whether tasks of notifications have not completed."""
    return await connection.fetchval(statement("has_undelivered_notifications"))


async def load_notifications(connection: Connection, task_id: int, ids: Sequence[int]) -> list[asyncpg.Record]:
    """Notifications (`notification_id`, `event`) of a delivery with the columns of their incidents."""
    return await connection.fetch(statement("load_notifications"), list(ids), task_id)


async def list_notifications(
    connection: Connection, org_id: UUID, *, before: int, limit: int, incident_id: int | None = None
) -> list[asyncpg.Record]:
    """List notifications, newest first."""
    return await connection.fetch(statement("list_notifications"), org_id, before, limit, incident_id)


async def list_failing_channels(connection: Connection, org_id: UUID) -> list[asyncpg.Record]:
    """Channels with an open incident."""
    return await connection.fetch(statement("list_failing_channels"), org_id)


def parse_task(kwargs: str) -> tuple[str, list[int]]:
    """Channel and notifications of a task; raises DeliveryError for arguments of another form."""
    fields: dict[str, Any] = json.loads(kwargs)
    try:
        ids = [int(id_) for id_ in fields["notifications"]]
        if isinstance(channel := fields["channel"], str) and all(0 < id_ <= LAST_ID for id_ in ids):
            return channel, ids
    except (KeyError, TypeError, ValueError):
        pass
    raise DeliveryError("The task is not a delivery of notifications.", remedy="Discard it: aaiclick dlq discard.")
