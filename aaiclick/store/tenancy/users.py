"""Users of an org, its roles, and their members."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

PLATFORM_ROLES = ("reader", "writer", "admin")


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user; `external_id` is the subject in the identity provider's tokens."""

    id: UUID
    org_id: UUID
    external_id: str
    email: str | None
    role: str
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A dataset role."""

    id: UUID
    org_id: UUID
    slug: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class MembershipRow:
    """A role of a user."""

    role_id: UUID
    user_id: UUID
    external_id: str
    created_at: datetime


async def create_user(
    connection: Connection, org_id: UUID, *, external_id: str, role: str, email: str | None = None
) -> UserRow:
    try:
        row = await connection.fetchrow(statement("insert_user"), org_id, external_id, email, role)
    except asyncpg.UniqueViolationError:
        raise ConflictError(
            f"The subject {external_id!r} is a user already.", remedy="A subject belongs to one user of one org."
        ) from None
    return _to_user(row, external_id)


async def list_users(
    connection: Connection, org_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[UserRow]:
    return [UserRow(**row) for row in await connection.fetch(statement("list_users"), org_id, after, limit)]


async def get_user(connection: Connection, org_id: UUID, subject_or_id: str) -> UserRow:
    """Get a user by subject or id; raises NotFoundError."""
    return _to_user(await connection.fetchrow(statement("get_user"), org_id, subject_or_id), subject_or_id)


async def find_user(connection: Connection, external_id: str) -> UserRow | None:
    """The user with this subject, in any org; None if there is none or it is disabled."""
    row = await connection.fetchrow(statement("find_user_by_subject"), external_id)
    return None if row is None else UserRow(**row)


async def update_user(
    connection: Connection,
    org_id: UUID,
    user_id: UUID,
    *,
    email: str | None = None,
    role: str | None = None,
    disabled: bool | None = None,
) -> UserRow:
    """Change a user in one statement, so that concurrent changes of different fields are all applied.

    None leaves a field unchanged; an empty `email` removes it.
    """
    row = await connection.fetchrow(statement("update_user"), org_id, user_id, email, role, disabled)
    return _to_user(row, user_id)


async def delete_user(connection: Connection, org_id: UUID, user_id: UUID) -> None:
    """Delete a user with its keys and memberships."""
    if await connection.fetchval(statement("delete_user"), org_id, user_id) is None:
        raise _unknown("user", user_id)


async def create_role(connection: Connection, org_id: UUID, *, slug: str, name: str) -> RoleRow:
    try:
        row = await connection.fetchrow(statement("insert_role"), org_id, slug, name)
    except asyncpg.UniqueViolationError:
        raise ConflictError(f"This org has a role {slug!r} already.", remedy="Choose another slug.") from None
    return _to_role(row, slug)


async def list_roles(
    connection: Connection, org_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[RoleRow]:
    return [RoleRow(**row) for row in await connection.fetch(statement("list_roles"), org_id, after, limit)]


async def get_role(connection: Connection, org_id: UUID, slug_or_id: str) -> RoleRow:
    """Get a role by slug or id; raises NotFoundError."""
    return _to_role(await connection.fetchrow(statement("get_role"), org_id, slug_or_id), slug_or_id)


async def delete_role(connection: Connection, org_id: UUID, role_id: UUID) -> None:
    if await connection.fetchval(statement("delete_role"), org_id, role_id) is None:
        raise _unknown("role", role_id)


async def add_member(connection: Connection, org_id: UUID, role_id: UUID, user_id: UUID) -> MembershipRow:
    row = await connection.fetchrow(statement("insert_membership"), org_id, role_id, user_id)
    if row is None:
        raise NotFoundError(f"There is no role {role_id}, or no user {user_id}.", remedy="Both belong to one org.")
    return MembershipRow(**row)


async def list_members(
    connection: Connection, org_id: UUID, role_id: UUID, *, after: UUID | None = None, limit: int = 100
) -> list[MembershipRow]:
    rows = await connection.fetch(statement("list_members"), org_id, role_id, after, limit)
    return [MembershipRow(**row) for row in rows]


async def remove_member(connection: Connection, org_id: UUID, role_id: UUID, user_id: UUID) -> None:
    if await connection.fetchval(statement("delete_membership"), org_id, role_id, user_id) is None:
        raise NotFoundError(f"User {user_id} does not have the role {role_id}.")


def _to_user(row: asyncpg.Record | None, name: UUID | str) -> UserRow:
    if row is None:
        raise _unknown("user", name)
    return UserRow(**row)


def _to_role(row: asyncpg.Record | None, name: UUID | str) -> RoleRow:
    if row is None:
        raise _unknown("role", name)
    return RoleRow(**row)


def _unknown(noun: str, name: UUID | str) -> NotFoundError:
    return NotFoundError(f"There is no {noun} {str(name)!r:.120}.", remedy=f"'aaiclick {noun} ls' lists them.")
