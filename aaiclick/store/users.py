"""Users of an org, the roles it defines, and who has them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

PLATFORM_ROLES = ("reader", "writer", "admin")


async def create_user(
    connection: Connection, org_id: UUID, *, external_id: str, role: str, email: str | None = None
) -> asyncpg.Record:
    """A person; `external_id` is the subject that the identity provider's tokens carry."""
    try:
        row = await connection.fetchrow(statement("insert_user"), org_id, external_id, email, role)
    except asyncpg.UniqueViolationError:
        raise ConflictError(
            f"The subject {external_id!r} is a user already.", remedy="A subject belongs to one user of one org."
        ) from None
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return row


async def list_users(
    connection: Connection, org_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_users"), org_id, after, limit)


async def get_user(connection: Connection, org_id: UUID, user_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow(statement("get_user"), org_id, user_id)
    if row is None:
        raise _nobody(user_id)
    return row


async def user_named(connection: Connection, org_id: UUID, named: str) -> asyncpg.Record:
    """By the subject or the id."""
    row = await connection.fetchrow(statement("user_named"), org_id, named)
    if row is None:
        raise _nobody(named)
    return row


async def find_user(connection: Connection, external_id: str) -> asyncpg.Record | None:
    """The user whom a token names, of whatever org; None if there is none, or it is disabled."""
    return await connection.fetchrow(statement("find_user"), external_id)


async def change_user(
    connection: Connection, org_id: UUID, user_id: UUID, *, email: str | None, role: str, disabled: bool
) -> asyncpg.Record:
    row = await connection.fetchrow(statement("change_user"), org_id, user_id, email, role, disabled)
    if row is None:
        raise _nobody(user_id)
    return row


async def delete_user(connection: Connection, org_id: UUID, user_id: UUID) -> None:
    """The user goes, with its keys and memberships."""
    if await connection.fetchval(statement("delete_user"), org_id, user_id) is None:
        raise _nobody(user_id)


async def create_role(connection: Connection, org_id: UUID, *, slug: str, name: str) -> asyncpg.Record:
    try:
        row = await connection.fetchrow(statement("insert_role"), org_id, slug, name)
    except asyncpg.UniqueViolationError:
        raise ConflictError(f"This org has a role {slug!r} already.", remedy="Choose another slug.") from None
    assert row is not None  # noqa: S101  (INSERT … RETURNING)
    return row


async def list_roles(
    connection: Connection, org_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_roles"), org_id, after, limit)


async def get_role(connection: Connection, org_id: UUID, role_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow(statement("get_role"), org_id, role_id)
    if row is None:
        raise _no_role(role_id)
    return row


async def role_named(connection: Connection, org_id: UUID, named: str) -> asyncpg.Record:
    """By the slug or the id."""
    row = await connection.fetchrow(statement("role_named"), org_id, named)
    if row is None:
        raise _no_role(named)
    return row


async def delete_role(connection: Connection, org_id: UUID, role_id: UUID) -> None:
    if await connection.fetchval(statement("delete_role"), org_id, role_id) is None:
        raise _no_role(role_id)


async def add_member(connection: Connection, org_id: UUID, role_id: UUID, user_id: UUID) -> asyncpg.Record:
    row = await connection.fetchrow(statement("insert_membership"), org_id, role_id, user_id)
    if row is None:
        raise NotFoundError(f"There is no role {role_id}, or no user {user_id}.", remedy="Both belong to one org.")
    return row


async def list_members(
    connection: Connection, org_id: UUID, role_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[asyncpg.Record]:
    return await connection.fetch(statement("list_members"), org_id, role_id, after, limit)


async def remove_member(connection: Connection, org_id: UUID, role_id: UUID, user_id: UUID) -> None:
    if await connection.fetchval(statement("delete_membership"), org_id, role_id, user_id) is None:
        raise NotFoundError(f"User {user_id} does not have the role {role_id}.")


def _nobody(named: UUID | str) -> NotFoundError:
    return NotFoundError(f"There is no user {str(named)!r:.120}.", remedy="'aaiclick user ls' lists them.")


def _no_role(named: UUID | str) -> NotFoundError:
    return NotFoundError(f"There is no role {str(named)!r:.120}.", remedy="'aaiclick role ls' lists them.")
