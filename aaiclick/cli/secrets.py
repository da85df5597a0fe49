"""`aaiclick secrets`: secrets that an organisation's tasks may use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, with_database
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.cli.key import org_option
from aaiclick.cli.org import EVERYTHING
from aaiclick.cli.output import Row, named, note, output_option, print_row, print_rows
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.errors import RequestError
from aaiclick.settings import get_settings
from aaiclick.store import org_secrets
from aaiclick.store.org_secrets import ListedSecret
from aaiclick.store.orgs import find_org
from aaiclick.store.secret_keys import new_key

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

NAMES = ("name", "host", "source", "created_at", "updated_at")


@click.group()
def secrets() -> None:
    """Set, list and remove secrets of an organisation."""


@secrets.command(name="set")
@click.argument("name")
@click.option("--host", default=None, help="Send it to this host only, for example api.example.com.")
@org_option
@output_option
def set_(name: str, host: str | None, org: str, output: str) -> None:
    """Set a secret. Its value is read from standard input, or asked for; it is never shown again."""
    org_secrets.check_name(name)
    value = _read_value()

    async def work(connection: Connection) -> Row:
        row = await find_org(connection, org)
        async with recorded(connection):
            keys = await org_secrets.keys_for_writing(connection)
            done = await org_secrets.set_secret(connection, row, name, value, host, keys)
            await note_deed(connection, row["id"], "secret.set", name, {"host": done.host})
        return _row(done)

    def ask(client: Client) -> Row:
        body = {"value": value, "host": host}
        return remote.times(client.call(Call("PUT", _path(client, org, name), body=body)))

    print_row(reach(work, ask), output, _line, _facts)
    note(f"A DAG uses it by name: secrets: [{name}]")


@secrets.command()
@org_option
@output_option
def ls(org: str, output: str) -> None:
    """List secrets, without their values."""

    async def work(connection: Connection) -> list[Row]:
        found = await org_secrets.list_secrets(connection, await find_org(connection, org), limit=EVERYTHING)
        return [_row(each) for each in found]

    def ask(client: Client) -> list[Row]:
        return [remote.times(each) for each in client.pages(calls.get(_path(client, org)))]

    print_rows(reach(work, ask), output, _line, _facts, nothing="There are no secrets.")


@secrets.command()
@click.argument("name")
@org_option
def rm(name: str, org: str) -> None:
    """Remove a secret: tasks that use it fail from now on."""
    org_secrets.check_name(name)

    async def work(connection: Connection) -> None:
        org_id = (await find_org(connection, org))["id"]
        async with recorded(connection):
            await org_secrets.delete_secret(connection, org_id, name)
            await note_deed(connection, org_id, "secret.remove", name)

    def ask(client: Client) -> None:
        client.call(Call("DELETE", _path(client, org, name)))

    reach(work, ask)
    note(f"The secret {name!r} is removed.")


@secrets.command()
def key() -> None:
    """Print a new key for AAICLICK_SECRETS_KEY."""
    click.echo(new_key())


@secrets.command()
def rotate() -> None:
    """Encrypt all secrets of the installation with the newest key, where the databases are.

    Keys of AAICLICK_SECRETS_KEY: put the new one first, rotate, then take the old one away. Else secrets.key in
    AAICLICK_HOME gets a new key.
    """
    from_environment = get_settings().secrets_key is not None

    async def work(connection: Connection) -> int:
        return await org_secrets.rotate_keys(connection, from_environment=from_environment)

    note(f"Encrypted with the newest key: {with_database(work)} secrets.")


def _read_value() -> str:
    """The value, never out of the arguments: other users of the machine see those."""
    if sys.stdin.isatty():
        return click.prompt("Value", hide_input=True, confirmation_prompt=True)
    value = sys.stdin.read()
    value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise RequestError("Standard input has no value.", remedy="For example: aaiclick secrets set NAME < file")
    return value


def _path(client: Client, org: str, *name: str) -> str:
    """The route of the key's organisation, or the operator's route to another."""
    other = remote.org_named(client, org)["id"] if remote.is_meant(org) else None
    if other is None or other == client.whoami()["org_id"]:
        return calls.named("secrets", *name) if name else "/v1/secrets"
    return calls.named("orgs", other, "secrets", *name)


def _row(secret: ListedSecret) -> Row:
    return {each: getattr(secret, each) for each in NAMES}


def _facts(row: Row) -> Row:
    return named(row, NAMES)


def _line(row: Row) -> Row:
    return {
        "name": row["name"],
        "host": row["host"] or "",
        "source": row["source"],
        "created": moment(row["created_at"]),
        "updated": moment(row["updated_at"]),
    }
