"""Schemas of events that tasks wait for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from aaiclick.api.field_types import ApiModel, Arguments, Name, RequestModel, Snowflake


class SendEventRequest(RequestModel):
    """An event: tasks that wait for its name and key go on with its payload."""

    name: Name = Field(examples=["order_paid"])
    key: Annotated[str, StringConstraints(max_length=200)] = Field(default="", examples=["42"])
    payload: Arguments = Field(default_factory=dict, examples=[{"euros": 7}])
    keep_seconds: Annotated[float, Field(ge=0, le=366 * 86_400)] = Field(
        default=86_400, description="How long it also ends waits that begin after it"
    )


class SentEvent(ApiModel):
    id: Snowflake
    ended_waits: int = Field(description="Tasks that waited for it and go on")
