"""Schemas of the outcomes of attempts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, model_validator

from aaiclick.api.field_types import MAX_ITEMS, Id, RequestModel, check_storable
from aaiclick.api.worker_protocol.field_types import ElapsedSeconds, LeaseReference, ShortText, TableName, Text


class PartitionUpdate(RequestModel):
    """The new content of a partition, and the hash of the inputs that it was computed from."""

    key: Text
    rows: Annotated[int, Field(ge=0, le=2**63 - 1)] | None
    digest: ShortText | None = None
    inputs_hash: ShortText | None = None


class GenerationUpdate(RequestModel):
    """Rows of a generation that were published before."""

    dataset: UUID
    generation: UUID
    ticket: Annotated[int, Field(ge=0, le=2**63 - 1)]
    columns: dict[str, Any]
    schema_hash: ShortText
    partitions: Annotated[list[PartitionUpdate], Field(max_length=MAX_ITEMS + 1)]
    rows: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    whole: bool = False
    changed: Annotated[list[Text], Field(max_length=MAX_ITEMS + 1)] | None = None


class TaskEffects(RequestModel):
    """What the completion of a task of a DAG writes; only datasets of its definition are accepted."""

    outputs: dict[str, Any] = Field(default_factory=dict)
    input_versions: dict[str, Any] = Field(default_factory=dict)
    inputs: Annotated[list[tuple[UUID, Text, AwareDatetime]], Field(max_length=MAX_ITEMS * 10)] = Field(
        default_factory=list, description="Dataset, partition and when that was updated"
    )
    states: Annotated[list[tuple[UUID, Text, dict[str, Any]]], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=list, description="Definition, key and state"
    )
    updates: Annotated[list[GenerationUpdate], Field(max_length=1_000)] = Field(default_factory=list)
    lineage: dict[UUID, Annotated[list[tuple[Text, UUID, Text]], Field(max_length=MAX_ITEMS)]] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Of each output generation: column, input dataset, input column",
    )
    definition: UUID
    build: UUID | None = None


class CompleteRequest(RequestModel):
    """The attempt succeeded."""

    lease: LeaseReference
    result: Any = None
    seconds: ElapsedSeconds | None = None
    awaits: Annotated[list[Id], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=list, description="Tasks that it added and returns: it completes when they have"
    )
    tables: Annotated[list[TableName], Field(max_length=MAX_ITEMS)] | None = Field(
        default=None, description="Tables within the result; an empty list if it only used some"
    )
    effects: TaskEffects | None = Field(default=None, description="What a task of a DAG writes")


class FailRequest(RequestModel):
    """The attempt failed."""

    lease: LeaseReference
    error: Text
    fingerprint: Annotated[str, StringConstraints(max_length=1_000), AfterValidator(check_storable)] = ""
    permanent: bool = False
    delay_seconds: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None, description="Delay before the retry [by the retry policy of the task]"
    )
    seconds: ElapsedSeconds | None = None
    charged: bool = True
    outcome: Literal["FAILED", "LOST", "CANCELLED", "TIMED_OUT", "RELEASED"] = "FAILED"

    @model_validator(mode="after")
    def _check_released_is_uncharged(self) -> Self:
        if self.outcome == "RELEASED" and self.charged:
            raise ValueError("an attempt that is released is not charged: set charged to false")
        return self
