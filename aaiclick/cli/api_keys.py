"""`aaiclick key`: API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import find_org_id, format_time
from aaiclick.cli.org import NO_LIMIT
from aaiclick.cli.output import Row, output_option, print_message, print_row, print_rows, select_fields
from aaiclick.cli.param_types import NAME, Number
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.client import requests
from aaiclick.client.requests import ApiRequest
from aaiclick.store.enums import DEFAULT_ORG_SLUG
from aaiclick.store.tenancy import api_keys
from aaiclick.store.tenancy.api_keys import SCOPES

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

JSON_FIELDS = (
    "id", "name", "prefix", "scopes", "user_id", "created_at", "last_used_at", "expires_at", "revoked_at",
)  # fmt: skip

org_option = click.option("--org", default=DEFAULT_ORG_SLUG, show_default=True, help="Slug of the organisation.")

every_org_option = click.option(
    "--org", default=None, help="Slug of the organisation [default: all, or that of the API key]."
)


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


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

    async def create_local(connection: Connection) -> tuple[str, Row]:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            seconds = None if days is None else days * 86_400
            created = await api_keys.create_key(
                connection, org_id=org_id, name=name, scopes=scopes, lifetime_seconds=seconds
            )
            await write_audit(connection, org_id, "key.create", created.row["prefix"])
        return created.text, dict(created.row)

    def create_remote(client: Client) -> tuple[str, Row]:
        body = {"name": name, "scopes": list(scopes), "lifetime_seconds": None if days is None else days * 86_400}
        org_id = remote.find_org_by_slug(client, org)["id"] if remote.is_explicit_org(org) else None
        is_own_org = org_id is None or org_id == client.whoami()["org_id"]
        created = remote.parse_row(
            client.call(requests.post("/v1/keys" if is_own_org else requests.build_path("orgs", org_id, "keys"), body))
        )
        return created["key"], created

    text, row = call_local_or_remote(create_local, create_remote)
    print_row(row, output, lambda row: {"key": text} | _table_row(row), lambda row: {"key": text} | _json_record(row))
    print_message("Store the key now: it is not shown again.")


@key.command("ls")
@org_option
@output_option
def list_keys(org: str, output: str) -> None:
    """List API keys; secrets are not shown."""

    async def list_local(connection: Connection) -> list[Row]:
        rows = await api_keys.list_keys(connection, await find_org_id(connection, org), limit=NO_LIMIT)
        return [dict(row) for row in rows]

    def list_remote(client: Client) -> list[Row]:
        remote.check_org(client, org)
        return remote.parse_rows(client.pages(requests.get("/v1/keys")))

    print_rows(
        call_local_or_remote(list_local, list_remote),
        output,
        _table_row,
        _json_record,
        empty_message="No API keys found.",
    )


@key.command("revoke")
@click.argument("key")
@org_option
def revoke_key(key: str, org: str) -> None:
    """Revoke an API key, by its prefix or id."""

    async def revoke_local(connection: Connection) -> str:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            api_key = await api_keys.find_key(connection, org_id, api_keys.parse_key_prefix(key))
            await api_keys.revoke_key(connection, org_id, api_key["id"])
            await write_audit(connection, org_id, "key.revoke", api_key["prefix"])
        return api_key["name"]

    def revoke_remote(client: Client) -> str:
        remote.check_org(client, org)
        api_keys_of_org = client.pages(requests.get("/v1/keys"))
        api_key = remote.find_by_fields(api_keys_of_org, api_keys.parse_key_prefix(key), ("prefix", "id"), "key")
        client.call(ApiRequest[None]("DELETE", requests.build_path("keys", api_key["id"])))
        return api_key["name"]

    print_message(f"API key {call_local_or_remote(revoke_local, revoke_remote)!r} revoked.")


def _json_record(row: Row) -> Row:
    return select_fields(row, JSON_FIELDS)


def _table_row(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "prefix": f"{api_keys.KEY_SCHEME}_{row['prefix']}",
        "scopes": ",".join(row["scopes"]),
        "created": format_time(row["created_at"]),
        "used": format_time(row["last_used_at"]),
        "expires": format_time(row["expires_at"]),
        "revoked": format_time(row["revoked_at"]),
    }
