"""`aaiclick user`: people whom an identity provider knows."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from aaiclick.cli.database import moment, with_database
from aaiclick.cli.key import org_option
from aaiclick.cli.org import EVERYTHING, org_id_of
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.store import users
from aaiclick.store.users import PLATFORM_ROLES

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@click.group()
def user() -> None:
    """Add, list and remove users."""


@user.command()
@click.argument("subject")
@click.option("--role", type=click.Choice(PLATFORM_ROLES), default="reader", show_default=True)
@click.option("--email", default=None)
@org_option
@output_option
def create(subject: str, role: str, email: str | None, org: str, output: str) -> None:
    """Add a user: SUBJECT is what the identity provider's tokens call it."""

    async def work(connection: Connection) -> asyncpg.Record:
        org_id = await org_id_of(connection, org)
        return await users.create_user(connection, org_id, external_id=subject, role=role, email=email)

    print_records([_line(with_database(work))], output)


@user.command()
@org_option
@output_option
def ls(org: str, output: str) -> None:
    """List users."""

    async def work(connection: Connection) -> list[asyncpg.Record]:
        return await users.list_users(connection, await org_id_of(connection, org), limit=EVERYTHING)

    print_records([_line(row) for row in with_database(work)], output)


@user.command()
@click.argument("user_id", type=click.UUID)
@org_option
def rm(user_id: UUID, org: str) -> None:
    """Remove a user, with its keys and memberships."""

    async def work(connection: Connection) -> None:
        await users.delete_user(connection, await org_id_of(connection, org), user_id)

    with_database(work)
    note(f"User {user_id} is removed.")


def _line(row: asyncpg.Record) -> dict[str, object]:
    return {
        "id": str(row["id"]),
        "subject": row["external_id"],
        "email": row["email"],
        "role": row["role"],
        "created": moment(row["created_at"]),
        "disabled": moment(row["disabled_at"]),
    }
