"""Endpoints of events that tasks wait for."""

from __future__ import annotations

from aaiclick.api.workflow_events import SendEventRequest, SentEvent
from aaiclick.client.endpoint_decorators import endpoint
from aaiclick.client.requests import ApiRequest, build_request


class EventEndpoints:
    """Methods for events that tasks wait for."""

    @endpoint
    def send_event(self, event: SendEventRequest) -> ApiRequest[SentEvent]:
        """Send an event: tasks that wait for its name and key go on."""
        return build_request("POST", SentEvent, "events", body=event)
