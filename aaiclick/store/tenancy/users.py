"""Users of an org, its roles, and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection

PLATFORM_ROLES = ("reader", "writer", "admin")


async def create_user(
    connection: Connection, org_id: UUID, *, external_id: str, role: str, email: str | None = None
) -> asyncpg.Record:
    """Create a user; `external_id` is the subject in the identity provider's tokens."""
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
        raise _unknown_user(user_id)
    return row


async def get_user_by_name(connection: Connection, org_id: UUID, subject_or_id: str) -> asyncpg.Record:
    """Find a user by subject or id; raises NotFoundError."""
    row = await connection.fetchrow(statement("get_user_by_name"), org_id, subject_or_id)
    if row is None:
        raise _unknown_user(subject_or_id)
    return row


async def find_user(connection: Connection, external_id: str) -> asyncpg.Record | None:
    """The user with this subject, in any org; None if there is none or it is disabled."""
    return await connection.fetchrow(statement("find_user_by_subject"), external_id)


async def update_user(
    connection: Connection, org_id: UUID, user_id: UUID, *, email: str | None, role: str, disabled: bool
) -> asyncpg.Record:
    row = await connection.fetchrow(statement("update_user"), org_id, user_id, email, role, disabled)
    if row is None:
        raise _unknown_user(user_id)
    return row


async def delete_user(connection: Connection, org_id: UUID, user_id: UUID) -> None:
    """Delete a user with its keys and memberships."""
    if await connection.fetchval(statement("delete_user"), org_id, user_id) is None:
        raise _unknown_user(user_id)


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
        raise _unknown_role(role_id)
    return row


async def get_role_by_name(connection: Connection, org_id: UUID, slug_or_id: str) -> asyncpg.Record:
    """Find a role by slug or id; raises NotFoundError."""
    row = await connection.fetchrow(statement("get_role_by_name"), org_id, slug_or_id)
    if row is None:
        raise _unknown_role(slug_or_id)
    return row


async def delete_role(connection: Connection, org_id: UUID, role_id: UUID) -> None:
    if await connection.fetchval(statement("delete_role"), org_id, role_id) is None:
        raise _unknown_role(role_id)


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


def _unknown_user(name: UUID | str) -> NotFoundError:
    return NotFoundError(f"There is no user {str(name)!r:.120}.", remedy="'aaiclick user ls' lists them.")


def _unknown_role(name: UUID | str) -> NotFoundError:
    return NotFoundError(f"There is no role {str(name)!r:.120}.", remedy="'aaiclick role ls' lists them.")
