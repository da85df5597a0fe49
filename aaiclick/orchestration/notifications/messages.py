"""What a message says about incidents, limited to what the channel's roles may read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from aaiclick.api.incidents import fix_command
from aaiclick.errors import headline
from aaiclick.settings import Settings, get_logs_dir, get_settings
from aaiclick.store.catalog.datasets import Reader, hidden_incident_ids
from aaiclick.store.engine.notification_deliveries import load_notifications
from aaiclick.store.enums import NotificationEvent, Severity

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine.notification_rules import Channel
    from aaiclick.store.postgres_connections import Connection

HIDDEN_CAUSE = "The cause is hidden: the roles of this channel do not include every dataset of the task."
MAX_CAUSE_CHARACTERS = 1_500
MAX_LOG_BYTES = 1_500
MAX_LISTED = {"slack": 20, "teams": 20, "email": 100, "webhook": 100, "pagerduty": 50}
"""Incidents that a digest lists, by type of channel; further ones are counted."""


@dataclass(frozen=True, slots=True)
class IncidentMessage:
    """An event of one incident."""

    event: NotificationEvent
    incident_id: int
    rule: str
    fingerprint: str
    severity: Severity
    title: str
    cause: str | None
    log: str | None
    count: int
    opened_at: datetime
    link: str
    command: str | None
    dag: str | None
    job: str | None
    task_type: str | None
    job_id: int | None
    task_id: int | None


@dataclass(frozen=True, slots=True)
class Message:
    """One message to a channel; `delivery` is the same in repeated attempts, so that receivers can ignore them."""

    delivery: str
    org: str
    incidents: tuple[IncidentMessage, ...]
    more: int = 0
    """Further incidents that the digest does not list."""

    @property
    def is_digest(self) -> bool:
        return len(self.incidents) + self.more != 1

    @property
    def subject(self) -> str:
        if self.is_digest:
            return f"{len(self.incidents) + self.more} messages about incidents in {self.org}"
        return describe_event(self.incidents[0])


def describe_event(incident: IncidentMessage) -> str:
    """One line about an event."""
    match incident.event:
        case "closed":
            return f"Recovered: {incident.title}"
        case "escalated":
            return f"Not acknowledged: {incident.title}"
        case "reminder":
            return f"Still open: {incident.title}"
        case _:
            return incident.title


async def build_message(
    connection: Connection, channel: Channel, org: str, task_id: int, ids: Sequence[int]
) -> Message | None:
    """The message of a delivery, the task with these notifications; None if their incidents are gone."""
    rows = await load_notifications(connection, task_id, ids)
    if not rows:
        return None
    hidden = await hidden_incident_ids(connection, Reader(channel.org_id, frozenset(channel.roles)), rows)
    incidents = [await _describe_incident(row, row["id"] in hidden) for row in rows[: MAX_LISTED[channel.channel_type]]]
    return Message(str(task_id), org, tuple(incidents), len(rows) - len(incidents))


async def _describe_incident(row: asyncpg.Record, is_hidden: bool) -> IncidentMessage:
    """An incident as the channel may see it. Logs and errors were redacted by the worker that wrote them."""
    settings = get_settings()
    log = None
    if not is_hidden and row["task_id"] is not None and row["rule"] != "channel_failing":
        log = await asyncio.to_thread(_read_log_end, settings, row["task_id"])
    cause = row["cause"] and (HIDDEN_CAUSE if is_hidden else row["cause"][-MAX_CAUSE_CHARACTERS:])
    command = fix_command(
        row["rule"], job_id=row["job_id"], task_id=row["task_id"], task_type=row["task_type"],
        error_fingerprint=None if is_hidden else row["error_fingerprint"],
    )  # fmt: skip
    return IncidentMessage(
        row["event"], row["id"], row["rule"], row["fingerprint"], row["severity"], row["title"], cause, log,
        row["count"], row["opened_at"], f"{public_url(settings)}/incidents/{row['id']}", command, row["dag_name"],
        row["job_name"], row["task_type"], row["job_id"], row["task_id"],
    )  # fmt: skip


def public_url(settings: Settings) -> str:
    """Address of the web UI in links."""
    return (settings.server_public_url or f"http://{settings.server_host}:{settings.server_port}").rstrip("/")


def _read_log_end(settings: Settings, task_id: int) -> str | None:
    """The last lines of the log of a task, if it is on this machine."""
    try:
        with (get_logs_dir(settings) / f"{task_id}.log").open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - MAX_LOG_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return None
    lines = text.strip().splitlines()
    return "\n".join(lines[1:] if size > MAX_LOG_BYTES else lines) or None


def cause_line(incident: IncidentMessage) -> str:
    """The cause in one line."""
    return headline(incident.cause) if incident.cause else ""
