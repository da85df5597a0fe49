"""`aaiclick secrets`: manage secrets of an organisation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import format_time, with_database
from aaiclick.cli.org import NO_LIMIT
from aaiclick.cli.output import Row, output_option, print_message, print_row, print_rows, select_fields
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.client import requests
from aaiclick.client.requests import ApiRequest
from aaiclick.errors import RequestError
from aaiclick.settings import get_settings
from aaiclick.store.tenancy import secrets as org_secrets
from aaiclick.store.tenancy.orgs import find_org
from aaiclick.store.tenancy.secret_encryption import new_key
from aaiclick.store.tenancy.secrets import ListedSecret

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

JSON_FIELDS = ("name", "host", "source", "created_at", "updated_at")


@click.group()
def secrets() -> None:
    """Set, list and remove secrets of an organisation."""


@secrets.command(name="set")
@click.argument("name")
@click.option("--host", default=None, help="Send it to this host only, for example api.example.com.")
@org_option
@output_option
def set_secret(name: str, host: str | None, org: str, output: str) -> None:
    """Set a secret. Its value is read from standard input or a prompt, and is never shown again."""
    org_secrets.check_secret_name(name)
    value = _read_value()

    async def set_local(connection: Connection) -> Row:
        row = await find_org(connection, org)
        async with audited_transaction(connection):
            keys = await org_secrets.load_keys_for_writing(connection)
            stored = await org_secrets.set_secret(connection, row, name, value, host, keys)
            await write_audit(connection, row["id"], "secret.set", name, {"host": stored.host})
        return _secret_row(stored)

    def set_remote(client: Client) -> Row:
        body = {"value": value, "host": host}
        return remote.parse_times(client.call(ApiRequest("PUT", _secrets_path(client, org, name), body=body)))

    print_row(call_local_or_remote(set_local, set_remote), output, _table_row, _json_record)
    print_message(f"Use it in a DAG with: secrets: [{name}]")


@secrets.command("ls")
@org_option
@output_option
def list_secrets(org: str, output: str) -> None:
    """List secrets; values are not shown."""

    async def list_local(connection: Connection) -> list[Row]:
        listed_secrets = await org_secrets.list_secrets(connection, await find_org(connection, org), limit=NO_LIMIT)
        return [_secret_row(secret) for secret in listed_secrets]

    def list_remote(client: Client) -> list[Row]:
        return [remote.parse_times(item) for item in client.pages(requests.get(_secrets_path(client, org)))]

    print_rows(
        call_local_or_remote(list_local, list_remote),
        output,
        _table_row,
        _json_record,
        empty_message="No secrets found.",
    )


@secrets.command("rm")
@click.argument("name")
@org_option
def remove_secret(name: str, org: str) -> None:
    """Remove a secret. Tasks that use it fail from now on."""
    org_secrets.check_secret_name(name)

    async def remove_local(connection: Connection) -> None:
        org_id = (await find_org(connection, org))["id"]
        async with audited_transaction(connection):
            await org_secrets.delete_secret(connection, org_id, name)
            await write_audit(connection, org_id, "secret.remove", name)

    def remove_remote(client: Client) -> None:
        client.call(ApiRequest[None]("DELETE", _secrets_path(client, org, name)))

    call_local_or_remote(remove_local, remove_remote)
    print_message(f"Secret {name!r} removed.")


@secrets.command("key")
def print_new_key() -> None:
    """Print a new encryption key for AAICLICK_SECRETS_KEY."""
    click.echo(new_key())


@secrets.command("rotate")
def rotate_keys() -> None:
    """Re-encrypt all secrets of the installation with the newest key.

    Needs access to the databases. With AAICLICK_SECRETS_KEY: put the new key first, rotate, then remove the old one.
    Otherwise secrets.key in AAICLICK_HOME gets a new key.
    """
    from_environment = get_settings().secrets_key is not None

    async def rotate_local(connection: Connection) -> int:
        return await org_secrets.rotate_keys(connection, from_environment=from_environment)

    print_message(f"Encrypted with the newest key: {with_database(rotate_local)} secrets.")


def _read_value() -> str:
    """Read the value from a prompt or standard input; arguments are visible to other users of the machine."""
    if sys.stdin.isatty():
        return click.prompt("Value", hide_input=True, confirmation_prompt=True)
    value = sys.stdin.read()
    value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise RequestError("Standard input is empty.", remedy="For example: aaiclick secrets set NAME < file")
    return value


def _secrets_path(client: Client, org: str, *name: str) -> str:
    """Return the path for the API key's organisation, or the operator's path for another one."""
    org_id = remote.find_org_by_slug(client, org)["id"] if remote.is_explicit_org(org) else None
    if org_id is None or org_id == client.whoami()["org_id"]:
        return requests.build_path("secrets", *name) if name else "/v1/secrets"
    return requests.build_path("orgs", org_id, "secrets", *name)


def _secret_row(secret: ListedSecret) -> Row:
    return {name: getattr(secret, name) for name in JSON_FIELDS}


def _json_record(row: Row) -> Row:
    return select_fields(row, JSON_FIELDS)


def _table_row(row: Row) -> Row:
    return {
        "name": row["name"],
        "host": row["host"] or "",
        "source": row["source"],
        "created": format_time(row["created_at"]),
        "updated": format_time(row["updated_at"]),
    }
