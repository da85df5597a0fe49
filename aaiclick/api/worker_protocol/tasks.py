"""Schemas of what a running task requests: new tasks, results, tables, secrets and log parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from aaiclick.api.field_types import MAX_ITEMS, ApiModel, Arguments, Entrypoint, Key, Name, RequestModel, TaskTypeName
from aaiclick.api.tasks import TaskOptionFields
from aaiclick.api.worker_protocol.field_types import Ids, LeaseRequest, TableName
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.engine.queries import TaskResult
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.json_types import SnowflakeId
from aaiclick.store.tables.literal_results import Reservation
from aaiclick.store.tables.table_references import TableReferenceResult
from aaiclick.store.tenancy.secrets import Secret


class LogRequest(LeaseRequest):
    """A part of an attempt's log; a repeated part is written once."""

    offset: Annotated[int, Field(ge=0, le=10**9, description="In bytes, from the beginning of this attempt")]
    text: Annotated[str, StringConstraints(max_length=2_000_000)]


class AddedTask(TaskOptionFields):
    id: SnowflakeId
    type: TaskTypeName
    entrypoint: Entrypoint | None
    kwargs: Arguments
    group_id: SnowflakeId | None
    idempotency_key: Key | None

    @staticmethod
    def from_task(task: NewTask) -> AddedTask:
        values = {name: getattr(task, name) for name in ("id", "type", "entrypoint", "group_id", "idempotency_key")}
        return AddedTask.model_validate({**task.options.to_json(), **values, "kwargs": json.loads(task.kwargs)})

    def to_task(self) -> NewTask:
        return NewTask(
            self.id, self.type, self.entrypoint, json.dumps(self.kwargs), self.group_id, self.idempotency_key,
            self.to_options(),
        )  # fmt: skip


class AddedGroup(RequestModel):
    id: SnowflakeId
    name: Name
    parent_group_id: SnowflakeId | None


class AddTasksRequest(LeaseRequest):
    """Tasks and groups that a task adds to its own job; they start after it has completed."""

    tasks: Annotated[list[AddedTask], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    groups: Annotated[list[AddedGroup], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    edges: Annotated[list[tuple[SnowflakeId, SnowflakeId]], Field(max_length=10 * MAX_ITEMS)] = Field(
        default_factory=list
    )
    names: dict[SnowflakeId, Name] = Field(default_factory=dict)

    @staticmethod
    def from_plan(lease: Lease, plan: Plan, names: Mapping[int, str]) -> AddTasksRequest:
        """Convert a plan. Tables are left out: the server finds them in the arguments."""
        groups = [
            AddedGroup(id=group.id, name=group.name, parent_group_id=group.parent_group_id) for group in plan.groups
        ]
        tasks = [AddedTask.from_task(task) for task in plan.tasks]
        return AddTasksRequest(lease=lease, tasks=tasks, groups=groups, edges=list(plan.edges), names=dict(names))

    def to_plan(self) -> Plan:
        groups = [NewGroup(group.id, group.name, group.parent_group_id) for group in self.groups]
        return Plan([task.to_task() for task in self.tasks], groups, self.edges)


class ResultsRequest(LeaseRequest):
    """Selects results of tasks of the same job: some tasks, or all tasks of a group."""

    task_ids: Ids = Field(default_factory=list)
    group_id: SnowflakeId | None = None


class ResultsResponse(ApiModel):
    results: list[TaskResult]


class CachedResultRequest(LeaseRequest):
    """Request for the cached result of a key; without one, the task becomes the entry of the key."""

    key: Name
    max_age_seconds: float | None = None
    refused: Ids = Field(default_factory=list, description="Tasks with results that have no table any more")


class LiteralsRequest(LeaseRequest):
    """Selects literals of the organisation: small results that are stored with their tasks."""

    tables: Annotated[list[TableName], Field(max_length=MAX_ITEMS)]


class LiteralsResponse(ApiModel):
    literals: dict[str, str] = Field(description="Encoded value by table id; tables are left out")


class StoreLiteralRequest(LeaseRequest):
    """Reserve the table of a literal in order to create it; then replace the literal, or abandon the reservation."""

    table: TableName
    action: Literal["reserve", "replace", "abandon"]


class StoreLiteralResponse(ApiModel):
    reservation: Reservation = Field(description="Of a `reserve`: whether the caller creates the table")


class TableReference(RequestModel):
    table: TableName
    lease: Lease


class TablesRequest(RequestModel):
    """Reserve tables before they exist, hold tables for reading, or release them."""

    action: Literal["reserve", "hold", "release"]
    tables: Annotated[list[TableReference], Field(max_length=MAX_ITEMS)]


class TablesResponse(ApiModel):
    tables: list[TableReferenceResult] = Field(description="In the order of the request; empty for a release")


class NameTableRequest(LeaseRequest):
    """Name a table, which keeps it; without a name, remove its name."""

    table: TableName
    name: Name | None = None


class SecretsRequest(LeaseRequest):
    names: Annotated[list[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]], Field(max_length=100)]


class SecretsResponse(ApiModel):
    secrets: list[Secret]
