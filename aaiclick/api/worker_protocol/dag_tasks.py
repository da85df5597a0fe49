"""Schemas of what a task of a DAG requests: its definition, states, partitions, publication and events."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, ApiModel
from aaiclick.api.worker_protocol.field_types import LeaseRequest, RowCount, TableName, Text
from aaiclick.api.worker_protocol.outcomes import TaskEffects
from aaiclick.store.catalog.definition_runs import Definition, Partition, PublishOutcome
from aaiclick.store.enums import MAX_CURSOR_CHARACTERS
from aaiclick.store.json_types import BigInt


class DefinitionRequest(LeaseRequest):
    definition: UUID


class DefinitionResponse(ApiModel):
    """The definition of a task of a DAG, and the generations that it reads and writes."""

    definition: Definition


class TicketResponse(ApiModel):
    ticket: BigInt


class StateRequest(DefinitionRequest):
    key: Text


class StateResponse(ApiModel):
    state: dict[str, object] | None


class GenerationRequest(LeaseRequest):
    generation: UUID


class PartitionsRequest(GenerationRequest):
    keys: Annotated[list[Text], Field(max_length=MAX_ITEMS)] | None = Field(
        default=None, description="Null means all partitions"
    )


class PartitionsResponse(ApiModel):
    partitions: list[Partition]


class DigestResponse(ApiModel):
    digest: str


class PublishRequest(GenerationRequest):
    """Rows that an attempt has staged in a table of its own, to be published."""

    partition: Text = ""
    ticket: BigInt
    table: TableName
    rows: RowCount
    publishes: BigInt | None = Field(
        default=None, description="Publications of the generation that data tests have read; null if they read none"
    )


class PublishResponse(ApiModel):
    published: bool = Field(description="False if newer rows were published before, or data tests must run again")
    outcome: PublishOutcome


class EmitRequest(LeaseRequest):
    """Updates that a source has published while it runs, to be routed at once."""

    cursor: Annotated[Text, StringConstraints(min_length=1, max_length=MAX_CURSOR_CHARACTERS)] = Field(
        description="Identifies the update: emitted again, it starts nothing twice"
    )
    effects: TaskEffects
