"""`aaiclick key`: API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.cli.kinds import NAME, Number
from aaiclick.cli.org import EVERYTHING
from aaiclick.cli.output import Row, named, note, output_option, print_row, print_rows
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.store import keys
from aaiclick.store.keys import SCOPES
from aaiclick.store.words import DEFAULT_ORG_SLUG

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

NAMES = (
    "id", "name", "prefix", "scopes", "user_id", "created_at", "last_used_at", "expires_at", "revoked_at",
)  # fmt: skip

org_option = click.option("--org", default=DEFAULT_ORG_SLUG, show_default=True, help="Slug of the organisation.")

every_org_option = click.option("--org", default=None, help="Slug of the organisation [default: of all, or the key's].")


@click.group()
def key() -> None:
    """Make, list and revoke API keys."""


@key.command()
@click.argument("name", type=NAME)
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True, required=True, help="Once or more often.")
@click.option("--days", type=Number(0, 3650, min_open=True), default=None, help="How long it opens anything.")
@org_option
@output_option
def create(name: str, scopes: tuple[str, ...], days: float | None, org: str, output: str) -> None:
    """Make a key and show it, this once."""

    async def work(connection: Connection) -> tuple[str, Row]:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            seconds = None if days is None else days * 86_400
            made = await keys.create_key(connection, org_id=org_id, name=name, scopes=scopes, lifetime_seconds=seconds)
            await note_deed(connection, org_id, "key.create", made.row["prefix"])
        return made.text, dict(made.row)

    def ask(client: Client) -> tuple[str, Row]:
        body = {"name": name, "scopes": list(scopes), "lifetime_seconds": None if days is None else days * 86_400}
        other = remote.org_named(client, org)["id"] if remote.is_meant(org) else None
        own = other is None or other == client.whoami()["org_id"]
        made = remote.row(client.call(calls.post("/v1/keys" if own else calls.named("orgs", other, "keys"), body)))
        return made["key"], made

    text, row = reach(work, ask)
    print_row(row, output, lambda row: {"key": text} | _line(row), lambda row: {"key": text} | _facts(row))
    note("Keep the key: it is not shown again.")


@key.command()
@org_option
@output_option
def ls(org: str, output: str) -> None:
    """List keys, without their secrets."""

    async def work(connection: Connection) -> list[Row]:
        rows = await keys.list_keys(connection, await org_id_of(connection, org), limit=EVERYTHING)
        return [dict(row) for row in rows]

    def ask(client: Client) -> list[Row]:
        remote.check_org(client, org)
        return remote.rows(client.pages(calls.get("/v1/keys")))

    print_rows(reach(work, ask), output, _line, _facts, nothing="There are no keys.")


@key.command()
@click.argument("key")
@org_option
def revoke(key: str, org: str) -> None:
    """Let a key, by its prefix or id, open nothing any more."""

    async def work(connection: Connection) -> str:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            found = await keys.key_named(connection, org_id, keys.prefix_of(key))
            await keys.revoke_key(connection, org_id, found["id"])
            await note_deed(connection, org_id, "key.revoke", found["prefix"])
        return found["name"]

    def ask(client: Client) -> str:
        remote.check_org(client, org)
        listed = client.pages(calls.get("/v1/keys"))
        found = remote.one_named(listed, keys.prefix_of(key), ("prefix", "id"), "key")
        client.call(Call("DELETE", calls.named("keys", found["id"])))
        return found["name"]

    note(f"The key {reach(work, ask)!r} is revoked.")


def _facts(row: Row) -> Row:
    return named(row, NAMES)


def _line(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "prefix": f"{keys.MARK}_{row['prefix']}",
        "scopes": ",".join(row["scopes"]),
        "created": moment(row["created_at"]),
        "used": moment(row["last_used_at"]),
        "expires": moment(row["expires_at"]),
        "revoked": moment(row["revoked_at"]),
    }
