"""`aaiclick org`: manage organisations, for operators."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import find_org_id, format_time
from aaiclick.cli.limit_options import limit_options, limits_body
from aaiclick.cli.output import Row, output_option, print_message, print_row, print_rows, select_fields
from aaiclick.cli.param_types import NAME
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.client import requests
from aaiclick.client.requests import ApiRequest
from aaiclick.errors import UnreachableError
from aaiclick.local import clickhouse_endpoint
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.store.engine import control
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy import orgs
from aaiclick.store.tenancy.orgs import ClaimLimits

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

NO_LIMIT = 100_000
JSON_FIELDS = (
    "id", "slug", "name", "weight", "max_running", "rate_per_second", "rate_burst", "paused_at", "created_at",
)  # fmt: skip
SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def _check_slug(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if SLUG.fullmatch(text) is None:
        raise click.BadParameter("use lower-case letters, digits, '-' and '_', starting with a letter or a digit.")
    return text


new_slug_argument = click.argument("slug", callback=_check_slug)


@click.group()
def org() -> None:
    """List, create and limit organisations."""


@org.command("ls")
@output_option
def list_orgs(output: str) -> None:
    """List organisations."""

    async def list_local(connection: Connection) -> list[Row]:
        return [dict(row) for row in await orgs.list_orgs(connection, limit=NO_LIMIT)]

    rows = call_local_or_remote(list_local, lambda client: remote.parse_rows(client.pages(requests.get("/v1/orgs"))))
    print_rows(rows, output, _table_row, _json_record)


@org.command("create")
@new_slug_argument
@click.option("--name", type=NAME, default=None, help="Display name [default: SLUG].")
@limit_options
@output_option
def create_org(slug: str, name: str | None, limits: ClaimLimits, output: str) -> None:
    """Create an organisation."""

    async def create_local(connection: Connection) -> Row:
        async with audited_transaction(connection):
            created = await orgs.create_org(connection, name=name or slug, slug=slug, limits=limits)
            await write_audit(connection, DEFAULT_ORG_ID, "org.create", str(created["id"]), {"slug": slug})
        with suppress(UnreachableError):  # its ClickHouse database is then created on first use
            await TenantDatabases(await clickhouse_endpoint()).ensure_database(created["id"])
        return dict(created)

    body = {"slug": slug, "name": name or slug} | limits_body(limits)
    created = call_local_or_remote(
        create_local, lambda client: remote.parse_row(client.call(requests.post("/v1/orgs", body)))
    )
    print_row(created, output, _table_row, _json_record)
    print_message(f"Create its first API key with: aaiclick key create --org {slug} --scope admin NAME")


@org.command("set")
@click.argument("slug")
@click.option("--name", type=NAME, default=None, help="Display name [default: unchanged].")
@limit_options
@output_option
def update_org(slug: str, name: str | None, limits: ClaimLimits, output: str) -> None:
    """Set the weight and limits of an organisation; limits that are not given are removed."""

    async def update_local(connection: Connection) -> Row:
        async with audited_transaction(connection):
            row = await orgs.find_org(connection, slug)
            new_name = name or row["name"]
            changed = await orgs.update_org(connection, row["id"], name=new_name, limits=limits)
            detail = {"name": new_name} | limits_body(limits)
            await write_audit(connection, DEFAULT_ORG_ID, "org.change", str(row["id"]), detail)
        return dict(changed)

    def update_remote(client: Client) -> Row:
        row = remote.find_org_by_slug(client, slug)
        body = {"name": name or row["name"]} | limits_body(limits)
        return remote.parse_row(client.call(ApiRequest("PUT", requests.build_path("orgs", row["id"]), body=body)))

    print_row(call_local_or_remote(update_local, update_remote), output, _table_row, _json_record)


@org.command("pause")
@click.argument("slug")
def pause_org(slug: str) -> None:
    """Pause an organisation: no further tasks start."""

    async def pause_local(connection: Connection) -> None:
        org_id = await find_org_id(connection, slug)
        async with audited_transaction(connection):
            await control.pause_org(connection, org_id)
            await write_audit(connection, DEFAULT_ORG_ID, "org.pause", str(org_id))

    call_local_or_remote(pause_local, lambda client: _post_action(client, slug, "pause"))
    print_message(f"Organisation {slug!r} paused. Resume it with: aaiclick org resume {slug}")


@org.command("resume")
@click.argument("slug")
def resume_org(slug: str) -> None:
    """Resume a paused organisation."""

    async def resume_local(connection: Connection) -> None:
        org_id = await find_org_id(connection, slug)
        async with audited_transaction(connection):
            await control.resume_org(connection, org_id)
            await write_audit(connection, DEFAULT_ORG_ID, "org.resume", str(org_id))

    call_local_or_remote(resume_local, lambda client: _post_action(client, slug, "resume"))
    print_message(f"Organisation {slug!r} resumed.")


def _post_action(client: Client, slug: str, action: str) -> None:
    client.call(requests.post(requests.build_path("orgs", remote.find_org_by_slug(client, slug)["id"], action)))


def _json_record(row: Row) -> Row:
    return select_fields(row, JSON_FIELDS)


def _table_row(row: Row) -> Row:
    return {
        "slug": row["slug"],
        "name": row["name"],
        "id": str(row["id"]),
        "weight": row["weight"],
        "max_running": row["max_running"],
        "rate": row["rate_per_second"],
        "burst": row["rate_burst"],
        "paused": format_time(row["paused_at"]),
        "created": format_time(row["created_at"]),
    }
