"""Roles that the organisation defines for its datasets, and who has them."""

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

routes = Routes("roles")


@routes.get("/v1/roles", Permission.READER)
async def index(call: Caller, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.RoleOut]:
    """List roles."""
    async with reading(call) as connection:
        rows = await users.list_roles(connection, call.principal.org_id, after=uuid_cursor(cursor), limit=limit + 1)
    return page(rows, limit, _role, lambda row: row["id"])


@routes.post("/v1/roles", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create(call: Caller, body: shapes.NewRole) -> shapes.RoleOut:
    """Make a role."""
    async with changing(call) as connection:
        row = await users.create_role(connection, call.principal.org_id, slug=body.slug, name=body.name)
        await note(call, connection, "role.create", row["id"], {"slug": body.slug})
    return _role(row)


@routes.delete("/v1/roles/{role_id}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete(call: Caller, role_id: UUID) -> None:
    """Remove a role: nobody has it any more."""
    async with changing(call) as connection:
        await users.delete_role(connection, call.principal.org_id, role_id)
        await note(call, connection, "role.delete", role_id)


@routes.get("/v1/roles/{role_id}/members", Permission.ADMIN)
async def members(call: Caller, role_id: UUID, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.Membership]:
    """List who has a role."""
    async with reading(call) as connection:
        await users.get_role(connection, call.principal.org_id, role_id)
        rows = await users.list_members(
            connection, call.principal.org_id, role_id, after=uuid_cursor(cursor), limit=limit + 1
        )
    return page(rows, limit, _membership, lambda row: row["user_id"])


@routes.put("/v1/roles/{role_id}/members/{user_id}", Permission.ADMIN)
async def add(call: Caller, role_id: UUID, user_id: UUID) -> shapes.Membership:
    """Give a user a role."""
    async with changing(call) as connection:
        row = await users.add_member(connection, call.principal.org_id, role_id, user_id)
        await note(call, connection, "role.add", role_id, {"user": str(user_id)})
    return _membership(row)


@routes.delete("/v1/roles/{role_id}/members/{user_id}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def remove(call: Caller, role_id: UUID, user_id: UUID) -> None:
    """Take a role from a user."""
    async with changing(call) as connection:
        await users.remove_member(connection, call.principal.org_id, role_id, user_id)
        await note(call, connection, "role.remove", role_id, {"user": str(user_id)})


def _role(row: Any) -> shapes.RoleOut:
    return shapes.RoleOut(**{name: row[name] for name in shapes.RoleOut.model_fields})


def _membership(row: Any) -> shapes.Membership:
    return shapes.Membership(**{name: row[name] for name in shapes.Membership.model_fields})
