"""`aaiclick datasets`: list, show, query and remake what DAGs make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aaiclick.catalog import datasets as catalog
from aaiclick.catalog.queries.dataset_sql import Limits
from aaiclick.cli.database import first_line, moment, seconds, with_database
from aaiclick.cli.key import org_option
from aaiclick.cli.org import org_id_of
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.cli.run import see_through
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.errors import EXIT_FAILED
from aaiclick.local import clickhouse_target
from aaiclick.orchestration import JobStatus, OrchContext, get_job
from aaiclick.store import catalog_datasets as store
from aaiclick.store.catalog_datasets import Reader

if TYPE_CHECKING:
    from aaiclick.data.client import Client
    from aaiclick.store.engine import Connection

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

    async def work(connection: Connection) -> list[dict[str, Any]]:
        return [
            {
                "name": row["name"],
                "made by": f"{row['producer_dag_name']}.{row['producer_job_name']}",
                "rows": row["rows"],
                "updated": moment(row["updated_at"]),
                "read by": ", ".join(row["read_roles"]),
            }
            for row in await store.visible(connection, await _reader(connection, org, user))
        ]

    print_records(with_database(work), output)


@datasets.command()
@click.argument("name")
@reading
@output_option
def show(name: str, org: str, user: str | None, output: str) -> None:
    """Show a dataset: columns, generations and the tasks that made it."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        row = await store.find_dataset(connection, await _reader(connection, org, user), name)
        layout = catalog.layout_of(row)
        lines = [_line("dataset", row["name"], f"made by {row['producer_dag_name']}.{row['producer_job_name']}")]
        if layout is not None:
            rows = await catalog.count_rows(await _clickhouse(), row)
            lines.append(_line("rows", rows, f"updated {moment(row['updated_at'])}"))
            lines += [_line("column", column, kind) for column, kind in layout.columns]
        for each in await store.generations_of(connection, row["id"]):
            state = "serves" if each["serving"] else "kept"
            made = f"made {moment(each['created_at'])}, updated {moment(each['updated_at']) or 'never'}"
            detail = f"{state}; {made}; schema {_short(each['schema_hash'])}"
            lines.append(_line("generation", str(each["id"])[:8], detail))
        for task in await store.runs_of(connection, row["id"]):
            took = seconds(task["started_at"], task["completed_at"])
            lines.append(_line("task", task["id"], f"{task['status']} {took} {first_line(task['error'])}".strip()))
        return lines

    print_records(with_database(work), output)


@datasets.command()
@click.argument("name")
@click.option("--down", is_flag=True, help="What is made from it, instead of what it is made from.")
@click.option("--columns", is_flag=True, help="Column by column.")
@reading
@output_option
def lineage(name: str, down: bool, columns: bool, org: str, user: str | None, output: str) -> None:
    """Show what a dataset is made from, or what is made from it."""

    async def work(connection: Connection) -> catalog.Graph:
        reader = await _reader(connection, org, user)
        return await catalog.lineage(connection, reader, name, "down" if down else "up")

    graph = with_database(work)
    if columns:
        print_records([{"from": each.source, "to": each.target} for each in graph.columns], output)
    else:
        print_records([{"from": each.source, "job": each.job, "to": each.target} for each in graph.edges], output)


@datasets.command()
@click.argument("sql")
@click.option("--max-rows", type=click.IntRange(1, 10_000_000), default=Limits().result_rows, show_default=True,
              help="An error if the result has more.")  # fmt: skip
@click.option("--seconds", "time_limit", type=click.FloatRange(0.1), default=Limits().seconds, show_default=True,
              help="An error if it takes longer.")  # fmt: skip
@reading
@output_option
def query(sql: str, max_rows: int, time_limit: float, org: str, user: str | None, output: str) -> None:
    """Run one SELECT over datasets by their names."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        reader = await _reader(connection, org, user)
        limits = Limits(seconds=time_limit, result_rows=max_rows)
        return (await catalog.query(connection, await _clickhouse(), reader, sql, limits)).to_pylist()

    print_records(with_database(work), output)


@datasets.command()
@click.argument("name")
@click.argument("roles", nargs=-1)
@org_option
def readers(name: str, roles: tuple[str, ...], org: str) -> None:
    """Say which roles may read a dataset; none: only admins."""

    async def work(connection: Connection) -> None:
        await store.set_read_roles(connection, await org_id_of(connection, org), name, roles)

    with_database(work)
    note(f"{name} is read by {', '.join(sorted(set(roles))) or 'admins only'}.")


@datasets.command()
@click.argument("name")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Watch it to its end.")
@org_option
@output_option
def rematerialize(name: str, wait: bool, org: str, output: str) -> int:
    """Make a dataset again, and everything that is made from it. Readers see the old rows until the new are there."""
    job_id, status = asyncio.run(_rematerialize(name, wait, org))
    print_records([{"job": str(job_id), "status": status}], output)
    return EXIT_FAILED if status in (JobStatus.FAILED.value, JobStatus.CANCELLED.value) else 0


async def _rematerialize(name: str, wait: bool, org: str) -> tuple[int, str]:
    async with OrchContext() as context, context.connection() as connection:
        org_id = await org_id_of(connection, org)
        found = await store.find_dataset(connection, Reader(org_id, None), name)
        job_id = await store.rematerialize(connection, org_id, found["id"], name)
        if wait:
            await see_through(context, job_id)
        return job_id, (await get_job(job_id)).status.value


async def _reader(connection: Connection, org: str, user: str | None) -> Reader:
    org_id = await org_id_of(connection, org)
    return Reader(org_id, None) if user is None else await store.reader_of(connection, org_id, user)


async def _clickhouse() -> Client:
    return await connect_clickhouse(await clickhouse_target())


def _line(what: str, name: object, detail: str) -> dict[str, Any]:
    return {"what": what, "name": name, "detail": detail}


def _short(text: str | None) -> str:
    return (text or "unknown")[:12]
