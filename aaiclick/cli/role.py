"""`aaiclick role`: manage dataset roles of an organisation and their members."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import find_org_id, format_time
from aaiclick.cli.org import NO_LIMIT, new_slug_argument
from aaiclick.cli.output import Row, output_option, print_message, print_row, print_rows, select_fields
from aaiclick.cli.param_types import NAME
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.cli.user import find_user_remote
from aaiclick.client import requests
from aaiclick.client.requests import ApiRequest
from aaiclick.store.tenancy import users

if TYPE_CHECKING:
    from uuid import UUID

    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

ROLE = click.argument("role")
USER = click.argument("user")


@click.group()
def role() -> None:
    """Create, list and remove roles; grant and revoke them."""


@role.command("ls")
@org_option
@output_option
def list_roles(org: str, output: str) -> None:
    """List roles."""

    async def list_local(connection: Connection) -> list[Row]:
        role_rows = await users.list_roles(connection, await find_org_id(connection, org), limit=NO_LIMIT)
        return [dict(row) for row in role_rows]

    rows = call_local_or_remote(list_local, lambda client: _load_roles_remote(client, org))
    print_rows(rows, output, _table_row, _json_record, empty_message="No roles found.")


@role.command("create")
@new_slug_argument
@click.option("--name", type=NAME, default=None, help="Display name [default: SLUG].")
@org_option
@output_option
def create_role(slug: str, name: str | None, org: str, output: str) -> None:
    """Create a role. Set the datasets it may read with 'aaiclick datasets readers'."""

    async def create_local(connection: Connection) -> Row:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            created = await users.create_role(connection, org_id, slug=slug, name=name or slug)
            await write_audit(connection, org_id, "role.create", str(created["id"]), {"slug": slug})
        return dict(created)

    def create_remote(client: Client) -> Row:
        remote.check_org(client, org)
        return remote.parse_times(client.call(requests.post("/v1/roles", {"slug": slug, "name": name or slug})))

    print_row(call_local_or_remote(create_local, create_remote), output, _table_row, _json_record)
    print_message(f"Grant it with: aaiclick role grant {slug} USER")


@role.command("rm")
@ROLE
@org_option
def remove_role(role: str, org: str) -> None:
    """Remove a role, by its slug or id, from the organisation and all users."""

    async def remove_local(connection: Connection) -> None:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            row = await users.get_role_by_name(connection, org_id, role)
            await users.delete_role(connection, org_id, row["id"])
            await write_audit(connection, org_id, "role.delete", str(row["id"]))

    def remove_remote(client: Client) -> None:
        client.call(ApiRequest[None]("DELETE", requests.build_path("roles", _find_role_id(client, org, role))))

    call_local_or_remote(remove_local, remove_remote)
    print_message(f"Role {role!r} removed.")


@role.command("members")
@ROLE
@org_option
@output_option
def list_members(role: str, org: str, output: str) -> None:
    """List the members of a role."""

    async def list_local(connection: Connection) -> list[Row]:
        org_id = await find_org_id(connection, org)
        row = await users.get_role_by_name(connection, org_id, role)
        members = await users.list_members(connection, org_id, row["id"], limit=NO_LIMIT)
        org_users = await users.list_users(connection, org_id, limit=NO_LIMIT)
        return _join_subjects([dict(row) for row in members], [dict(row) for row in org_users])

    def list_remote(client: Client) -> list[Row]:
        members = client.pages(requests.get(requests.build_path("roles", _find_role_id(client, org, role), "members")))
        return _join_subjects(
            [remote.parse_times(member) for member in members], client.pages(requests.get("/v1/users"))
        )

    empty_message = f"Role {role!r} has no members."
    print_rows(
        call_local_or_remote(list_local, list_remote), output, _member_row, _member_json, empty_message=empty_message
    )


@role.command("grant")
@ROLE
@USER
@org_option
def grant_role(role: str, user: str, org: str) -> None:
    """Grant a role to a user, by its subject or id."""
    _change_membership(role, user, org, "role.add", users.add_member, "PUT")
    print_message(f"Role {role!r} granted to user {user}.")


@role.command("revoke")
@ROLE
@USER
@org_option
def revoke_role(role: str, user: str, org: str) -> None:
    """Revoke a role from a user, by its subject or id."""
    _change_membership(role, user, org, "role.remove", users.remove_member, "DELETE")
    print_message(f"Role {role!r} revoked from user {user}.")


def _change_membership(
    role: str, user: str, org: str, action: str,
    change: Callable[[Connection, UUID, UUID, UUID], Awaitable[object]], method: str,
) -> None:  # fmt: skip
    async def change_local(connection: Connection) -> None:
        org_id = await find_org_id(connection, org)
        async with audited_transaction(connection):
            role_row = await users.get_role_by_name(connection, org_id, role)
            user_row = await users.get_user_by_name(connection, org_id, user)
            await change(connection, org_id, role_row["id"], user_row["id"])
            await write_audit(connection, org_id, action, str(role_row["id"]), {"user": str(user_row["id"])})

    def change_remote(client: Client) -> None:
        role_id, user_id = _find_role_id(client, org, role), find_user_remote(client, org, user)["id"]
        client.call(ApiRequest[None](method, requests.build_path("roles", role_id, "members", user_id)))

    call_local_or_remote(change_local, change_remote)


def _load_roles_remote(client: Client, org: str) -> list[Row]:
    remote.check_org(client, org)
    return [remote.parse_times(item) for item in client.pages(requests.get("/v1/roles"))]


def _find_role_id(client: Client, org: str, text: str) -> str:
    """Return the id of a role by its slug or id."""
    return remote.find_by_fields(_load_roles_remote(client, org), text, ("slug", "id"), "role")["id"]


def _join_subjects(memberships: Iterable[Row], org_users: Iterable[Row]) -> list[Row]:
    subjects = {str(row["id"]): row["external_id"] for row in org_users}
    return [row | {"external_id": subjects.get(str(row["user_id"]))} for row in memberships]


def _member_json(row: Row) -> Row:
    return select_fields(row, ("user_id", "external_id", "created_at"))


def _member_row(row: Row) -> Row:
    return {"user": str(row["user_id"]), "subject": row["external_id"], "granted": format_time(row["created_at"])}


def _json_record(row: Row) -> Row:
    return select_fields(row, ("id", "slug", "name", "created_at"))


def _table_row(row: Row) -> Row:
    return {"id": str(row["id"]), "slug": row["slug"], "name": row["name"], "created": format_time(row["created_at"])}
