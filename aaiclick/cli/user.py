"""`aaiclick user`: people whom an identity provider knows."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from aaiclick.cli import remote
from aaiclick.cli.database import moment, org_id_of
from aaiclick.cli.deeds import note_deed
from aaiclick.cli.key import org_option
from aaiclick.cli.org import EVERYTHING
from aaiclick.cli.output import note, output_option, print_record, print_records
from aaiclick.cli.remote import Row, reach
from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.store import users
from aaiclick.store.users import PLATFORM_ROLES

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection


@click.group()
def user() -> None:
    """Add, list and remove users."""


@user.command()
@click.argument("subject")
@click.option("--role", type=click.Choice(PLATFORM_ROLES), default="reader", show_default=True,
              help="What it may do in the organisation.")  # fmt: skip
@click.option("--email", default=None, help="Its e-mail address, as lists show it.")
@org_option
@output_option
def create(subject: str, role: str, email: str | None, org: str, output: str) -> None:
    """Add a user: SUBJECT is what the identity provider's tokens call it."""

    async def work(connection: Connection) -> Row:
        org_id = await org_id_of(connection, org)
        async with connection.transaction():
            made = await users.create_user(connection, org_id, external_id=subject, role=role, email=email)
            await note_deed(connection, org_id, "user.create", str(made["id"]), {"role": role})
        return dict(made)

    def ask(client: Client) -> Row:
        remote.check_org(client, org)
        return remote.times(
            client.call(calls.post("/v1/users", {"external_id": subject, "role": role, "email": email}))
        )

    print_record(_line(reach(work, ask)), output)


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

    print_records([_line(row) for row in reach(work, ask)], output, nothing="There are no users.")


@user.command()
@click.argument("user_id", type=click.UUID)
@org_option
def rm(user_id: UUID, org: str) -> None:
    """Remove a user, with its keys and memberships."""

    async def work(connection: Connection) -> None:
        org_id = await org_id_of(connection, org)
        async with connection.transaction():
            await users.delete_user(connection, org_id, user_id)
            await note_deed(connection, org_id, "user.delete", str(user_id))

    def ask(client: Client) -> None:
        remote.check_org(client, org)
        client.call(Call("DELETE", calls.named("users", user_id)))

    reach(work, ask)
    note(f"User {user_id} is removed.")


def _line(row: Row) -> dict[str, object]:
    return {
        "id": str(row["id"]),
        "subject": row["external_id"],
        "email": row["email"],
        "role": row["role"],
        "created": moment(row["created_at"]),
        "disabled": moment(row["disabled_at"]),
    }
