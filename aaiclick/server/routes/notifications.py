"""Routes of notifications: channels, rules, messages."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Query

from aaiclick.api.field_types import MAX_ID, Page
from aaiclick.api.notifications import Channel, ChannelRequest, Notification, Rule, RuleRequest
from aaiclick.operations import notifications as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("notifications")

ItemName = Annotated[str, Path(min_length=1, max_length=63, pattern=r"^[a-z0-9][a-z0-9_-]*$")]


@routes.get("/v1/notifications", Permission.READER)
async def list_notifications(
    context: Context,
    incident_id: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Notification]:
    """List messages about incidents, newest first."""
    return await context.perform(operations.list_notifications, incident_id=incident_id, cursor=cursor, limit=limit)


@routes.get("/v1/notifications/channels", Permission.READER)
async def list_notification_channels(context: Context) -> list[Channel]:
    """List channels by name; secrets are named, not shown."""
    return await context.perform(operations.list_notification_channels)


@routes.put("/v1/notifications/channels/{name}", Permission.ADMIN)
async def set_notification_channel(context: Context, name: ItemName, body: ChannelRequest) -> Channel:
    """Create or replace a channel."""
    return await context.perform(operations.set_notification_channel, name, body)


@routes.delete("/v1/notifications/channels/{name}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_notification_channel(context: Context, name: ItemName) -> None:
    """Delete a channel that no rule names."""
    await context.perform(operations.delete_notification_channel, name)


@routes.post("/v1/notifications/channels/{name}/test", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def test_notification_channel(context: Context, name: ItemName) -> None:
    """Send a test message to a channel now."""
    await context.perform(operations.test_notification_channel, name)


@routes.get("/v1/notifications/rules", Permission.READER)
async def list_notification_rules(context: Context) -> list[Rule]:
    """List rules by name."""
    return await context.perform(operations.list_notification_rules)


@routes.put("/v1/notifications/rules/{name}", Permission.ADMIN)
async def set_notification_rule(context: Context, name: ItemName, body: RuleRequest) -> Rule:
    """Create or replace a rule."""
    return await context.perform(operations.set_notification_rule, name, body)


@routes.delete("/v1/notifications/rules/{name}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_notification_rule(context: Context, name: ItemName) -> None:
    """Delete a rule."""
    await context.perform(operations.delete_notification_rule, name)
