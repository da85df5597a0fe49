"""Users of the organisation: people whom an identity provider knows."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, page, uuid_cursor
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changing, note, reading
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import users

routes = Routes("users")


@routes.get("/v1/users", Permission.ADMIN)
async def index(call: Caller, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.User]:
    """List users."""
    async with reading(call) as connection:
        rows = await users.list_users(connection, call.principal.org_id, after=uuid_cursor(cursor), limit=limit + 1)
    return page(rows, limit, _user, lambda row: row["id"])


@routes.post("/v1/users", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create(call: Caller, body: shapes.NewUser) -> shapes.User:
    """Add a user: whoever the identity provider calls `external_id`."""
    async with changing(call) as connection:
        row = await users.create_user(connection, call.principal.org_id, **body.model_dump())
        await note(call, connection, "user.create", row["id"], {"role": body.role})
    return _user(row)


@routes.get("/v1/users/{user_id}", Permission.ADMIN)
async def show(call: Caller, user_id: UUID) -> shapes.User:
    """Show a user."""
    async with reading(call) as connection:
        return _user(await users.get_user(connection, call.principal.org_id, user_id))


@routes.put("/v1/users/{user_id}", Permission.ADMIN)
async def change(call: Caller, user_id: UUID, body: shapes.UserChange) -> shapes.User:
    """Change a user's role, or disable it with its keys."""
    async with changing(call) as connection:
        row = await users.change_user(connection, call.principal.org_id, user_id, **body.model_dump())
        await note(call, connection, "user.change", user_id, {"role": body.role, "disabled": body.disabled})
    return _user(row)


@routes.delete("/v1/users/{user_id}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete(call: Caller, user_id: UUID) -> None:
    """Remove a user, with its keys and memberships."""
    async with changing(call) as connection:
        await users.delete_user(connection, call.principal.org_id, user_id)
        await note(call, connection, "user.delete", user_id)


def _user(row: Any) -> shapes.User:
    return shapes.User(**{name: row[name] for name in shapes.User.model_fields})
