"""Schemas of dead letters and of the outbox."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aaiclick.api.field_types import MAX_ITEMS, ApiModel, Name, RequestModel, Snowflake

MAX_REDRIVEN = 1_000_000_000


class DeadLetterSelection(RequestModel):
    """Selects dead letters by id, type or fingerprint, or all of them."""

    ids: Annotated[list[Snowflake], Field(max_length=MAX_ITEMS)] | None = None
    type: Name | None = None
    fingerprint: Name | None = None
    all: bool = False

    @model_validator(mode="after")
    def _check_not_empty(self) -> DeadLetterSelection:
        if not (self.ids or self.type or self.fingerprint or self.all):
            raise ValueError("name 'ids', 'type' or 'fingerprint', or say 'all'")
        return self


class RedriveRequest(DeadLetterSelection):
    """Dead letters to redrive; `per_second` limits the rate."""

    per_second: Annotated[float, Field(ge=0.001, le=100_000)] | None = None
    first_position: Annotated[int, Field(ge=0, le=MAX_REDRIVEN)] = Field(
        default=0, description="With `per_second`: number of tasks that were redriven by previous requests"
    )


class DeadLetter(ApiModel):
    id: Snowflake
    job_id: Snowflake | None
    type: str
    queue: str
    failures: int
    completed_at: datetime
    error_fingerprint: str | None
    error: str | None


class DeadLetterGroup(ApiModel):
    """Dead letters with the same error fingerprint."""

    fingerprint: str | None
    count: int
    first: datetime
    last: datetime
    type: str
    example: Snowflake
    error: str | None


OutboxState = Literal["Pending", "Failed"]


class OutboxEvent(ApiModel):
    """An event of a dataset that is not routed; a routed one is deleted."""

    id: Snowflake
    job_id: Snowflake | None
    dataset: str | None = Field(description="Its name; absent if there is no such dataset")
    status: OutboxState
    attempts: int
    created_at: datetime
    available_at: datetime = Field(description="When a Pending event is tried next")
    processed_at: datetime | None = Field(description="When it failed")
    cursor: str | None = Field(description="Identifies the update")
    last_error: str | None


class OutboxRetryRequest(RequestModel):
    """Failed events to route again: by id, or all."""

    ids: Annotated[list[Snowflake], Field(min_length=1, max_length=MAX_ITEMS)] | None = None
    all: bool = False

    @model_validator(mode="after")
    def _check_ids_or_all(self) -> OutboxRetryRequest:
        if (self.ids is None) != self.all:
            raise ValueError("name 'ids', or say 'all'")
        return self
