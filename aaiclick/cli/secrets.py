"""`aaiclick secrets`: manage secrets of an organisation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aaiclick.api.field_types import parse_fields
from aaiclick.api.tenancy import SecretSummary, SetSecretRequest
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import format_time, with_database
from aaiclick.cli.local_and_remote_operations import open_org_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models
from aaiclick.errors import RequestError
from aaiclick.settings import get_settings
from aaiclick.store.tenancy import secrets as org_secrets
from aaiclick.store.tenancy.secret_encryption import new_key

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@click.group()
def secrets() -> None:
    """Set, list and remove secrets of an organisation.

    \b
    aaiclick secrets set SHOP_TOKEN
    aaiclick secrets ls
    """


@secrets.command(name="set")
@click.argument("name")
@click.option("--host", default=None, help="Send it to this host only, for example api.example.com.")
@org_option
@output_option
def set_secret(name: str, host: str | None, org: str, output: str) -> None:
    """Set a secret. Its value is read from standard input or a prompt, and is never shown again."""
    org_secrets.check_secret_name(name)
    secret = parse_fields(SetSecretRequest, {"value": _read_value(), "host": host})
    with open_org_operations(org) as (operations, other_org):
        if other_org is None:
            stored = operations.set_secret(name, secret)
        else:
            stored = operations.set_org_secret(other_org, name, secret)
    print_model(stored, output, _table_row)
    print_message(f"Use it in a DAG with: secrets: [{name}]")


@secrets.command("ls")
@org_option
@output_option
def list_secrets(org: str, output: str) -> None:
    """List secrets; values are not shown."""
    with open_org_operations(org) as (operations, other_org):
        listed = operations.list_secrets() if other_org is None else operations.list_org_secrets(other_org)
        print_models(listed, output, _table_row, empty_message="No secrets found.")


@secrets.command("rm")
@click.argument("name")
@org_option
def remove_secret(name: str, org: str) -> None:
    """Remove a secret. Tasks that use it fail from now on."""
    with open_org_operations(org) as (operations, other_org):
        if other_org is None:
            operations.delete_secret(name)
        else:
            operations.delete_org_secret(other_org, name)
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


def _table_row(secret: SecretSummary) -> Row:
    return {
        "name": secret.name,
        "host": secret.host or "",
        "source": secret.source,
        "created": format_time(secret.created_at),
        "updated": format_time(secret.updated_at),
    }
