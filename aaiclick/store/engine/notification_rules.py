"""Channels of notifications, and the rules that choose them: rows, and which rules match an incident."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID
from zoneinfo import ZoneInfo

from aaiclick.errors import NotFoundError, RequestError
from aaiclick.store.enums import ChannelType, Severity
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

    Row = Mapping[str, Any] | asyncpg.Record

URGENT: Severity = "critical"
"""Severity of incidents that quiet hours and digests do not delay."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel; `config` contains `{"secret": NAME}` in place of secrets."""

    org_id: UUID
    name: str
    channel_type: ChannelType
    config: Mapping[str, Any]
    roles: tuple[str, ...] = ()
    digest_seconds: float | None = None
    quiet_from: str | None = None
    quiet_until: str | None = None
    timezone: str = "UTC"

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> Channel:
        return cls(
            row["org_id"], row["name"], row["channel_type"], json.loads(row["config"]), tuple(row["roles"]),
            row["digest_seconds"], row["quiet_from"], row["quiet_until"], row["timezone"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """Which incidents go to which channels. None and an empty tuple match everything; names may contain * and ?."""

    name: str
    channels: tuple[str, ...]
    rules: tuple[str, ...] = ()
    min_severity: Severity = "info"
    dag_name: str | None = None
    job_name: str | None = None
    task_type: str | None = None
    tag: str | None = None
    escalate_after_seconds: float | None = None
    escalate_to: tuple[str, ...] = ()

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> Rule:
        return cls(
            row["name"], tuple(row["channels"]), tuple(row["rules"]), row["min_severity"], row["dag_name"],
            row["job_name"], row["task_type"], row["tag"], row["escalate_after_seconds"], tuple(row["escalate_to"]),
        )  # fmt: skip

    def matches(self, incident: Row) -> bool:
        """Whether an incident is sent by this rule."""
        names = ((self.dag_name, "dag_name"), (self.job_name, "job_name"), (self.task_type, "task_type"))
        return (
            (not self.rules or incident["rule"] in self.rules)
            and _rank(incident["severity"]) >= _rank(self.min_severity)
            and all(pattern is None or _is_like(incident[column], pattern) for pattern, column in names)
            and (self.tag is None or any(_is_like(tag, self.tag) for tag in incident["tags"]))
        )


def _rank(severity: Severity) -> int:
    return get_args(Severity).index(severity)


def _is_like(name: str | None, pattern: str) -> bool:
    return name is not None and fnmatchcase(name, pattern)


def choose_channels(incident: Row, rules: Sequence[Rule], *, escalated: bool = False) -> set[str]:
    """The channels of an incident; a failing channel does not report itself."""
    names = {
        name for rule in rules if rule.matches(incident) for name in (rule.escalate_to if escalated else rule.channels)
    }
    return names - ({incident["task_type"]} if incident["rule"] == "channel_failing" else set())


def escalation_time(incident: Row, rules: Sequence[Rule], now: datetime) -> datetime | None:
    """When an incident is escalated unless it is acknowledged; None: never."""
    delays = [
        rule.escalate_after_seconds
        for rule in rules
        if rule.escalate_after_seconds is not None and rule.matches(incident)
    ]
    return now + timedelta(seconds=min(delays)) if delays else None


def due_time(channel: Channel, severity: Severity, now: datetime) -> datetime:
    """When a message is sent: at once, at the end of the channel's digest interval, or after its quiet hours.

    Digests of a channel are sent at multiples of its interval. Critical incidents are not delayed.
    """
    if severity == URGENT:
        return now
    due = now
    if channel.digest_seconds is not None:
        due = now + timedelta(seconds=channel.digest_seconds - now.timestamp() % channel.digest_seconds)
    if channel.quiet_from is None or channel.quiet_until is None:
        return due
    zone = ZoneInfo(channel.timezone)
    local = due.astimezone(zone)
    start, end = (_minutes(text) for text in (channel.quiet_from, channel.quiet_until))
    minutes = local.hour * 60 + local.minute
    is_quiet = start <= minutes < end if start < end else minutes >= start or minutes < end
    if not is_quiet or start == end:
        return due
    day = local.date() + timedelta(days=int(minutes >= end))
    quiet_end = datetime(day.year, day.month, day.day, end // 60, end % 60, tzinfo=zone)
    if quiet_end.astimezone(UTC) <= due.astimezone(UTC):  # in an hour that is repeated: its second occurrence
        quiet_end = quiet_end.replace(fold=1)
    return quiet_end.astimezone(due.tzinfo)


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


# --- rows ---------------------------------------------------------------------------------------------------------


async def set_channel(connection: Connection, channel: Channel) -> None:
    """Create or replace a channel."""
    await connection.execute(
        statement("set_notification_channel"), channel.org_id, channel.name, channel.channel_type,
        json.dumps(dict(channel.config)), list(channel.roles), channel.digest_seconds, channel.quiet_from,
        channel.quiet_until, channel.timezone,
    )  # fmt: skip


async def list_channels(connection: Connection, org_ids: Collection[UUID]) -> list[Channel]:
    rows = await connection.fetch(statement("list_notification_channels"), list(org_ids))
    return [Channel.from_row(row) for row in rows]


async def get_channel(connection: Connection, org_id: UUID, name: str) -> Channel:
    """A channel; raises NotFoundError."""
    row = await connection.fetchrow(statement("get_notification_channel"), org_id, name)
    if row is None:
        raise NotFoundError(
            f"There is no channel {name!r:.80}.", remedy="'aaiclick notify channels' lists the channels."
        )
    return Channel.from_row(row)


async def delete_channel(connection: Connection, org_id: UUID, name: str) -> None:
    """Delete a channel; raises RequestError while a rule names it."""
    rules = [rule.name for rule in await list_rules(connection, org_id) if name in (*rule.channels, *rule.escalate_to)]
    if rules:
        raise RequestError(
            f"The rule {rules[0]!r} sends to the channel {name!r}.", remedy="Change or delete the rule first."
        )
    if await connection.fetchval(statement("delete_notification_channel"), org_id, name) is None:
        await get_channel(connection, org_id, name)


async def set_rule(connection: Connection, org_id: UUID, rule: Rule) -> None:
    """Create or replace a rule; raises NotFoundError for a channel that does not exist."""
    for name in (*rule.channels, *rule.escalate_to):
        await get_channel(connection, org_id, name)
    await connection.execute(
        statement("set_notification_rule"), org_id, rule.name, list(rule.rules), rule.min_severity, rule.dag_name,
        rule.job_name, rule.task_type, rule.tag, list(rule.channels), rule.escalate_after_seconds,
        list(rule.escalate_to),
    )  # fmt: skip


async def list_rules(connection: Connection, org_id: UUID) -> list[Rule]:
    return (await load_rules(connection, [org_id])).get(org_id, [])


async def load_rules(connection: Connection, org_ids: Collection[UUID]) -> dict[UUID, list[Rule]]:
    """Rules by organisation."""
    rules: dict[UUID, list[Rule]] = {}
    for row in await connection.fetch(statement("list_notification_rules"), list(org_ids)):
        rules.setdefault(row["org_id"], []).append(Rule.from_row(row))
    return rules


async def delete_rule(connection: Connection, org_id: UUID, name: str) -> None:
    if await connection.fetchval(statement("delete_notification_rule"), org_id, name) is None:
        raise NotFoundError(f"There is no rule {name!r:.80}.", remedy="'aaiclick notify rules' lists the rules.")
