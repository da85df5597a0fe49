"""`aaiclick datasets`: list, show, query and rematerialize datasets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aaiclick.catalog import datasets as catalog
from aaiclick.catalog.queries.table_rewrite import QueryLimits
from aaiclick.catalog.range_registration import register_range
from aaiclick.cli import remote
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.audit import audited_call_local_or_remote, audited_transaction, write_audit
from aaiclick.cli.clickhouse_client import connect_clickhouse
from aaiclick.cli.database import error_headline, find_org_id, format_duration, format_time
from aaiclick.cli.output import (
    Row,
    output_option,
    print_message,
    print_record,
    print_records,
    print_rows,
    select_fields,
)
from aaiclick.cli.param_types import POSITION, Number
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.cli.watch import watch_job
from aaiclick.client import requests
from aaiclick.client.requests import ApiRequest
from aaiclick.data.io.json_values import to_json
from aaiclick.errors import EXIT_FAILED
from aaiclick.orchestration import JobStatus, OrchContext, get_job
from aaiclick.store.catalog import datasets as store
from aaiclick.store.catalog.datasets import Reader, VersionRange

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

GENERATION_FIELDS = ("id", "created_at", "updated_at", "schema_hash", "range_start", "range_end", "serving")
MAX_BYTES = 1 << 30
RUN_FIELDS = ("id", "job_id", "status", "started_at", "completed_at", "error")

C = TypeVar("C", bound=Callable[..., Any])


def reader_options(function: C) -> C:
    """Add `--org` and `--as` to a command that reads datasets."""
    as_option = click.option(
        "--as",
        "user",
        default=None,
        metavar="USER",
        help="Read with the roles of this user, by its external id [default: read everything].",
    )
    return org_option(as_option(function))


@click.group()
def datasets() -> None:
    """List, show, query and rematerialize datasets."""


@datasets.command("ls")
@reader_options
@output_option
def list_datasets(org: str, user: str | None, output: str) -> None:
    """List datasets."""

    async def list_local(connection: Connection) -> list[Row]:
        rows = await store.list_visible_datasets(connection, await _load_reader(connection, org, user))
        return [dict(row) | _producer_fields(row) for row in rows]

    rows = call_local_or_remote(list_local, lambda client: remote.parse_rows(_check_key(client, org, user).datasets()))
    print_rows(rows, output, _table_row, _json_record, empty_message="No readable datasets found.")


@datasets.command("show")
@click.argument("name")
@reader_options
@output_option
def show_dataset(name: str, org: str, user: str | None, output: str) -> None:
    """Show a dataset: columns, generations and the tasks that produced it."""

    async def show_local(connection: Connection) -> Row:
        reader = await _load_reader(connection, org, user)
        row = await store.find_dataset(connection, reader, name)
        layout = catalog.parse_layout(row)
        return {**row, **_producer_fields(row)} | {
            "rows": None if layout is None else await catalog.count_rows(await connect_clickhouse(reader.org_id), row),
            "columns": [
                {"name": column, "type": column_type} for column, column_type in (layout.columns if layout else ())
            ],
            "generations": [dict(item) for item in await store.list_generations(connection, row["id"])],
            "runs": [dict(item) for item in await store.list_dataset_runs(connection, row["id"])],
        }

    def show_remote(client: Client) -> Row:
        dataset = remote.parse_row(_check_key(client, org, user).get_dataset(name))
        return dataset | {part: remote.parse_rows(dataset[part]) for part in ("generations", "runs")}

    dataset = call_local_or_remote(show_local, show_remote)
    if output == "json":
        print_record(_detailed_json(dataset), output)
    else:
        print_records(_detailed_rows(dataset), output)


def _detailed_json(dataset: Row) -> Row:
    return _json_record(dataset) | {
        "columns": dataset["columns"],
        "generations": [select_fields(item, GENERATION_FIELDS) for item in dataset["generations"]],
        "runs": [select_fields(item, RUN_FIELDS) for item in dataset["runs"]],
    }


def _detailed_rows(dataset: Row) -> list[Row]:
    """Build one table of a dataset's columns, generations and runs."""
    lines = [_detail_row("dataset", dataset["name"], f"produced by {dataset['dag']}.{dataset['job']}")]
    if dataset["columns"]:
        lines.append(_detail_row("rows", dataset["rows"], f"updated {format_time(dataset['updated_at'])}"))
        lines += [_detail_row("column", generation["name"], generation["type"]) for generation in dataset["columns"]]
    for generation in dataset["generations"]:
        state = "serving" if generation["serving"] else "not serving"
        created, updated = format_time(generation["created_at"]), format_time(generation["updated_at"]) or "never"
        detail = f"{state}; created {created}, updated {updated}; schema {_short_hash(generation['schema_hash'])}"
        lines.append(_detail_row("generation", str(generation["id"])[:8], detail))
    for task in dataset["runs"]:
        took = format_duration(task["started_at"], task["completed_at"])
        lines.append(
            _detail_row("task", task["id"], f"{task['status']} {took} {error_headline(task['error'])}".strip())
        )
    return lines


@datasets.command("lineage")
@click.argument("name")
@click.option("--down", is_flag=True, help="Downstream instead of upstream lineage.")
@click.option("--columns", is_flag=True, help="Lineage of columns.")
@reader_options
@output_option
def show_lineage(name: str, down: bool, columns: bool, org: str, user: str | None, output: str) -> None:
    """Show the upstream or downstream lineage of a dataset."""
    direction = "down" if down else "up"

    async def trace_local(connection: Connection) -> Row:
        return asdict(
            await catalog.trace_lineage(connection, await _load_reader(connection, org, user), name, direction)
        )

    graph = call_local_or_remote(trace_local, lambda client: _check_key(client, org, user).lineage(name, direction))
    print_rows(graph["columns" if columns else "edges"], output, _edge_row, dict)


@datasets.command("query")
@click.argument("sql")
@click.option("--max-rows", type=click.IntRange(1, 10_000_000), default=QueryLimits().result_rows, show_default=True,
              help="Fail if the result has more rows.")  # fmt: skip
@click.option("--seconds", "time_limit", type=Number(0.1), default=QueryLimits().seconds, show_default=True,
              help="Fail if the query takes longer.")  # fmt: skip
@reader_options
@output_option
def run_query(sql: str, max_rows: int, time_limit: float, org: str, user: str | None, output: str) -> None:
    """Run one SELECT over datasets by their names."""

    async def query_local(connection: Connection) -> list[dict[str, Any]]:
        reader = await _load_reader(connection, org, user)
        limits = QueryLimits(time_limit, max_rows, MAX_BYTES, MAX_BYTES)
        clickhouse = await connect_clickhouse(reader.org_id)
        result = await catalog.run_query(connection, clickhouse, reader, sql, limits)
        return [to_json(row) for row in result.to_pylist()]

    def query_remote(client: Client) -> list[Row]:
        return _check_key(client, org, user).query(sql, max_rows=max_rows, seconds=time_limit).rows

    print_records(call_local_or_remote(query_local, query_remote), output, empty_message="No rows.")


@datasets.command("readers")
@click.argument("name")
@click.argument("roles", nargs=-1)
@org_option
def set_readers(name: str, roles: tuple[str, ...], org: str) -> None:
    """Set the roles that may read a dataset; without roles, only admins may."""
    body = {"roles": sorted(set(roles))}
    audited_call_local_or_remote(
        org,
        "dataset.readers",
        name,
        lambda connection, name, org_id: store.set_read_roles(connection, org_id, name, roles),
        lambda client: client.call(ApiRequest("PUT", requests.build_path("datasets", name, "readers"), body=body)),
        body,
    )
    print_message(f"Readers of {name}: {', '.join(body['roles']) or 'admins only'}.")


@datasets.command("rematerialize")
@click.argument("name")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the job has finished.")
@org_option
@output_option
def rematerialize_dataset(name: str, wait: bool, org: str, output: str) -> int:
    """Rebuild a dataset and everything downstream. Readers see the old rows until the new ones are complete."""
    if remote.is_remote():
        with remote.open_client() as client:
            job_id = _check_key(client, org).rematerialize(name).id
            status = (remote.watch_job(client, job_id) if wait else client.get_job(job_id).model_dump())["status"]
    else:
        job_id, status = asyncio.run(_rematerialize_local(name, wait, org))
    print_record({"job": str(job_id), "status": status}, output)
    return EXIT_FAILED if status in (JobStatus.FAILED.value, JobStatus.CANCELLED.value) else 0


async def _rematerialize_local(name: str, wait: bool, org: str) -> tuple[int, str]:
    async with OrchContext() as context, context.connection() as connection:
        org_id = await find_org_id(connection, org)
        dataset = await store.find_dataset(connection, Reader(org_id, None), name)
        async with audited_transaction(connection):
            job_id = await store.rematerialize(connection, org_id, dataset["id"], name)
            await write_audit(connection, org_id, "dataset.rematerialize", name, {"job": str(job_id)})
        if wait:
            await watch_job(context, job_id)
        return job_id, (await get_job(job_id)).status.value


@datasets.command("register")
@click.argument("name")
@click.option(
    "--range",
    "bounds",
    nargs=2,
    type=POSITION,
    default=(None, None),
    metavar="FIRST LAST",
    help="First and last position.",
)
@click.option("--location", default=None, metavar="PREFIX", help="Prefix and glob of the version's files, if separate.")
@org_option
@output_option
def register_version(
    name: str, bounds: tuple[int | None, int | None], location: str | None, org: str, output: str
) -> None:
    """Register a version of a dataset by its range; repeating it has no effect."""

    async def register_local(connection: Connection) -> Row:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            registered = await register_range(connection, Reader(org_id, None), name, VersionRange(*bounds), location)
            if registered.created:
                detail = {"version": str(registered.id), "range": str(VersionRange(*bounds)), "location": location}
                await write_audit(connection, org_id, "dataset.register", name, detail)
        return asdict(registered)

    def register_remote(client: Client) -> Row:
        body = {"range_start": bounds[0], "range_end": bounds[1], "storage_location": location}
        call = requests.post(requests.build_path("datasets", name, "versions"), body)
        return remote.parse_row(_check_key(client, org).call(call))

    registered = call_local_or_remote(register_local, register_remote)
    job_id = registered["job_id"]
    record = {
        "id": str(registered["id"]),
        "created": registered["created"],
        "job_id": None if job_id is None else str(job_id),
    }
    print_record(record, output)


def _producer_fields(row: Any) -> Row:
    return {"dag": row["producer_dag_name"], "job": row["producer_job_name"]}


def _check_key(client: Client, org: str, user: str | None = None) -> Client:
    """Refuse --as and a foreign --org: remote reads use the roles of the API key."""
    if user is not None:
        remote.refuse_remote("--as")
    remote.check_org(client, org)
    return client


async def _load_reader(connection: Connection, org: str, user: str | None) -> Reader:
    org_id = await find_org_id(connection, org)
    return Reader(org_id, None) if user is None else await store.load_reader(connection, org_id, user)


def _json_record(row: Row) -> Row:
    return select_fields(row, ("name", "dag", "job", "rows", "updated_at", "read_roles"))


def _table_row(row: Row) -> Row:
    return {
        "name": row["name"],
        "produced by": f"{row['dag']}.{row['job']}",
        "rows": row["rows"],
        "updated": format_time(row["updated_at"]),
        "readers": ", ".join(row["read_roles"]),
    }


def _edge_row(row: Row) -> Row:
    """Rename source and target of a lineage edge for the table."""
    return {{"source": "from", "target": "to"}.get(name, name): value for name, value in row.items()}


def _detail_row(kind_name: str, name: object, detail: str) -> dict[str, object]:
    return {"what": kind_name, "name": name, "detail": detail}


def _short_hash(text: str | None) -> str:
    return (text or "unknown")[:12]
