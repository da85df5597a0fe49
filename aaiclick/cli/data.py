"""`aaiclick data`: list, show and export Objects, and drop unused tables."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast, get_args

import click

from aaiclick.api.objects import FileFormat, ObjectSchema, ObjectState, ObjectSummary
from aaiclick.cli import remote
from aaiclick.cli.database import format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import (
    Row,
    output_option,
    print_message,
    print_record,
    print_records,
    print_rows,
    select_fields,
)
from aaiclick.cli.param_types import JOB_ID, Number
from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.data.io.export import write_file, write_s3
from aaiclick.data.io.formats import FORMATS
from aaiclick.data.io.s3_client import SCHEME
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.data.runtime.tables import NAMED
from aaiclick.errors import NotFoundError
from aaiclick.local import find_both
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper, find_orphans, tenant_clients
from aaiclick.orchestration.table_audit import forget_missing_names, list_tables
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.migrate import prepare_schema
from aaiclick.store.postgres_connections import connect

if TYPE_CHECKING:
    from aaiclick.client.endpoints import SyncEndpoints
    from aaiclick.store.postgres_connections import Connection

T = TypeVar("T")

PREVIEW_ROWS = 10
PAGE_SIZE = 1_000
LINE_FORMATS = frozenset({"csv", "tsv", "jsonl"})
"""Formats with a line for each row, which is counted for the progress of an export."""


@click.group()
def data() -> None:
    """List, show and export Objects; drop unused tables.

    \b
    aaiclick data ls --named
    aaiclick data export daily daily.parquet
    """


@data.command("ls")
@click.option("--job", "job_id", type=JOB_ID, default=None, help="Only Objects referenced by this job.")
@click.option("--named", "only_named", is_flag=True, help="Only named Objects.")
@click.option("--state", type=click.Choice(get_args(ObjectState)), default=None, help="Only Objects in this state.")
@output_option
def list_objects(job_id: int | None, only_named: bool, state: ObjectState | None, output: str) -> None:
    """List Objects with their size and references."""
    with open_operations() as operations:
        objects = list(operations.list_objects(job_id=job_id, state=state, limit=PAGE_SIZE))
        if job_id is None and state is None:
            objects += operations.list_objects(state="missing", limit=PAGE_SIZE)
    rows = [item.model_dump() for item in objects if item.name is not None or not only_named]
    print_rows(rows, output, _table_row, _json_record, empty_message="No Objects found.")


@data.command("show")
@click.argument("name")
@output_option
def show_object(name: str, output: str) -> None:
    """Show an Object, by its name or table: columns, size, references and first rows."""
    with open_operations() as operations:
        details = _find_object(operations, name)
        rows = operations.preview_object(details.table_id, limit=PREVIEW_ROWS).rows
    record = details.model_dump()
    if output == "json":
        print_record(_json_record(record) | {"columns": record["columns"], "head": rows}, output)
        return
    print_record(_table_row(record), output)
    click.echo()
    print_records([{"column": column.name, "type": column.type} for column in details.columns], output)
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

    async def collect_local(connection: Connection, client: ClickHouseClient) -> dict[str, int]:
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
    with open_operations() as operations:
        schema = _find_object(operations, name)
        table = schema.table_id
        asyncio.run(_write_export(operations, table, schema.rows, path, chosen))
        rows = operations.get_object(table).rows
    print_message(f"{rows} rows written to {path}.")


@contextmanager
def _show_transfer(description: str, rows: int | None) -> Generator[Callable[[bytes], None]]:
    """Function that counts received parts in a progress bar: their lines, if the number of rows is given, or bytes.

    Without a terminal there is no bar.
    """
    if not sys.stderr.isatty():
        yield lambda _part: None
        return
    from aaiclick.cli.progress_bars import make_progress, make_transfer_progress  # slow import, only for a terminal

    if rows is None:
        with make_transfer_progress() as bars:
            bar_id = bars.add_task(description, total=None)
            yield lambda part: bars.advance(bar_id, len(part))
        return
    with make_progress() as bars:
        bar_id = bars.add_task(f"{description} rows", total=rows)
        yield lambda part: bars.advance(bar_id, part.count(b"\n"))
        bars.update(bar_id, completed=rows)  # a header or a value may have line breaks too


async def _write_export(operations: SyncEndpoints, table: str, rows: int, path: str, chosen: str | None) -> None:
    """Write the stream of an export; compression and destination are handled here."""

    async def read_chunks(file_format: str) -> AsyncGenerator[bytes]:
        chunks = operations.export_object(table, cast("FileFormat", file_format))
        with _show_transfer(path, rows if file_format in LINE_FORMATS else None) as advance:
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                yield chunk
                advance(chunk)

    if path.startswith(SCHEME):
        await write_s3(path, chosen, None, read_chunks)
    else:
        await write_file(path, chosen, read_chunks)


def _find_object(operations: SyncEndpoints, name: str) -> ObjectSchema:
    """Find an Object by name, then by table: a name may look like a table's."""
    for table in (NAMED + name, name):
        with suppress(NotFoundError, ObjectNotFoundError):
            return operations.get_object(table)
    raise NotFoundError(f"There is no Object {name!r}.", remedy="'aaiclick data ls' lists the Objects.")


def with_servers(operation: Callable[[Connection, ClickHouseClient], Awaitable[T]]) -> T:
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


async def _find_droppable(
    connection: Connection, client: ClickHouseClient, max_age_seconds: float
) -> list[dict[str, str]]:
    droppable: list[dict[str, str]] = []
    for org_id, org_client in (await tenant_clients(client)).items():
        unused = [
            entry.table_id
            for entry in await list_tables(connection, org_client, org_id=org_id)
            if entry.state == "unused"
        ]
        reasons = dict.fromkeys(unused, "unreferenced") | dict.fromkeys(
            await find_orphans(connection, org_client, max_age_seconds), "old orphaned table"
        )
        droppable += [
            {"database": org_client.endpoint.database, "table": name, "why": reason} for name, reason in reasons.items()
        ]
    return droppable


def _json_record(row: Row) -> Row:
    return select_fields(row, ObjectSummary.model_fields)


def _table_row(row: Row) -> Row:
    return {
        "name": row["name"] or row["table_id"],
        "state": row["state"],
        "rows": row["rows"],
        "bytes": row["bytes"],
        "references": row["references"],
        "owners": "; ".join(row["owners"]),
        "created": format_time(row["created_at"]),
        "changed": format_time(row["changed_at"]),
    }
