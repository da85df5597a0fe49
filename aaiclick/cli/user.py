"""`aaiclick user`: people whom an identity provider knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.cli.key import org_option
from aaiclick.cli.kinds import NAME, Words
from aaiclick.cli.org import EVERYTHING
from aaiclick.cli.output import Row, named, note, output_option, print_row, print_rows
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.store import users
from aaiclick.store.users import PLATFORM_ROLES

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection


@click.group()
def user() -> None:
    """Add, list, change and remove users."""


@user.command()
@click.argument("subject", type=Words(500))
@click.option("--role", type=click.Choice(PLATFORM_ROLES), default="reader", show_default=True,
              help="What it may do in the organisation.")  # fmt: skip
@click.option("--email", type=NAME, default=None, help="Its e-mail address, as lists show it.")
@org_option
@output_option
def create(subject: str, role: str, email: str | None, org: str, output: str) -> None:
    """Add a user: SUBJECT is what the identity provider's tokens call it."""

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            made = await users.create_user(connection, org_id, external_id=subject, role=role, email=email)
            await note_deed(connection, org_id, "user.create", str(made["id"]), {"role": role})
        return dict(made)

    def ask(client: Client) -> Row:
        remote.check_org(client, org)
        return remote.times(
            client.call(calls.post("/v1/users", {"external_id": subject, "role": role, "email": email}))
        )

    print_row(reach(work, ask), output, _line, _facts)


@user.command()
@org_option
@output_option
def ls(org: str, output: str) -> None:
    """List users."""

    async def work(connection: Connection) -> list[Row]:
        rows = await users.list_users(connection, await org_id_of(connection, org), limit=EVERYTHING)
        return [dict(row) for row in rows]

    def ask(client: Client) -> list[Row]:
        remote.check_org(client, org)
        return [remote.times(each) for each in client.pages(calls.get("/v1/users"))]

    print_rows(reach(work, ask), output, _line, _facts, nothing="There are no users.")


@user.command("set")
@click.argument("user")
@click.option("--role", type=click.Choice(PLATFORM_ROLES), default=None, help="What it may do [default: as before].")
@click.option("--email", type=Words(may_be_empty=True), default=None,
              help="Its e-mail address, '' for none [default: as before].")  # fmt: skip
@click.option("--disabled/--enabled", default=None, help="Whether it and its keys open nothing [default: as before].")
@org_option
@output_option
def change(user: str, role: str | None, email: str | None, disabled: bool | None, org: str, output: str) -> None:
    """Change a user, by its subject or id."""

    def wanted(before: Row) -> Row:
        return {
            "email": before["email"] if email is None else email or None,
            "role": role or before["role"],
            "disabled": before["disabled_at"] is not None if disabled is None else disabled,
        }

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            found = dict(await users.user_named(connection, org_id, user))
            after = wanted(found)
            changed = await users.change_user(connection, org_id, found["id"], **after)
            detail = {name: after[name] for name in ("role", "disabled")}
            await note_deed(connection, org_id, "user.change", str(found["id"]), detail)
        return dict(changed)

    def ask(client: Client) -> Row:
        found = user_from_afar(client, org, user)
        return remote.times(client.call(Call("PUT", calls.named("users", found["id"]), body=wanted(found))))

    print_row(reach(work, ask), output, _line, _facts)


@user.command()
@click.argument("user")
@org_option
def rm(user: str, org: str) -> None:
    """Remove a user, by its subject or id, with its keys and memberships."""

    async def work(connection: Connection) -> None:
        org_id = await org_id_of(connection, org)
        async with recorded(connection):
            found = await users.user_named(connection, org_id, user)
            await users.delete_user(connection, org_id, found["id"])
            await note_deed(connection, org_id, "user.delete", str(found["id"]))

    def ask(client: Client) -> None:
        client.call(Call("DELETE", calls.named("users", user_from_afar(client, org, user)["id"])))

    reach(work, ask)
    note(f"User {user} is removed.")


def user_from_afar(client: Client, org: str, named: str) -> Row:
    """A user by its subject or id."""
    remote.check_org(client, org)
    people = [remote.times(each) for each in client.pages(calls.get("/v1/users"))]
    return remote.one_named(people, named, ("external_id", "id"), "user")


def _facts(row: Row) -> Row:
    return named(row, ("id", "external_id", "email", "role", "created_at", "disabled_at"))


def _line(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "subject": row["external_id"],
        "email": row["email"],
        "role": row["role"],
        "created": moment(row["created_at"]),
        "disabled": moment(row["disabled_at"]),
    }
