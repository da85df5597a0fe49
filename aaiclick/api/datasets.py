"""Schemas of datasets, their lineage and queries over them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from aaiclick.api.field_types import ApiModel, Name, RequestModel, RowModel, Snowflake, TaskState, check_storable
from aaiclick.api.objects import ColumnSchema

MAX_QUERY_ROWS = 100_000
MAX_QUERY_SECONDS = 300.0


LineageDirection = Literal["up", "down"]


class Dataset(RowModel):
    name: str
    dag: str
    job: str = Field(description="The job of the DAG that makes it")
    rows: int | None
    updated_at: datetime | None
    read_roles: list[str]


class Generation(RowModel):
    """One materialisation of a dataset version."""

    id: UUID
    created_at: datetime
    updated_at: datetime | None
    schema_hash: str | None
    range_start: int | None
    range_end: int | None
    serving: bool


class DatasetRun(ApiModel):
    """A task that wrote the dataset."""

    id: Snowflake
    job_id: Snowflake | None
    status: TaskState
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None


class DatasetDetail(Dataset):
    """A dataset with its columns, its generations and the latest tasks that wrote it."""

    columns: list[ColumnSchema]
    generations: list[Generation]
    runs: list[DatasetRun]


class LineageEdge(RowModel):
    """A job of a DAG reads the source and writes the target."""

    source: str
    job: str
    target: str


class ColumnLineageEdge(RowModel):
    source: str
    target: str


class LineageResponse(ApiModel):
    """Upstream or downstream lineage of a dataset."""

    edges: list[LineageEdge]
    columns: list[ColumnLineageEdge]


class QueryRequest(RequestModel):
    """One SELECT over datasets by their names. A result that exceeds a limit is an error and is never truncated."""

    sql: Annotated[str, StringConstraints(min_length=1, max_length=100_000), AfterValidator(check_storable)] = Field(
        examples=["SELECT count() FROM sales"]
    )
    max_rows: Annotated[int, Field(ge=1, le=MAX_QUERY_ROWS)] = 10_000
    seconds: Annotated[float, Field(gt=0, le=MAX_QUERY_SECONDS)] = 30.0


class ReadersRequest(RequestModel):
    """Slugs of the roles that may read the dataset; an empty list leaves it to admins."""

    roles: Annotated[list[Name], Field(max_length=1_000)]


Position = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


class RegisterVersionRequest(RequestModel):
    """A range of positions, and the location of its files if another program writes them."""

    range_start: Position | None = Field(default=None, description="The first position; none: no bound")
    range_end: Position | None = Field(default=None, description="The last position; none: no bound")
    storage_location: Annotated[str, StringConstraints(min_length=1, max_length=1_000)] | None = Field(
        default=None,
        description="A prefix with a glob, below one of the organisation's storage prefixes",
        examples=["s3://lake/0/*.parquet"],
    )


class RegisteredVersion(RowModel):
    id: UUID
    created: bool = Field(description="False if this range was registered before")
    job_id: Snowflake | None = Field(description="The job that attaches its files, if there are new ones")
