"""Operations on users, who sign in at the identity provider. A user is named by its subject there, or by its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import CreateUserRequest, UpdateUserRequest, User
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.store.tenancy import users
from aaiclick.store.tenancy.users import UserRow

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.ADMIN, changes=False)
async def list_users(
    connection: Connection, actor: Actor, *, cursor: str | None = None, limit: int = 100
) -> Page[User]:
    """List users."""
    after = read_uuid_cursor(cursor)
    rows = await users.list_users(connection, actor.org_id, after=after, limit=limit + 1)
    return make_page(rows, limit, _to_user, lambda row: row.id)


@operation(Permission.ADMIN, changes=False)
async def get_user(connection: Connection, actor: Actor, user: str) -> User:
    """Get a user."""
    return _to_user(await users.get_user(connection, actor.org_id, user))


@operation(Permission.ADMIN)
async def create_user(connection: Connection, actor: Actor, new_user: CreateUserRequest) -> User:
    """Create a user; `external_id` is its subject at the identity provider."""
    row = await users.create_user(
        connection, actor.org_id, external_id=new_user.external_id, role=new_user.role, email=new_user.email
    )
    await write_audit(connection, actor, "user.create", row.id, {"role": row.role})
    return _to_user(row)


@operation(Permission.ADMIN)
async def update_user(connection: Connection, actor: Actor, user: str, changes: UpdateUserRequest) -> User:
    """Change the email or role of a user, or disable it and its keys; an omitted field is unchanged."""
    user_id = (await users.get_user(connection, actor.org_id, user)).id
    email = changes.email or "" if "email" in changes.model_fields_set else None
    row = await users.update_user(
        connection, actor.org_id, user_id, email=email, role=changes.role, disabled=changes.disabled
    )
    detail = {"role": row.role, "disabled": row.disabled_at is not None}
    await write_audit(connection, actor, "user.change", user_id, detail)
    return _to_user(row)


@operation(Permission.ADMIN)
async def delete_user(connection: Connection, actor: Actor, user: str) -> None:
    """Delete a user with its keys and memberships."""
    user_id = (await users.get_user(connection, actor.org_id, user)).id
    await users.delete_user(connection, actor.org_id, user_id)
    await write_audit(connection, actor, "user.delete", user_id)


def _to_user(row: UserRow) -> User:
    return User.model_validate(row, from_attributes=True)
