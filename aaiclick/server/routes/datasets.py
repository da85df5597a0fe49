"""Datasets: listed, shown, queried, made again. A caller sees what its roles may read, and no trace of the rest."""

from __future__ import annotations

import asyncio
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from fastapi import Path
from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from starlette.responses import Response

from aaiclick.catalog import datasets as catalog
from aaiclick.catalog.queries.dataset_sql import Limits
from aaiclick.catalog.readable import as_seen
from aaiclick.catalog.registration import register_range
from aaiclick.data.bounded_reads import ReadLimits, encode_rows
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.server import shapes
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changing, note, reading, text_id
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.store import catalog_datasets as store
from aaiclick.store.catalog_datasets import Reader, VersionRange
from aaiclick.store.ui_dags import roles_of

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

routes = Routes("datasets")

DatasetName = Annotated[shapes.Name, Path(description="The name of a dataset")]
MOST_ROWS = 100_000
MOST_SECONDS = 300.0


class Dataset(BaseModel):
    name: str
    dag: str
    job: str = Field(description="The job of the DAG that makes it")
    rows: int | None
    updated_at: datetime | None
    read_roles: list[str]


class Generation(BaseModel):
    """The rows that one way of making it has made."""

    id: UUID
    created_at: datetime
    updated_at: datetime | None
    schema_hash: str | None
    range_start: int | None
    range_end: int | None
    serving: bool


class Run(BaseModel):
    """A task that made it."""

    id: shapes.Id
    job_id: shapes.Id | None
    status: shapes.TaskState
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None


class DatasetDetail(Dataset):
    """A dataset with its columns, its generations and the latest tasks that made it."""

    columns: list[shapes.ColumnOut]
    generations: list[Generation]
    runs: list[Run]


class Edge(BaseModel):
    """A dataset is made from another by a job of a DAG."""

    source: str
    job: str
    target: str


class ColumnEdge(BaseModel):
    source: str
    target: str


class Lineage(BaseModel):
    """What a dataset comes from, or what comes from it."""

    edges: list[Edge]
    columns: list[ColumnEdge]


class Query(shapes.Sent):
    """One SELECT over datasets by their names. More rows or a longer time than this is an error, never a cut result."""

    sql: Annotated[str, StringConstraints(min_length=1, max_length=100_000), AfterValidator(shapes.storable)] = Field(
        examples=["SELECT count() FROM sales"]
    )
    max_rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 10_000
    seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = 30.0


class Readers(shapes.Sent):
    """Slugs of the roles that may read it; none: only admins."""

    roles: Annotated[list[shapes.Name], Field(max_length=1_000)]


Position = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


class NewVersion(shapes.Sent):
    """A range of positions, and where its files are if another program writes them."""

    range_start: Position | None = Field(default=None, description="The first position; none: no bound")
    range_end: Position | None = Field(default=None, description="The last position; none: no bound")
    storage_location: Annotated[str, StringConstraints(min_length=1, max_length=1_000)] | None = Field(
        default=None,
        description="A prefix with a glob, below the organisation's places",
        examples=["s3://lake/0/*.parquet"],
    )


class Version(BaseModel):
    id: UUID
    created: bool = Field(description="False if this range was registered before")
    job_id: shapes.Id | None = Field(description="The job that attaches its files, if there are new ones")


@routes.get("/v1/datasets", Permission.READER)
async def index(call: Caller) -> list[Dataset]:
    """List the datasets that the caller may read."""
    async with reading(call) as connection:
        return [Dataset(**_head(row)) for row in await store.visible(connection, await reader(call, connection))]


@routes.post("/v1/datasets/query", Permission.READER, response_model=shapes.Preview)
async def query(call: Caller, body: Query) -> Response:
    """Run one SELECT over datasets by their names."""
    limits = Limits(seconds=body.seconds, result_rows=body.max_rows)
    clickhouse = await connect_clickhouse(await call.service.clickhouse(call.principal.org_id))
    async with call.service.queries.slot(str(call.principal.org_id)):
        async with reading(call) as connection:
            prepared = await catalog.prepare(connection, await reader(call, connection), body.sql, limits)
        found = await catalog.run(clickhouse, prepared, limits)
        rows = await asyncio.to_thread(encode_rows, found, ReadLimits(body.max_rows))
    return Response(b'{"rows":' + rows + b"}", media_type="application/json")


@routes.get("/v1/datasets/{dataset}", Permission.READER)
async def show(call: Caller, dataset: DatasetName) -> DatasetDetail:
    """Show a dataset: columns, generations and the latest tasks that made it."""
    async with reading(call) as connection:
        who = await reader(call, connection)
        row = await store.find_dataset(connection, who, dataset)
        generations = await store.generations_of(connection, row["id"])
        runs = await as_seen(connection, who, await store.runs_of(connection, row["id"]))
    head, layout = _head(row), catalog.layout_of(row)
    if layout is not None and row["rows"] is None:
        clickhouse = await connect_clickhouse(await call.service.clickhouse(call.principal.org_id))
        head["rows"] = await catalog.count_rows(clickhouse, row)
    return DatasetDetail(
        **head,
        columns=[shapes.ColumnOut(name=name, type=kind) for name, kind in (layout.columns if layout else ())],
        generations=[Generation(**{name: each[name] for name in Generation.model_fields}) for each in generations],
        runs=[_run(each) for each in runs],
    )


@routes.get("/v1/datasets/{dataset}/lineage", Permission.READER)
async def lineage(call: Caller, dataset: DatasetName, direction: catalog.Direction = "up") -> Lineage:
    """Show what a dataset is made from, or what is made from it."""
    async with reading(call) as connection:
        graph = await catalog.lineage(connection, await reader(call, connection), dataset, direction)
    return Lineage(
        edges=[Edge(source=each.source, job=each.job, target=each.target) for each in graph.edges],
        columns=[ColumnEdge(source=each.source, target=each.target) for each in graph.columns],
    )


@routes.put("/v1/datasets/{dataset}/readers", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def readers(call: Caller, dataset: DatasetName, body: Readers) -> None:
    """Say which roles may read a dataset."""
    async with changing(call) as connection:
        await store.set_read_roles(connection, call.principal.org_id, dataset, body.roles)
        await note(call, connection, "dataset.readers", dataset, {"roles": body.roles})


@routes.post("/v1/datasets/{dataset}/rematerialize", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def rematerialize(call: Caller, dataset: DatasetName) -> shapes.Created:
    """Make a dataset again, and everything that is made from it. Readers see the old rows until the new are there."""
    async with changing(call) as connection:
        found = await store.find_dataset(connection, await reader(call, connection), dataset)
        job_id = await store.rematerialize(connection, call.principal.org_id, found["id"], dataset)
        await note(call, connection, "dataset.rematerialize", dataset, {"job": str(job_id)})
    return shapes.Created(id=str(job_id))


@routes.post("/v1/datasets/{dataset}/versions", Permission.WRITER)
async def register(call: Caller, dataset: DatasetName, body: NewVersion) -> Version:
    """Register a version of a dataset by its range. Registered twice, it is there once."""
    bounds = VersionRange(body.range_start, body.range_end)
    async with changing(call) as connection:
        who = await reader(call, connection)
        made = await register_range(connection, who, dataset, bounds, body.storage_location)
        if made.created:
            detail = {"version": str(made.id), "range": str(bounds), "location": body.storage_location}
            await note(call, connection, "dataset.register", dataset, detail)
    return Version(id=made.id, created=made.created, job_id=text_id(made.job_id))


async def reader(call: Call, connection: Connection) -> Reader:
    """The caller as a reader: an admin sees everything, a user what its roles may read, another key nothing."""
    who = call.principal
    if Permission.ADMIN in who.permissions:
        return Reader(who.org_id, None)
    kind, _, user_id = who.actor.partition(" ")
    if kind != "user":
        return Reader(who.org_id)
    return Reader(who.org_id, frozenset(await roles_of(connection, who.org_id, UUID(user_id))))


def _head(row: Any) -> dict[str, Any]:
    shared = {name: row[name] for name in ("name", "rows", "updated_at")}
    return shared | {
        "dag": row["producer_dag_name"],
        "job": row["producer_job_name"],
        "read_roles": list(row["read_roles"]),
    }


def _run(row: Any) -> Run:
    shared = {name: row[name] for name in ("status", "started_at", "completed_at", "error")}
    return Run(**shared, id=str(row["id"]), job_id=None if row["job_id"] is None else str(row["job_id"]))
