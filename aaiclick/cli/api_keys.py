"""`aaiclick key`: API keys."""

from __future__ import annotations

import click

from aaiclick.api.field_types import parse_fields
from aaiclick.api.tenancy import ApiKey, CreatedKeyResponse, CreateKeyRequest
from aaiclick.cli.database import format_time
from aaiclick.cli.local_and_remote_operations import open_operations, open_org_operations
from aaiclick.cli.output import Row, output_option, print_message, print_model, print_models
from aaiclick.cli.param_types import NAME, Number
from aaiclick.store.enums import DEFAULT_ORG_SLUG
from aaiclick.store.tenancy.api_keys import KEY_SCHEME, SCOPES, parse_key_prefix

org_option = click.option(
    "--org", default=DEFAULT_ORG_SLUG, show_default=True, is_eager=True, help="Slug of the organisation."
)
"""Parsed first, since shortened ids are searched in the organisation."""

every_org_option = click.option(
    "--org", default=None, help="Slug of the organisation [default: all, or that of the API key]."
)


@click.group()
def key() -> None:
    """Create, list and revoke API keys.

    \b
    aaiclick key create laptop --scope writer
    aaiclick key ls
    """


@key.command("create")
@click.argument("name", type=NAME)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="Scope of the key; may be repeated.",
)
@click.option(
    "--days", type=Number(0, 3650, min_open=True), default=None, help="Days until the key expires [default: never]."
)
@org_option
@output_option
def create_key(name: str, scopes: tuple[str, ...], days: float | None, org: str, output: str) -> None:
    """Create an API key. It is shown only once."""
    seconds = None if days is None else days * 86_400
    new_key = parse_fields(CreateKeyRequest, {"name": name, "scopes": list(scopes), "lifetime_seconds": seconds})
    with open_org_operations(org) as (operations, other_org):
        created = operations.create_key(new_key) if other_org is None else operations.create_org_key(other_org, new_key)
    print_model(created, output, _created_row)
    print_message("Store the key now: it is not shown again.")


@key.command("ls")
@org_option
@output_option
def list_keys(org: str, output: str) -> None:
    """List API keys; secrets are not shown."""
    with open_operations(org) as operations:
        print_models(operations.list_keys(), output, _table_row, empty_message="No API keys found.")


@key.command("revoke")
@click.argument("key")
@org_option
def revoke_key(key: str, org: str) -> None:
    """Revoke an API key, by its prefix or id."""
    with open_operations(org) as operations:
        revoked = operations.revoke_key(parse_key_prefix(key))
    print_message(f"API key {revoked.name!r} revoked.")


def _created_row(key: CreatedKeyResponse) -> Row:
    return {"key": key.key} | _table_row(key)


def _table_row(key: ApiKey) -> Row:
    return {
        "id": str(key.id),
        "name": key.name,
        "prefix": f"{KEY_SCHEME}_{key.prefix}",
        "scopes": ",".join(key.scopes),
        "created": format_time(key.created_at),
        "used": format_time(key.last_used_at),
        "expires": format_time(key.expires_at),
        "revoked": format_time(key.revoked_at),
    }
