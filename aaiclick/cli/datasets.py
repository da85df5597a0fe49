"""`aaiclick datasets`: list, show, query and remake what DAGs make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aaiclick.catalog import datasets as catalog
from aaiclick.catalog.queries.dataset_sql import Limits
from aaiclick.catalog.registration import register_range
from aaiclick.cli import remote
from aaiclick.cli.clickhouse import clickhouse_of
from aaiclick.cli.database import first_line, moment, org_id_of, seconds
from aaiclick.cli.deeds import do, note_deed, recorded
from aaiclick.cli.key import org_option
from aaiclick.cli.kinds import POSITION, Number
from aaiclick.cli.output import Row, named, note, output_option, print_record, print_records, print_rows
from aaiclick.cli.remote import reach
from aaiclick.cli.watching import see_through
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.data.inspect_values import to_json
from aaiclick.errors import EXIT_FAILED
from aaiclick.orchestration import JobStatus, OrchContext, get_job
from aaiclick.store import catalog_datasets as store
from aaiclick.store.catalog_datasets import Reader, VersionRange

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

GENERATION = ("id", "created_at", "updated_at", "schema_hash", "range_start", "range_end", "serving")
MOST_BYTES = 1 << 30
RUN = ("id", "job_id", "status", "started_at", "completed_at", "error")

C = TypeVar("C", bound=Callable[..., Any])


def reading(function: C) -> C:
    """`--org` and `--as` for commands that read."""
    as_option = click.option(
        "--as",
        "user",
        default=None,
        metavar="USER",
        help="Read as this user, by its external id [default: as the owner].",
    )
    return org_option(as_option(function))


@click.group()
def datasets() -> None:
    """List, show, query and remake datasets."""


@datasets.command()
@reading
@output_option
def ls(org: str, user: str | None, output: str) -> None:
    """List datasets."""

    async def work(connection: Connection) -> list[Row]:
        rows = await store.visible(connection, await _reader(connection, org, user))
        return [dict(row) | _maker(row) for row in rows]

    rows = reach(work, lambda client: remote.rows(_as_key(client, org, user).datasets()))
    print_rows(rows, output, _dataset, _facts, nothing="There are no datasets that may be read.")


@datasets.command()
@click.argument("name")
@reading
@output_option
def show(name: str, org: str, user: str | None, output: str) -> None:
    """Show a dataset: columns, generations and the tasks that made it."""

    async def work(connection: Connection) -> Row:
        reader = await _reader(connection, org, user)
        row = await store.find_dataset(connection, reader, name)
        layout = catalog.layout_of(row)
        return {**row, **_maker(row)} | {
            "rows": None if layout is None else await catalog.count_rows(await clickhouse_of(reader.org_id), row),
            "columns": [{"name": column, "type": kind} for column, kind in (layout.columns if layout else ())],
            "generations": [dict(each) for each in await store.generations_of(connection, row["id"])],
            "runs": [dict(each) for each in await store.runs_of(connection, row["id"])],
        }

    def ask(client: Client) -> Row:
        found = remote.row(_as_key(client, org, user).get_dataset(name))
        return found | {part: remote.rows(found[part]) for part in ("generations", "runs")}

    found = reach(work, ask)
    if output == "json":
        print_record(_detail(found), output)
    else:
        print_records(_lines(found), output)


def _detail(found: Row) -> Row:
    return _facts(found) | {
        "columns": found["columns"],
        "generations": [named(each, GENERATION) for each in found["generations"]],
        "runs": [named(each, RUN) for each in found["runs"]],
    }


def _lines(found: Row) -> list[Row]:
    """All that is known of a dataset, in one table."""
    lines = [_line("dataset", found["name"], f"made by {found['dag']}.{found['job']}")]
    if found["columns"]:
        lines.append(_line("rows", found["rows"], f"updated {moment(found['updated_at'])}"))
        lines += [_line("column", each["name"], each["type"]) for each in found["columns"]]
    for each in found["generations"]:
        state = "serves" if each["serving"] else "kept"
        made = f"made {moment(each['created_at'])}, updated {moment(each['updated_at']) or 'never'}"
        detail = f"{state}; {made}; schema {_short(each['schema_hash'])}"
        lines.append(_line("generation", str(each["id"])[:8], detail))
    for task in found["runs"]:
        took = seconds(task["started_at"], task["completed_at"])
        lines.append(_line("task", task["id"], f"{task['status']} {took} {first_line(task['error'])}".strip()))
    return lines


@datasets.command()
@click.argument("name")
@click.option("--down", is_flag=True, help="What is made from it, instead of what it is made from.")
@click.option("--columns", is_flag=True, help="Column by column.")
@reading
@output_option
def lineage(name: str, down: bool, columns: bool, org: str, user: str | None, output: str) -> None:
    """Show what a dataset is made from, or what is made from it."""

    direction = "down" if down else "up"

    async def work(connection: Connection) -> Row:
        return asdict(await catalog.lineage(connection, await _reader(connection, org, user), name, direction))

    graph = reach(work, lambda client: _as_key(client, org, user).lineage(name, direction))
    print_rows(graph["columns" if columns else "edges"], output, _edge, dict)


@datasets.command()
@click.argument("sql")
@click.option("--max-rows", type=click.IntRange(1, 10_000_000), default=Limits().result_rows, show_default=True,
              help="An error if the result has more.")  # fmt: skip
@click.option("--seconds", "time_limit", type=Number(0.1), default=Limits().seconds, show_default=True,
              help="An error if it takes longer.")  # fmt: skip
@reading
@output_option
def query(sql: str, max_rows: int, time_limit: float, org: str, user: str | None, output: str) -> None:
    """Run one SELECT over datasets by their names."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        reader = await _reader(connection, org, user)
        limits = Limits(time_limit, max_rows, MOST_BYTES, MOST_BYTES)
        clickhouse = await clickhouse_of(reader.org_id)
        found = await catalog.query(connection, clickhouse, reader, sql, limits)
        return [to_json(row) for row in found.to_pylist()]

    def ask(client: Client) -> list[Row]:
        return _as_key(client, org, user).query(sql, max_rows=max_rows, seconds=time_limit)

    print_records(reach(work, ask), output, nothing="No rows.")


@datasets.command()
@click.argument("name")
@click.argument("roles", nargs=-1)
@org_option
def readers(name: str, roles: tuple[str, ...], org: str) -> None:
    """Say which roles may read a dataset; none: only admins."""

    wanted = {"roles": sorted(set(roles))}
    do(
        org,
        "dataset.readers",
        name,
        lambda connection, name, org_id: store.set_read_roles(connection, org_id, name, roles),
        lambda client: client.call(Call("PUT", calls.named("datasets", name, "readers"), body=wanted)),
        wanted,
    )
    note(f"{name} is read by {', '.join(wanted['roles']) or 'admins only'}.")


@datasets.command()
@click.argument("name")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Watch it to its end.")
@org_option
@output_option
def rematerialize(name: str, wait: bool, org: str, output: str) -> int:
    """Make a dataset again, and everything that is made from it. Readers see the old rows until the new are there."""
    if remote.is_remote():
        with remote.open_client() as client:
            job_id = _as_key(client, org).rematerialize(name)
            status = (remote.watch(client, job_id) if wait else client.get_job(job_id))["status"]
    else:
        job_id, status = asyncio.run(_rematerialize(name, wait, org))
    print_record({"job": str(job_id), "status": status}, output)
    return EXIT_FAILED if status in (JobStatus.FAILED.value, JobStatus.CANCELLED.value) else 0


async def _rematerialize(name: str, wait: bool, org: str) -> tuple[int, str]:
    async with OrchContext() as context, context.connection() as connection:
        org_id = await org_id_of(connection, org)
        found = await store.find_dataset(connection, Reader(org_id, None), name)
        async with recorded(connection):
            job_id = await store.rematerialize(connection, org_id, found["id"], name)
            await note_deed(connection, org_id, "dataset.rematerialize", name, {"job": str(job_id)})
        if wait:
            await see_through(context, job_id)
        return job_id, (await get_job(job_id)).status.value


@datasets.command()
@click.argument("name")
@click.option(
    "--range", "bounds", nargs=2, type=POSITION, default=(None, None), metavar="FIRST LAST", help="Its positions."
)
@click.option("--location", default=None, metavar="PREFIX", help="Prefix and glob of its files, if it has its own.")
@org_option
@output_option
def register(name: str, bounds: tuple[int | None, int | None], location: str | None, org: str, output: str) -> None:
    """Register a version of a dataset by its range; registered twice, it is there once."""

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            made = await register_range(connection, Reader(org_id, None), name, VersionRange(*bounds), location)
            if made.created:
                detail = {"version": str(made.id), "range": str(VersionRange(*bounds)), "location": location}
                await note_deed(connection, org_id, "dataset.register", name, detail)
        return asdict(made)

    def ask(client: Client) -> Row:
        wanted = {"range_start": bounds[0], "range_end": bounds[1], "storage_location": location}
        call = calls.post(calls.named("datasets", name, "versions"), wanted)
        return remote.row(_as_key(client, org).call(call))

    found = reach(work, ask)
    job_id = found["job_id"]
    record = {"id": str(found["id"]), "created": found["created"], "job_id": None if job_id is None else str(job_id)}
    print_record(record, output)


def _maker(row: Any) -> Row:
    return {"dag": row["producer_dag_name"], "job": row["producer_job_name"]}


def _as_key(client: Client, org: str, user: str | None = None) -> Client:
    """From afar one reads as whoever the key stands for."""
    if user is not None:
        remote.refuse("--as")
    remote.check_org(client, org)
    return client


async def _reader(connection: Connection, org: str, user: str | None) -> Reader:
    org_id = await org_id_of(connection, org)
    return Reader(org_id, None) if user is None else await store.reader_of(connection, org_id, user)


def _facts(row: Row) -> Row:
    return named(row, ("name", "dag", "job", "rows", "updated_at", "read_roles"))


def _dataset(row: Row) -> Row:
    return {
        "name": row["name"],
        "made by": f"{row['dag']}.{row['job']}",
        "rows": row["rows"],
        "updated": moment(row["updated_at"]),
        "read by": ", ".join(row["read_roles"]),
    }


def _edge(row: Row) -> Row:
    """From where, by which job if that is known, to where."""
    return {{"source": "from", "target": "to"}.get(name, name): value for name, value in row.items()}


def _line(what: str, name: object, detail: str) -> dict[str, Any]:
    return {"what": what, "name": name, "detail": detail}


def _short(text: str | None) -> str:
    return (text or "unknown")[:12]
