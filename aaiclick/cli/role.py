"""`aaiclick role`: roles that an organisation defines for its datasets, and who has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.cli.key import org_option
from aaiclick.cli.kinds import NAME
from aaiclick.cli.org import EVERYTHING, new_slug
from aaiclick.cli.output import Row, named, note, output_option, print_row, print_rows
from aaiclick.cli.remote import reach
from aaiclick.cli.user import user_from_afar
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.store import users

if TYPE_CHECKING:
    from uuid import UUID

    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

ROLE = click.argument("role")
USER = click.argument("user")


@click.group()
def role() -> None:
    """Make, list and remove roles; give them to users and take them away."""


@role.command()
@org_option
@output_option
def ls(org: str, output: str) -> None:
    """List roles."""

    async def work(connection: Connection) -> list[Row]:
        found = await users.list_roles(connection, await org_id_of(connection, org), limit=EVERYTHING)
        return [dict(row) for row in found]

    rows = reach(work, lambda client: _roles(client, org))
    print_rows(rows, output, _line, _facts, nothing="There are no roles.")


@role.command()
@new_slug
@click.option("--name", type=NAME, default=None, help="What people call it. [SLUG]")
@org_option
@output_option
def create(slug: str, name: str | None, org: str, output: str) -> None:
    """Make a role: 'aaiclick datasets readers' says what it may read."""

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            made = await users.create_role(connection, org_id, slug=slug, name=name or slug)
            await note_deed(connection, org_id, "role.create", str(made["id"]), {"slug": slug})
        return dict(made)

    def ask(client: Client) -> Row:
        remote.check_org(client, org)
        return remote.times(client.call(calls.post("/v1/roles", {"slug": slug, "name": name or slug})))

    print_row(reach(work, ask), output, _line, _facts)
    note(f"Give it: aaiclick role give {slug} USER")


@role.command()
@ROLE
@org_option
def rm(role: str, org: str) -> None:
    """Remove a role, by its slug or id: nobody has it any more."""

    async def work(connection: Connection) -> None:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            found = await users.role_named(connection, org_id, role)
            await users.delete_role(connection, org_id, found["id"])
            await note_deed(connection, org_id, "role.delete", str(found["id"]))

    def ask(client: Client) -> None:
        client.call(Call("DELETE", calls.named("roles", _role(client, org, role))))

    reach(work, ask)
    note(f"The role {role!r} is removed.")


@role.command()
@ROLE
@org_option
@output_option
def members(role: str, org: str, output: str) -> None:
    """List who has a role."""

    async def work(connection: Connection) -> list[Row]:
        org_id = await org_id_of(connection, org)
        found = await users.role_named(connection, org_id, role)
        members = await users.list_members(connection, org_id, found["id"], limit=EVERYTHING)
        people = await users.list_users(connection, org_id, limit=EVERYTHING)
        return _members([dict(row) for row in members], [dict(row) for row in people])

    def ask(client: Client) -> list[Row]:
        members = client.pages(calls.get(calls.named("roles", _role(client, org, role), "members")))
        return _members([remote.times(each) for each in members], client.pages(calls.get("/v1/users")))

    nothing = f"Nobody has the role {role!r}."
    print_rows(reach(work, ask), output, _member, _member_facts, nothing=nothing)


@role.command()
@ROLE
@USER
@org_option
def give(role: str, user: str, org: str) -> None:
    """Give a user, by its subject or id, a role."""
    _change(role, user, org, "role.add", users.add_member, "PUT")
    note(f"User {user} has the role {role!r}.")


@role.command()
@ROLE
@USER
@org_option
def take(role: str, user: str, org: str) -> None:
    """Take a role from a user, by its subject or id."""
    _change(role, user, org, "role.remove", users.remove_member, "DELETE")
    note(f"User {user} has the role {role!r} no more.")


def _change(
    role: str, user: str, org: str, action: str,
    near: Callable[[Connection, UUID, UUID, UUID], Awaitable[object]], method: str,
) -> None:  # fmt: skip
    async def work(connection: Connection) -> None:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            given = await users.role_named(connection, org_id, role)
            who = await users.user_named(connection, org_id, user)
            await near(connection, org_id, given["id"], who["id"])
            await note_deed(connection, org_id, action, str(given["id"]), {"user": str(who["id"])})

    def ask(client: Client) -> None:
        role_id, user_id = _role(client, org, role), user_from_afar(client, org, user)["id"]
        client.call(Call(method, calls.named("roles", role_id, "members", user_id)))

    reach(work, ask)


def _roles(client: Client, org: str) -> list[Row]:
    remote.check_org(client, org)
    return [remote.times(each) for each in client.pages(calls.get("/v1/roles"))]


def _role(client: Client, org: str, named: str) -> str:
    """The id of the role of this slug or id."""
    return remote.one_named(_roles(client, org), named, ("slug", "id"), "role")["id"]


def _members(memberships: Iterable[Row], people: Iterable[Row]) -> list[Row]:
    subjects = {str(each["id"]): each["external_id"] for each in people}
    return [each | {"external_id": subjects.get(str(each["user_id"]))} for each in memberships]


def _member_facts(row: Row) -> Row:
    return named(row, ("user_id", "external_id", "created_at"))


def _member(row: Row) -> Row:
    return {"user": str(row["user_id"]), "subject": row["external_id"], "since": moment(row["created_at"])}


def _facts(row: Row) -> Row:
    return named(row, ("id", "slug", "name", "created_at"))


def _line(row: Row) -> Row:
    return {"id": str(row["id"]), "slug": row["slug"], "name": row["name"], "created": moment(row["created_at"])}
