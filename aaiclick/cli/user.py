"""`aaiclick user`: manage users of an identity provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import find_org_id, format_time
from aaiclick.cli.org import NO_LIMIT
from aaiclick.cli.output import Row, output_option, print_message, print_row, print_rows, select_fields
from aaiclick.cli.param_types import NAME, BoundedText
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.client import requests
from aaiclick.client.requests import ApiRequest
from aaiclick.store.tenancy import users
from aaiclick.store.tenancy.users import PLATFORM_ROLES

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.connections import Connection


@click.group()
def user() -> None:
    """Add, list, change and remove users."""


@user.command("create")
@click.argument("subject", type=BoundedText(500))
@click.option("--role", type=click.Choice(PLATFORM_ROLES), default="reader", show_default=True,
              help="Role in the organisation.")  # fmt: skip
@click.option("--email", type=NAME, default=None, help="E-mail address, for display.")
@org_option
@output_option
def create_user(subject: str, role: str, email: str | None, org: str, output: str) -> None:
    """Add a user. SUBJECT is the subject in the identity provider's tokens."""

    async def create_local(connection: Connection) -> Row:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            created = await users.create_user(connection, org_id, external_id=subject, role=role, email=email)
            await write_audit(connection, org_id, "user.create", str(created["id"]), {"role": role})
        return dict(created)

    def create_remote(client: Client) -> Row:
        remote.check_org(client, org)
        return remote.parse_times(
            client.call(requests.post("/v1/users", {"external_id": subject, "role": role, "email": email}))
        )

    print_row(call_local_or_remote(create_local, create_remote), output, _table_row, _json_record)


@user.command("ls")
@org_option
@output_option
def list_users(org: str, output: str) -> None:
    """List users."""

    async def list_local(connection: Connection) -> list[Row]:
        rows = await users.list_users(connection, await find_org_id(connection, org), limit=NO_LIMIT)
        return [dict(row) for row in rows]

    def list_remote(client: Client) -> list[Row]:
        remote.check_org(client, org)
        return [remote.parse_times(item) for item in client.pages(requests.get("/v1/users"))]

    print_rows(
        call_local_or_remote(list_local, list_remote),
        output,
        _table_row,
        _json_record,
        empty_message="No users found.",
    )


@user.command("set")
@click.argument("user")
@click.option(
    "--role", type=click.Choice(PLATFORM_ROLES), default=None, help="Role in the organisation [default: unchanged]."
)
@click.option("--email", type=BoundedText(allow_empty=True), default=None,
              help="E-mail address, '' for none [default: unchanged].")  # fmt: skip
@click.option(
    "--disabled/--enabled", default=None, help="Disable or enable the user and its API keys [default: unchanged]."
)
@org_option
@output_option
def update_user(user: str, role: str | None, email: str | None, disabled: bool | None, org: str, output: str) -> None:
    """Change a user, by its subject or id."""

    def build_update(current: Row) -> Row:
        return {
            "email": current["email"] if email is None else email or None,
            "role": role or current["role"],
            "disabled": current["disabled_at"] is not None if disabled is None else disabled,
        }

    async def update_local(connection: Connection) -> Row:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            user_row = dict(await users.get_user_by_name(connection, org_id, user))
            update = build_update(user_row)
            changed = await users.update_user(connection, org_id, user_row["id"], **update)
            detail = {name: update[name] for name in ("role", "disabled")}
            await write_audit(connection, org_id, "user.change", str(user_row["id"]), detail)
        return dict(changed)

    def update_remote(client: Client) -> Row:
        user_row = find_user_remote(client, org, user)
        return remote.parse_times(
            client.call(ApiRequest("PUT", requests.build_path("users", user_row["id"]), body=build_update(user_row)))
        )

    print_row(call_local_or_remote(update_local, update_remote), output, _table_row, _json_record)


@user.command("rm")
@click.argument("user")
@org_option
def remove_user(user: str, org: str) -> None:
    """Remove a user, by its subject or id, with its API keys and memberships."""

    async def remove_local(connection: Connection) -> None:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            user_row = await users.get_user_by_name(connection, org_id, user)
            await users.delete_user(connection, org_id, user_row["id"])
            await write_audit(connection, org_id, "user.delete", str(user_row["id"]))

    def remove_remote(client: Client) -> None:
        client.call(ApiRequest[None]("DELETE", requests.build_path("users", find_user_remote(client, org, user)["id"])))

    call_local_or_remote(remove_local, remove_remote)
    print_message(f"User {user} removed.")


def find_user_remote(client: Client, org: str, text: str) -> Row:
    """Find a user by its subject or id."""
    remote.check_org(client, org)
    org_users = [remote.parse_times(item) for item in client.pages(requests.get("/v1/users"))]
    return remote.find_by_fields(org_users, text, ("external_id", "id"), "user")


def _json_record(row: Row) -> Row:
    return select_fields(row, ("id", "external_id", "email", "role", "created_at", "disabled_at"))


def _table_row(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "subject": row["external_id"],
        "email": row["email"],
        "role": row["role"],
        "created": format_time(row["created_at"]),
        "disabled": format_time(row["disabled_at"]),
    }
