"""Operations on notifications: channels, rules and messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.notifications import Channel, ChannelRequest, Notification, Rule, RuleRequest
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases
from aaiclick.operations.operation import databases_operation, operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.operations.row_conversion import from_row
from aaiclick.orchestration.notifications.channel_sender import deliver, load_settings
from aaiclick.orchestration.notifications.messages import IncidentMessage, Message, public_url
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import notification_deliveries
from aaiclick.store.engine import notification_rules as store
from aaiclick.store.engine.incidents import LAST_ID
from aaiclick.store.tenancy.orgs import get_org

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.READER, changes=False)
async def list_notification_channels(connection: Connection, actor: Actor) -> list[Channel]:
    """List channels by name. Settings are shown to admins; secrets are named in them, not shown."""
    failing = {row["channel"] for row in await notification_deliveries.list_failing_channels(connection, actor.org_id)}
    channels = await store.list_channels(connection, [actor.org_id])
    listed = [_to_channel(channel, channel.name in failing) for channel in channels]
    is_admin = Permission.ADMIN in actor.permissions
    return listed if is_admin else [channel.model_copy(update={"config": {}}) for channel in listed]


@operation(Permission.ADMIN)
async def set_notification_channel(connection: Connection, actor: Actor, name: str, channel: ChannelRequest) -> Channel:
    """Create a channel, or replace the one of the same name."""
    stored = store.Channel(
        actor.org_id, name, channel.type, channel.config, tuple(channel.roles), channel.digest_seconds,
        channel.quiet_from, channel.quiet_until, channel.timezone,
    )  # fmt: skip
    await store.set_channel(connection, stored)
    await write_audit(connection, actor, "channel.set", name, {"type": channel.type, "roles": channel.roles})
    return _to_channel(stored, failing=False)


@operation(Permission.ADMIN)
async def delete_notification_channel(connection: Connection, actor: Actor, name: str) -> None:
    """Delete a channel that no rule names; messages that wait for it are not sent."""
    await store.delete_channel(connection, actor.org_id, name)
    await write_audit(connection, actor, "channel.delete", name)


@databases_operation(Permission.ADMIN)
async def test_notification_channel(databases: Databases, actor: Actor, name: str) -> None:
    """Send a test message to a channel now; raises DeliveryError if it is not accepted."""
    async with databases.connect(as_owner=True) as connection:
        org = await get_org(connection, actor.org_id)
        channel = await store.get_channel(connection, actor.org_id, name)
        settings = await load_settings(connection, channel, org.slug)
        await write_audit(connection, actor, "channel.test", name)
    await deliver(channel, settings, make_test_message(org.slug, name), quotes_answer=True)


def make_test_message(org: str, channel: str) -> Message:
    """A message that says that a channel works."""
    incident = IncidentMessage(
        "opened", 0, "channel_failing", "test", "info", f"Test of the channel {channel}",
        "This is a test: nothing has failed.", None, 1, datetime.now(UTC), f"{public_url(get_settings())}/incidents",
        None, None, None, channel, None, None,
    )  # fmt: skip
    return Message(str(get_snowflake_id()), org, (incident,))


@operation(Permission.READER, changes=False)
async def list_notification_rules(connection: Connection, actor: Actor) -> list[Rule]:
    """List rules by name."""
    return [_to_rule(rule) for rule in await store.list_rules(connection, actor.org_id)]


@operation(Permission.ADMIN)
async def set_notification_rule(connection: Connection, actor: Actor, name: str, rule: RuleRequest) -> Rule:
    """Create a rule, or replace the one of the same name. It applies to incidents from now on."""
    stored = store.Rule(
        name, tuple(rule.channels), tuple(rule.rules), rule.min_severity, rule.dag_name, rule.job_name, rule.task_type,
        rule.tag, rule.escalate_after_seconds, tuple(rule.escalate_to),
    )  # fmt: skip
    await store.set_rule(connection, actor.org_id, stored)
    await write_audit(connection, actor, "rule.set", name, {"channels": rule.channels})
    return _to_rule(stored)


@operation(Permission.ADMIN)
async def delete_notification_rule(connection: Connection, actor: Actor, name: str) -> None:
    """Delete a rule."""
    await store.delete_rule(connection, actor.org_id, name)
    await write_audit(connection, actor, "rule.delete", name)


@operation(Permission.READER, changes=False)
async def list_notifications(
    connection: Connection,
    actor: Actor,
    *,
    incident_id: int | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Notification]:
    """List messages, newest first."""
    rows = await notification_deliveries.list_notifications(
        connection, actor.org_id, before=read_id_cursor(cursor, LAST_ID), limit=limit + 1, incident_id=incident_id
    )
    return make_page(rows, limit, lambda row: from_row(Notification, row), lambda row: row["id"])


def _to_channel(channel: store.Channel, failing: bool) -> Channel:
    return Channel(
        name=channel.name, type=channel.channel_type, config=dict(channel.config), roles=list(channel.roles),
        digest_seconds=channel.digest_seconds, quiet_from=channel.quiet_from, quiet_until=channel.quiet_until,
        timezone=channel.timezone, failing=failing,
    )  # fmt: skip


def _to_rule(rule: store.Rule) -> Rule:
    return Rule.model_validate(rule, from_attributes=True)
