"""Routes of users, who sign in at the identity provider."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from aaiclick.api.field_types import Page
from aaiclick.api.orgs import CreateUserRequest, UpdateUserRequest, User
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import tenant_connection, tenant_transaction, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.tenancy import users

routes = Routes("users")


@routes.get("/v1/users", Permission.ADMIN)
async def list_users(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[User]:
    """List users."""
    async with tenant_connection(context) as connection:
        rows = await users.list_users(connection, context.actor.org_id, after=read_uuid_cursor(cursor), limit=limit + 1)
    return make_page(rows, limit, _to_user, lambda row: row["id"])


@routes.post("/v1/users", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create_user(context: Context, body: CreateUserRequest) -> User:
    """Create a user; `external_id` is its subject at the identity provider."""
    async with tenant_transaction(context) as connection:
        row = await users.create_user(connection, context.actor.org_id, **body.model_dump())
        await write_audit(context, connection, "user.create", row["id"], {"role": body.role})
    return _to_user(row)


@routes.get("/v1/users/{user_id}", Permission.ADMIN)
async def get_user(context: Context, user_id: UUID) -> User:
    """Get a user."""
    async with tenant_connection(context) as connection:
        return _to_user(await users.get_user(connection, context.actor.org_id, user_id))


@routes.put("/v1/users/{user_id}", Permission.ADMIN)
async def update_user(context: Context, user_id: UUID, body: UpdateUserRequest) -> User:
    """Update the email and role of a user, or disable it and its keys."""
    async with tenant_transaction(context) as connection:
        row = await users.update_user(connection, context.actor.org_id, user_id, **body.model_dump())
        await write_audit(context, connection, "user.change", user_id, {"role": body.role, "disabled": body.disabled})
    return _to_user(row)


@routes.delete("/v1/users/{user_id}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_user(context: Context, user_id: UUID) -> None:
    """Delete a user with its keys and memberships."""
    async with tenant_transaction(context) as connection:
        await users.delete_user(connection, context.actor.org_id, user_id)
        await write_audit(context, connection, "user.delete", user_id)


def _to_user(row: Any) -> User:
    return User(**{name: row[name] for name in User.model_fields})
