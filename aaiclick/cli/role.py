"""`aaiclick role`: roles that an organisation defines for its datasets, and who has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import note_deed
from aaiclick.cli.key import org_option
from aaiclick.cli.org import EVERYTHING, new_slug
from aaiclick.cli.output import note, output_option, print_record, print_records
from aaiclick.cli.remote import Row, reach
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.errors import NotFoundError
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
        return await _roles(connection, await org_id_of(connection, org))

    rows = reach(work, lambda client: _roles_from_afar(client, org))
    print_records([_line(row) for row in rows], output, nothing="There are no roles.")


@role.command()
@new_slug
@click.option("--name", default=None, help="What people call it. [SLUG]")
@org_option
@output_option
def create(slug: str, name: str | None, org: str, output: str) -> None:
    """Make a role: 'aaiclick datasets readers' says what it may read."""

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        async with connection.transaction():
            made = await users.create_role(connection, org_id, slug=slug, name=name or slug)
            await note_deed(connection, org_id, "role.create", str(made["id"]), {"slug": slug})
        return dict(made)

    def ask(client: Client) -> Row:
        remote.check_org(client, org)
        return remote.times(client.call(calls.post("/v1/roles", {"slug": slug, "name": name or slug})))

    print_record(_line(reach(work, ask)), output)
    note(f"Give it: aaiclick role give {slug} USER")


@role.command()
@ROLE
@org_option
def rm(role: str, org: str) -> None:
    """Remove a role, by its slug or id: nobody has it any more."""

    async def work(connection: Connection) -> None:
        org_id = await org_id_of(connection, org)
        async with connection.transaction():
            role_id = _role(await _roles(connection, org_id), role)
            await users.delete_role(connection, org_id, role_id)
            await note_deed(connection, org_id, "role.delete", str(role_id))

    def ask(client: Client) -> None:
        client.call(Call("DELETE", calls.named("roles", _role(_roles_from_afar(client, org), role))))

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
        role_id = _role(await _roles(connection, org_id), role)
        found = await users.list_members(connection, org_id, role_id, limit=EVERYTHING)
        return _members([dict(each) for each in found], await _users(connection, org_id))

    def ask(client: Client) -> list[Row]:
        role_id = _role(_roles_from_afar(client, org), role)
        found = client.pages(calls.get(calls.named("roles", role_id, "members")))
        return _members([remote.times(each) for each in found], _users_from_afar(client))

    print_records(reach(work, ask), output, nothing=f"Nobody has the role {role!r}.")


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
        async with connection.transaction():
            role_id, user_id = await _both(connection, org_id, role, user)
            await near(connection, org_id, role_id, user_id)
            await note_deed(connection, org_id, action, str(role_id), {"user": str(user_id)})

    reach(work, lambda client: client.call(Call(method, _membership(client, org, role, user))))


async def _roles(connection: Connection, org_id: UUID) -> list[Row]:
    return [dict(row) for row in await users.list_roles(connection, org_id, limit=EVERYTHING)]


async def _users(connection: Connection, org_id: UUID) -> list[Row]:
    return [dict(row) for row in await users.list_users(connection, org_id, limit=EVERYTHING)]


async def _both(connection: Connection, org_id: UUID, role: str, user: str) -> tuple[UUID, UUID]:
    return _role(await _roles(connection, org_id), role), _user(await _users(connection, org_id), user)


def _roles_from_afar(client: Client, org: str) -> list[Row]:
    remote.check_org(client, org)
    return [remote.times(each) for each in client.pages(calls.get("/v1/roles"))]


def _users_from_afar(client: Client) -> list[Row]:
    return [remote.times(each) for each in client.pages(calls.get("/v1/users"))]


def _membership(client: Client, org: str, role: str, user: str) -> str:
    role_id = _role(_roles_from_afar(client, org), role)
    return calls.named("roles", role_id, "members", _user(_users_from_afar(client), user))


def _role(roles: Iterable[Row], named: str) -> Any:
    """The id of the role of this slug or id."""
    for each in roles:
        if named in (each["slug"], str(each["id"])):
            return each["id"]
    raise NotFoundError(f"There is no role {named!r}.", remedy="'aaiclick role ls' lists them.")


def _user(found: Iterable[Row], named: str) -> Any:
    """The id of the user of this subject or id."""
    for each in found:
        if named in (each["external_id"], str(each["id"])):
            return each["id"]
    raise NotFoundError(f"There is no user {named!r}.", remedy="'aaiclick user ls' lists them.")


def _members(memberships: Iterable[Row], people: Iterable[Row]) -> list[Row]:
    subjects = {str(each["id"]): each["external_id"] for each in people}
    return [
        {
            "user": str(each["user_id"]),
            "subject": subjects.get(str(each["user_id"])),
            "since": moment(each["created_at"]),
        }
        for each in memberships
    ]


def _line(row: Row) -> dict[str, object]:
    return {"id": str(row["id"]), "slug": row["slug"], "name": row["name"], "created": moment(row["created_at"])}
