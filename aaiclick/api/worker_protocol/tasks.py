"""Schemas of what a running task requests: new tasks, results, tables, secrets and log parts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, Arguments, Entrypoint, Id, Key, Name, RequestModel
from aaiclick.api.tasks import TaskOptionFields
from aaiclick.api.worker_protocol.field_types import LeaseReference, LeaseRequest, TableName


class LogRequest(RequestModel):
    """A part of an attempt's log; a repeated part is written once."""

    lease: LeaseReference
    offset: Annotated[int, Field(ge=0, le=10**9, description="In bytes, from the beginning of this attempt")]
    text: Annotated[str, StringConstraints(max_length=2_000_000)]


class AddedTask(TaskOptionFields):
    id: Id
    type: Name
    entrypoint: Entrypoint | None
    kwargs: Arguments
    group_id: Id | None
    idempotency_key: Key | None


class AddedGroup(RequestModel):
    id: Id
    name: Name
    parent_group_id: Id | None


class AddTasksRequest(RequestModel):
    """Tasks and groups that a task adds to its own job; they start after it has completed."""

    lease: LeaseReference
    tasks: Annotated[list[AddedTask], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    groups: Annotated[list[AddedGroup], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    edges: Annotated[list[tuple[Id, Id]], Field(max_length=10 * MAX_ITEMS)] = Field(default_factory=list)
    names: dict[Id, Name] = Field(default_factory=dict)


class ResultsRequest(RequestModel):
    """Selects results of tasks of the same job: some tasks, or all tasks of a group."""

    lease: LeaseReference
    task_ids: Annotated[list[Id], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    group_id: Id | None = None


class TaskResult(BaseModel):
    task_id: Id
    result: Any
    attempt: int | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class ResultsResponse(BaseModel):
    results: list[TaskResult]


class TableReference(RequestModel):
    table: TableName
    lease: LeaseReference


class TablesRequest(RequestModel):
    """Reserve tables before they exist, hold tables for reading, or release them."""

    action: Literal["reserve", "hold", "release"]
    tables: Annotated[list[TableReference], Field(max_length=MAX_ITEMS)]


class TableReferenceStatus(BaseModel):
    lease_lost: bool
    is_unknown: bool = Field(description="The table does not exist, or is being dropped")


class TablesResponse(BaseModel):
    tables: list[TableReferenceStatus] = Field(description="In the order of the request; empty for a release")


class NameTableRequest(RequestModel):
    """Name a table, which keeps it; without a name, remove its name."""

    lease: LeaseReference
    table: TableName
    name: Name | None = None


class SecretsRequest(LeaseRequest):
    names: Annotated[list[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]], Field(max_length=100)]


class SecretValue(BaseModel):
    name: str
    value: str
    host: str | None = Field(description="The only host that it may be sent to")


class SecretsResponse(BaseModel):
    secrets: list[SecretValue]
