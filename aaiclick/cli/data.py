"""`aaiclick data`: list, show and export Objects, and drop unused tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aaiclick.cli import remote
from aaiclick.cli.database import format_time
from aaiclick.cli.output import (
    Row,
    output_option,
    print_message,
    print_record,
    print_records,
    print_rows,
    select_fields,
)
from aaiclick.cli.param_types import ID, Number
from aaiclick.client import requests
from aaiclick.data import DataContext, Object, open_object, open_reference
from aaiclick.data.io.export import write_file, write_s3
from aaiclick.data.io.formats import FORMATS
from aaiclick.data.io.json_values import to_json
from aaiclick.data.io.s3 import SCHEME
from aaiclick.data.runtime.clickhouse_client import Client
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.data.runtime.tables import NAMED
from aaiclick.endpoints import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.errors import NotFoundError
from aaiclick.local import find_both
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper, created_at_ms, find_orphans, tenant_clients
from aaiclick.orchestration.table_audit import TableEntry, forget_missing_names, list_tables
from aaiclick.settings import get_settings
from aaiclick.store.connections import connect
from aaiclick.store.migrate import prepare_schema

if TYPE_CHECKING:
    from aaiclick.client import Client as RemoteClient
    from aaiclick.store.connections import Connection

T = TypeVar("T")

PREVIEW_ROWS = 10
NO_OBJECTS = "No Objects found."


@click.group()
def data() -> None:
    """List, show and export Objects; drop unused tables."""


@data.command("ls")
@click.option("--job", "job_id", type=ID, default=None, help="Only Objects referenced by this job.")
@click.option("--named", "only_named", is_flag=True, help="Only named Objects.")
@click.option("--state", type=click.Choice(["named", "live", "unused", "unknown", "missing"]), default=None,
              help="Only Objects in this state.")  # fmt: skip
@output_option
def list_objects(job_id: int | None, only_named: bool, state: str | None, output: str) -> None:
    """List Objects with their size and references."""
    if remote.is_remote():
        if job_id is not None or state is not None:
            remote.refuse_remote("--job or --state")
        with remote.open_client() as client:
            objects = list(client.pages(requests.get("/v1/objects", limit=1_000)))
        shown_objects = [remote.parse_times(item) for item in objects if item["name"] is not None or not only_named]
        print_rows(shown_objects, output, _remote_table_row, _remote_json_record, empty_message=NO_OBJECTS)
        return
    entries = with_servers(lambda connection, client: list_tables(connection, client, job_id=job_id))
    if only_named:
        entries = [entry for entry in entries if entry.name is not None]
    if state is not None:
        entries = [entry for entry in entries if entry.state == state]
    print_rows([_entry_row(entry) for entry in entries], output, _table_row, _json_record, empty_message=NO_OBJECTS)


@data.command("show")
@click.argument("name")
@output_option
def show_object(name: str, output: str) -> None:
    """Show an Object, by its name or table: columns, size, references and first rows."""
    if remote.is_remote():
        _show_remote(name, output)
        return

    async def show_local(connection: Connection, client: Client) -> tuple[TableEntry, list[Row], list[Row]]:
        entry = await _find_entry(connection, client, name)
        async with DataContext(client.endpoint):
            opened = await _open_entry(entry)
            columns = [{"name": column, "type": str(column_type)} for column, column_type in opened.schema.items()]
            return entry, columns, [to_json(row) for row in await opened.head(PREVIEW_ROWS).rows()]

    entry, columns, rows = with_servers(show_local)
    line = _json_record if output == "json" else _table_row
    _print_object(line(_entry_row(entry)), columns, rows, output)


def _show_remote(name: str, output: str) -> None:
    with remote.open_client() as client:
        details = _find_remote(client, name)
        rows = client.call(
            requests.get(requests.build_path("objects", details["table_id"], "rows"), limit=PREVIEW_ROWS)
        )["rows"]
    line = _remote_json_record if output == "json" else _remote_table_row
    _print_object(line(remote.parse_times(details)), details["columns"], rows, output)


def _print_object(line: Row, columns: list[Row], rows: list[Row], output: str) -> None:
    if output == "json":
        print_record(line | {"columns": columns, "head": rows}, output)
        return
    print_record(line, output)
    click.echo()
    print_records([{"column": column["name"], "type": column["type"]} for column in columns], output)
    click.echo()
    print_records(rows, output, empty_message="No rows.")


@data.command("gc")
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@click.option("--max-age-seconds", type=Number(0), default=3600.0, show_default=True,
              help="Minimum age of an orphaned table.")  # fmt: skip
@output_option
def collect_garbage(dry_run: bool, max_age_seconds: float, output: str) -> None:
    """Drop unreferenced tables and old orphaned tables: one pass of cleanup and sweeper."""
    if remote.is_remote():
        remote.refuse_remote("'data gc'")
    if dry_run:
        droppable = with_servers(lambda connection, client: _find_droppable(connection, client, max_age_seconds))
        print_records(droppable, output, empty_message="Nothing would be dropped.")
        return

    async def collect_local(connection: Connection, client: Client) -> dict[str, int]:
        postgres, clickhouse = find_both(get_settings())
        return {
            "released": await PgCleanupWorker(postgres=postgres, clickhouse=clickhouse).run_once(),
            "orphans": await TableSweeper(max_age_seconds, postgres=postgres, clickhouse=clickhouse).run_once(),
            "lost_names": await forget_missing_names(connection, client),
        }

    print_record(with_servers(collect_local), output)


@data.command("export")
@click.argument("name")
@click.argument("path", type=click.Path(dir_okay=False))
@click.option(
    "--format",
    "chosen",
    type=click.Choice(sorted(FORMATS)),
    default=None,
    help="File format [default: by the file name].",
)
def export_object(name: str, path: str, chosen: str | None) -> None:
    """Write an Object, by its name or table, to a file (or s3://bucket/key)."""
    if remote.is_remote():
        print_message(f"{asyncio.run(_export_remote(name, path, chosen))} rows written to {path}.")
        return

    async def export_local(connection: Connection, client: Client) -> int:
        entry = await _find_entry(connection, client, name)
        async with DataContext(client.endpoint):
            opened = await _open_entry(entry)
            await opened.export(path, format=chosen)
            return await opened.count()

    print_message(f"{with_servers(export_local)} rows written to {path}.")


async def _export_remote(name: str, path: str, chosen: str | None) -> int:
    """Stream the export from the server; compression and destination are handled here."""
    with remote.open_client() as client:
        details = await asyncio.to_thread(_find_remote, client, name)
    async with remote.open_async_client() as sender:
        table: str = details["table_id"]
        if path.startswith(SCHEME):
            await write_s3(path, chosen, None, lambda kind: sender.export_object(table, kind))
        else:
            await write_file(path, chosen, lambda kind: sender.export_object(table, kind))
        return (await sender.call(requests.get(requests.build_path("objects", table))))["rows"]


def _find_remote(client: RemoteClient, name: str) -> dict[str, Any]:
    """Find an Object by name, then by table: a name may look like a table's."""
    try:
        return client.call(requests.get(requests.build_path("objects", NAMED + name)))
    except NotFoundError:
        return client.call(requests.get(requests.build_path("objects", name)))


def _remote_json_record(row: Row) -> Row:
    return select_fields(row, ("table_id", "name", "rows", "bytes", "changed_at"))


def _remote_table_row(row: Row) -> Row:
    return {
        "name": row["name"] or row["table_id"],
        "rows": row["rows"],
        "bytes": row["bytes"],
        "changed": format_time(row["changed_at"]),
    }


def with_servers(operation: Callable[[Connection, Client], Awaitable[T]]) -> T:
    """Run an operation with connections to both servers."""
    settings = get_settings()
    postgres, clickhouse = find_both(settings)

    async def run_connected(postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint) -> T:
        await prepare_schema(postgres, embedded=settings.postgres is None)
        connection = await connect(postgres)
        try:
            return await operation(connection, await connect_clickhouse(clickhouse))
        finally:
            await connection.close()

    return asyncio.run(run_connected(postgres, clickhouse))


async def _find_droppable(connection: Connection, client: Client, max_age_seconds: float) -> list[dict[str, object]]:
    droppable: list[dict[str, Any]] = []
    for org_id, org_client in (await tenant_clients(client)).items():
        unused = [
            entry.table for entry in await list_tables(connection, org_client, org_id=org_id) if entry.state == "unused"
        ]
        reasons = dict.fromkeys(unused, "unreferenced") | dict.fromkeys(
            await find_orphans(connection, org_client, max_age_seconds), "old orphaned table"
        )
        droppable += [
            {"database": org_client.endpoint.database, "table": name, "why": reason} for name, reason in reasons.items()
        ]
    return droppable


async def _find_entry(connection: Connection, client: Client, name: str) -> TableEntry:
    """Find an Object by name, then by table: a name may look like a table's."""
    entries = [entry for entry in await list_tables(connection, client) if name in (entry.name, entry.table)]
    if not entries or entries[0].state == "missing":
        raise NotFoundError(f"There is no Object {name!r}.", remedy="'aaiclick data ls' lists the Objects.")
    return min(entries, key=lambda entry: entry.name != name)


async def _open_entry(entry: TableEntry) -> Object:
    if entry.name is not None:
        return await open_object(entry.name)
    return await open_reference({"object_type": "object", "table_id": entry.table})


def _entry_row(entry: TableEntry) -> Row:
    return asdict(entry) | {"table_id": entry.table, "created_at": entry.created_at or _created_at(entry.table)}


def _json_record(row: Row) -> Row:
    return select_fields(row, ("table_id", "name", "state", "rows", "bytes", "references", "owners", "created_at"))


def _table_row(row: Row) -> Row:
    return {
        "name": row["name"] or row["table_id"],
        "state": row["state"],
        "rows": row["rows"],
        "bytes": row["bytes"],
        "references": row["references"],
        "owners": "; ".join(row["owners"]),
        "created": format_time(row["created_at"]),
    }


def _created_at(table: str) -> datetime | None:
    milliseconds = created_at_ms(table)
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
