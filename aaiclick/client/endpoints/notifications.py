"""Endpoints of notifications."""

from __future__ import annotations

from types import NoneType

from aaiclick.api.field_types import Page
from aaiclick.api.notifications import Channel, ChannelRequest, Notification, Rule, RuleRequest
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class NotificationEndpoints:
    """Methods for channels, rules and messages of notifications."""

    @listing
    def list_notifications(
        self, *, incident_id: int | None = None, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[Notification]]:
        """Iterate over messages, newest first."""
        query = {"incident_id": incident_id, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[Notification], "notifications", query=query)

    @endpoint
    def list_notification_channels(self) -> ApiRequest[list[Channel]]:
        """List channels by name; secrets are named, not shown."""
        return build_request("GET", list[Channel], "notifications", "channels")

    @endpoint
    def set_notification_channel(self, name: str, channel: ChannelRequest) -> ApiRequest[Channel]:
        """Create a channel, or replace the one of the same name."""
        return build_request("PUT", Channel, "notifications", "channels", name, body=channel)

    @endpoint
    def delete_notification_channel(self, name: str) -> ApiRequest[None]:
        """Delete a channel that no rule names; messages that wait for it are not sent."""
        return build_request("DELETE", NoneType, "notifications", "channels", name)

    @endpoint
    def test_notification_channel(self, name: str) -> ApiRequest[None]:
        """Send a test message to a channel now; raises DeliveryError if it is not accepted."""
        return build_request("POST", NoneType, "notifications", "channels", name, "test")

    @endpoint
    def list_notification_rules(self) -> ApiRequest[list[Rule]]:
        """List rules by name."""
        return build_request("GET", list[Rule], "notifications", "rules")

    @endpoint
    def set_notification_rule(self, name: str, rule: RuleRequest) -> ApiRequest[Rule]:
        """Create a rule, or replace the one of the same name. It applies to incidents from now on."""
        return build_request("PUT", Rule, "notifications", "rules", name, body=rule)

    @endpoint
    def delete_notification_rule(self, name: str) -> ApiRequest[None]:
        """Delete a rule."""
        return build_request("DELETE", NoneType, "notifications", "rules", name)
