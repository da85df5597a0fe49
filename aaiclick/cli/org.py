"""`aaiclick org`: organisations, as whoever runs the installation sees them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.cli.kinds import NAME
from aaiclick.cli.limits import given, limit_options
from aaiclick.cli.output import Row, named, note, output_option, print_row, print_rows
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.errors import UnreachableError
from aaiclick.local import clickhouse_target
from aaiclick.orchestration.tenants import Tenants
from aaiclick.store import control, orgs
from aaiclick.store.orgs import Limits
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

EVERYTHING = 100_000
NAMES = (
    "id", "slug", "name", "weight", "max_running", "rate_per_second", "rate_burst", "paused_at", "created_at",
)  # fmt: skip
SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def _slug(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if SLUG.fullmatch(text) is None:
        raise click.BadParameter(
            "a slug is of small letters, digits, '-' and '_', and begins with a letter or a digit."
        )
    return text


new_slug = click.argument("slug", callback=_slug)


@click.group()
def org() -> None:
    """List, make and limit organisations."""


@org.command()
@output_option
def ls(output: str) -> None:
    """List organisations."""

    async def work(connection: Connection) -> list[Row]:
        return [dict(row) for row in await orgs.list_orgs(connection, limit=EVERYTHING)]

    rows = reach(work, lambda client: remote.rows(client.pages(calls.get("/v1/orgs"))))
    print_rows(rows, output, _line, _facts)


@org.command()
@new_slug
@click.option("--name", type=NAME, default=None, help="What people call it. [SLUG]")
@limit_options
@output_option
def create(slug: str, name: str | None, limits: Limits, output: str) -> None:
    """Make an organisation."""

    async def work(connection: Connection) -> Row:
        async with recorded(connection):
            made = await orgs.create_org(connection, name=name or slug, slug=slug, limits=limits)
            await note_deed(connection, DEFAULT_ORG_ID, "org.create", str(made["id"]), {"slug": slug})
        with suppress(UnreachableError):  # whoever needs its ClickHouse database first makes it then
            await Tenants(await clickhouse_target()).ready(made["id"])
        return dict(made)

    body = {"slug": slug, "name": name or slug} | given(limits)
    made = reach(work, lambda client: remote.row(client.call(calls.post("/v1/orgs", body))))
    print_row(made, output, _line, _facts)
    note(f"Its first key: aaiclick key create --org {slug} --scope admin NAME")


@org.command("set")
@click.argument("slug")
@click.option("--name", type=NAME, default=None, help="What people call it [default: as before].")
@limit_options
@output_option
def change(slug: str, name: str | None, limits: Limits, output: str) -> None:
    """Give an organisation its share and its limits; what is left out is lifted."""

    async def work(connection: Connection) -> Row:
        async with recorded(connection):
            before = await orgs.find_org(connection, slug)
            called = name or before["name"]
            changed = await orgs.change_org(connection, before["id"], name=called, limits=limits)
            detail = {"name": called} | given(limits)
            await note_deed(connection, DEFAULT_ORG_ID, "org.change", str(before["id"]), detail)
        return dict(changed)

    def ask(client: Client) -> Row:
        before = remote.org_named(client, slug)
        body = {"name": name or before["name"]} | given(limits)
        return remote.row(client.call(Call("PUT", calls.named("orgs", before["id"]), body=body)))

    print_row(reach(work, ask), output, _line, _facts)


@org.command()
@click.argument("slug")
def pause(slug: str) -> None:
    """Let nothing more of an organisation begin."""

    async def work(connection: Connection) -> None:
        org_id = await org_id_of(connection, slug)
        async with recorded(connection):
            await control.pause_org(connection, org_id)
            await note_deed(connection, DEFAULT_ORG_ID, "org.pause", str(org_id))

    reach(work, lambda client: _tell(client, slug, "pause"))
    note(f"Organisation {slug!r} is paused: aaiclick org resume {slug}")


@org.command()
@click.argument("slug")
def resume(slug: str) -> None:
    """Let a paused organisation go on."""

    async def work(connection: Connection) -> None:
        org_id = await org_id_of(connection, slug)
        async with recorded(connection):
            await control.resume_org(connection, org_id)
            await note_deed(connection, DEFAULT_ORG_ID, "org.resume", str(org_id))

    reach(work, lambda client: _tell(client, slug, "resume"))
    note(f"Organisation {slug!r} goes on.")


def _tell(client: Client, slug: str, deed: str) -> None:
    client.call(calls.post(calls.named("orgs", remote.org_named(client, slug)["id"], deed)))


def _facts(row: Row) -> Row:
    return named(row, NAMES)


def _line(row: Row) -> Row:
    return {
        "slug": row["slug"],
        "name": row["name"],
        "id": str(row["id"]),
        "weight": row["weight"],
        "max_running": row["max_running"],
        "rate": row["rate_per_second"],
        "burst": row["rate_burst"],
        "paused": moment(row["paused_at"]),
        "created": moment(row["created_at"]),
    }
