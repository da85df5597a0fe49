"""`aaiclick data`: which Objects there are, who holds them, what they contain; and dropping what nobody needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment
from aaiclick.cli.kinds import ID, Number
from aaiclick.cli.output import Row, named, note, output_option, print_record, print_records, print_rows
from aaiclick.client import calls
from aaiclick.data import DataContext, Object, open_object, open_reference
from aaiclick.data.client import Client
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.data.export import write_file, write_s3
from aaiclick.data.formats import FORMATS
from aaiclick.data.inspect_values import to_json
from aaiclick.data.s3 import SCHEME
from aaiclick.data.tables import NAMED
from aaiclick.errors import NotFoundError
from aaiclick.local import find_both
from aaiclick.orchestration.inventory import Entry, forget_missing_names, inventory
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper, made_at_ms, orphans, tenant_clients
from aaiclick.settings import get_settings
from aaiclick.store.engine import connect
from aaiclick.store.migrate import prepare
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from aaiclick.client import Client as RemoteClient
    from aaiclick.store.engine import Connection

T = TypeVar("T")

ROWS = 10
NOTHING = "There are no such Objects."


@click.group()
def data() -> None:
    """List, show and export Objects; drop what nobody needs."""


@data.command()
@click.option("--job", "job_id", type=ID, default=None, help="Only what this job holds.")
@click.option("--named", "only_named", is_flag=True, help="Only Objects that have a name.")
@click.option("--state", type=click.Choice(["named", "live", "unused", "unknown", "missing"]), default=None,
              help="Only Objects in this state.")  # fmt: skip
@output_option
def ls(job_id: int | None, only_named: bool, state: str | None, output: str) -> None:
    """List Objects with their size and who holds them."""
    if remote.is_remote():
        if job_id is not None or state is not None:
            remote.refuse("--job or --state")
        with remote.open_client() as client:
            found = list(client.pages(calls.get("/v1/objects", limit=1_000)))
        kept = [remote.times(each) for each in found if each["name"] is not None or not only_named]
        print_rows(kept, output, _far_line, _far_facts, nothing=NOTHING)
        return
    entries = with_servers(lambda connection, client: inventory(connection, client, job_id=job_id))
    if only_named:
        entries = [entry for entry in entries if entry.name is not None]
    if state is not None:
        entries = [entry for entry in entries if entry.state == state]
    print_rows([_row(entry) for entry in entries], output, _line, _facts, nothing=NOTHING)


@data.command()
@click.argument("name")
@output_option
def show(name: str, output: str) -> None:
    """Show an Object, by its name or its table: columns, size, who holds it, the first rows."""

    if remote.is_remote():
        _show_from_afar(name, output)
        return

    async def work(connection: Connection, client: Client) -> tuple[Entry, list[Row], list[Row]]:
        entry = await _find(connection, client, name)
        async with DataContext(client.target):
            found = await _open(entry)
            columns = [{"name": column, "type": str(kind)} for column, kind in found.schema.items()]
            return entry, columns, [to_json(row) for row in await found.head(ROWS).rows()]

    entry, columns, rows = with_servers(work)
    line = _facts if output == "json" else _line
    _print_object(line(_row(entry)), columns, rows, output)


def _show_from_afar(name: str, output: str) -> None:
    with remote.open_client() as client:
        found = _find_from_afar(client, name)
        rows = client.call(calls.get(calls.named("objects", found["table_id"], "rows"), limit=ROWS))["rows"]
    line = _far_facts if output == "json" else _far_line
    _print_object(line(remote.times(found)), found["columns"], rows, output)


def _print_object(line: Row, columns: list[Row], rows: list[Row], output: str) -> None:
    if output == "json":
        print_record(line | {"columns": columns, "head": rows}, output)
        return
    print_record(line, output)
    click.echo()
    print_records([{"column": each["name"], "type": each["type"]} for each in columns], output)
    click.echo()
    print_records(rows, output, nothing="It has no rows.")


@data.command()
@click.option("--dry-run", is_flag=True, help="Say what would be dropped, and drop nothing.")
@click.option("--max-age-seconds", type=Number(0), default=3600.0, show_default=True,
              help="How long a table which nobody knows must have existed.")  # fmt: skip
@output_option
def gc(dry_run: bool, max_age_seconds: float, output: str) -> None:
    """Drop tables that nobody refers to, and old ones that nobody knows: one pass of cleanup and sweeper."""
    if remote.is_remote():
        remote.refuse("'data gc'")
    if dry_run:
        doomed = with_servers(lambda connection, client: _doomed(connection, client, max_age_seconds))
        print_records(doomed, output, nothing="Nothing would be dropped.")
        return

    async def work(connection: Connection, client: Client) -> dict[str, int]:
        postgres, clickhouse = find_both(get_settings())
        return {
            "released": await PgCleanupWorker(postgres=postgres, clickhouse=clickhouse).run_once(),
            "orphans": await TableSweeper(max_age_seconds, postgres=postgres, clickhouse=clickhouse).run_once(),
            "lost_names": await forget_missing_names(connection, client),
        }

    print_record(with_servers(work), output)


@data.command()
@click.argument("name")
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--format", "chosen", type=click.Choice(sorted(FORMATS)), default=None, help="[default: by the name]")
def export(name: str, path: str, chosen: str | None) -> None:
    """Write an Object, by its name or its table, to a file (or s3://bucket/key)."""
    if remote.is_remote():
        note(f"{asyncio.run(_export_from_afar(name, path, chosen))} rows are in {path}.")
        return

    async def work(connection: Connection, client: Client) -> int:
        entry = await _find(connection, client, name)
        async with DataContext(client.target):
            found = await _open(entry)
            await found.export(path, format=chosen)
            return await found.count()

    note(f"{with_servers(work)} rows are in {path}.")


async def _export_from_afar(name: str, path: str, chosen: str | None) -> int:
    """The server sends what ClickHouse writes; what is compressed, and where it goes, is decided here."""
    with remote.open_client() as client:
        found = await asyncio.to_thread(_find_from_afar, client, name)
    async with remote.open_async_client() as sender:
        table: str = found["table_id"]
        if path.startswith(SCHEME):
            await write_s3(path, chosen, None, lambda kind: sender.export_object(table, kind))
        else:
            await write_file(path, chosen, lambda kind: sender.export_object(table, kind))
        return (await sender.call(calls.get(calls.named("objects", table))))["rows"]


def _find_from_afar(client: RemoteClient, name: str) -> dict[str, Any]:
    """By name first: a name may look like a table's."""
    try:
        return client.call(calls.get(calls.named("objects", NAMED + name)))
    except NotFoundError:
        return client.call(calls.get(calls.named("objects", name)))


def _far_facts(row: Row) -> Row:
    return named(row, ("table_id", "name", "rows", "bytes", "changed_at"))


def _far_line(row: Row) -> Row:
    return {
        "name": row["name"] or row["table_id"],
        "rows": row["rows"],
        "bytes": row["bytes"],
        "changed": moment(row["changed_at"]),
    }


def with_servers(work: Callable[[Connection, Client], Awaitable[T]]) -> T:
    """Do something with both servers."""
    settings = get_settings()
    postgres, clickhouse = find_both(settings)

    async def run(postgres: PostgresTarget, clickhouse: ClickHouseTarget) -> T:
        await prepare(postgres, embedded=settings.postgres is None)
        connection = await connect(postgres)
        try:
            return await work(connection, await connect_clickhouse(clickhouse))
        finally:
            await connection.close()

    return asyncio.run(run(postgres, clickhouse))


async def _doomed(connection: Connection, client: Client, max_age_seconds: float) -> list[dict[str, Any]]:
    doomed: list[dict[str, Any]] = []
    for org_id, of_org in (await tenant_clients(client)).items():
        unused = [
            entry.table for entry in await inventory(connection, of_org, org_id=org_id) if entry.state == "unused"
        ]
        why = dict.fromkeys(unused, "nothing refers to it") | dict.fromkeys(
            await orphans(connection, of_org, max_age_seconds), "nobody knows it, and it is old"
        )
        doomed += [{"database": of_org.target.database, "table": name, "why": words} for name, words in why.items()]
    return doomed


async def _find(connection: Connection, client: Client, name: str) -> Entry:
    """By name first: a name may look like a table's."""
    entries = [entry for entry in await inventory(connection, client) if name in (entry.name, entry.table)]
    if not entries or entries[0].state == "missing":
        raise NotFoundError(f"There is no Object {name!r}.", remedy="'aaiclick data ls' lists those there are.")
    return min(entries, key=lambda entry: entry.name != name)


async def _open(entry: Entry) -> Object:
    if entry.name is not None:
        return await open_object(entry.name)
    return await open_reference({"object_type": "object", "table_id": entry.table})


def _row(entry: Entry) -> Row:
    return asdict(entry) | {"table_id": entry.table, "created_at": entry.created_at or _made(entry.table)}


def _facts(row: Row) -> Row:
    return named(row, ("table_id", "name", "state", "rows", "bytes", "references", "owners", "created_at"))


def _line(row: Row) -> Row:
    return {
        "name": row["name"] or row["table_id"],
        "state": row["state"],
        "rows": row["rows"],
        "bytes": row["bytes"],
        "references": row["references"],
        "owners": "; ".join(row["owners"]),
        "made": moment(row["created_at"]),
    }


def _made(table: str) -> datetime | None:
    made = made_at_ms(table)
    return None if made is None else datetime.fromtimestamp(made / 1000, UTC)
