"""Routes of users, who sign in at the identity provider. A user is named by its subject there, or by its id."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import CreateUserRequest, Subject, UpdateUserRequest, User
from aaiclick.operations import users as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("users")

UserName = Annotated[Subject, Path(description="Subject or id of a user")]


@routes.get("/v1/users", Permission.ADMIN)
async def list_users(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[User]:
    """List users."""
    return await context.perform(operations.list_users, cursor=cursor, limit=limit)


@routes.post("/v1/users", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create_user(context: Context, body: CreateUserRequest) -> User:
    """Create a user; `external_id` is its subject at the identity provider."""
    return await context.perform(operations.create_user, body)


@routes.get("/v1/users/{user:path}", Permission.ADMIN)
async def get_user(context: Context, user: UserName) -> User:
    """Get a user."""
    return await context.perform(operations.get_user, user)


@routes.patch("/v1/users/{user:path}", Permission.ADMIN)
async def update_user(context: Context, user: UserName, body: UpdateUserRequest) -> User:
    """Change the email or role of a user, or disable it and its keys; an omitted field is unchanged."""
    return await context.perform(operations.update_user, user, body)


@routes.delete("/v1/users/{user:path}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_user(context: Context, user: UserName) -> None:
    """Delete a user with its keys and memberships."""
    await context.perform(operations.delete_user, user)
