"""`aaiclick org`: organisations, as whoever runs the installation sees them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import click

from aaiclick.cli.database import moment, with_database
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.errors import UnreachableError
from aaiclick.local import clickhouse_target
from aaiclick.orchestration.tenants import Tenants
from aaiclick.store import control, orgs
from aaiclick.store.orgs import Limits

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

EVERYTHING = 100_000


@click.group()
def org() -> None:
    """List, make and limit organisations."""


@org.command()
@output_option
def ls(output: str) -> None:
    """List organisations."""

    async def work(connection: Connection) -> list[asyncpg.Record]:
        return await orgs.list_orgs(connection, limit=EVERYTHING)

    print_records([_line(row) for row in with_database(work)], output)


@org.command()
@click.argument("slug")
@click.option("--name", default=None, help="What people call it. [SLUG]")
@click.option("--weight", type=click.IntRange(1), default=1, show_default=True, help="Its share when several wait.")
@click.option("--max-running", type=click.IntRange(0), default=None, help="Tasks that may run at once.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=None, help="Tasks that may start per second.")
@output_option
def create(slug: str, name: str | None, weight: int, max_running: int | None, rate: float | None, output: str) -> None:
    """Make an organisation."""

    async def work(connection: Connection) -> asyncpg.Record:
        limits = Limits(weight, max_running, rate)
        made = await orgs.create_org(connection, name=name or slug, slug=slug, limits=limits)
        with suppress(UnreachableError):  # whoever needs its ClickHouse database first makes it then
            await Tenants(await clickhouse_target()).ready(made["id"])
        return made

    print_records([_line(with_database(work))], output)
    note(f"Its first key: aaiclick key create --org {slug} --scope admin NAME")


@org.command()
@click.argument("slug")
def pause(slug: str) -> None:
    """Let nothing more of an organisation begin."""

    async def work(connection: Connection) -> None:
        await control.pause_org(connection, await org_id_of(connection, slug))

    with_database(work)
    note(f"Organisation {slug!r} is paused: aaiclick org resume {slug}")


@org.command()
@click.argument("slug")
def resume(slug: str) -> None:
    """Let a paused organisation go on."""

    async def work(connection: Connection) -> None:
        await control.resume_org(connection, await org_id_of(connection, slug))

    with_database(work)
    note(f"Organisation {slug!r} goes on.")


async def org_id_of(connection: Connection, slug: str) -> UUID:
    """The id of an organisation by its slug."""
    return (await orgs.find_org(connection, slug))["id"]


def _line(row: asyncpg.Record) -> dict[str, object]:
    return {
        "slug": row["slug"],
        "name": row["name"],
        "id": str(row["id"]),
        "weight": row["weight"],
        "max_running": row["max_running"],
        "rate": row["rate_per_second"],
        "paused": moment(row["paused_at"]),
        "created": moment(row["created_at"]),
    }
