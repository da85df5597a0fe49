"""Routes of dataset roles and their members."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from aaiclick.api.field_types import Page
from aaiclick.api.orgs import CreateRoleRequest, Membership, RoleResponse
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import tenant_connection, tenant_transaction, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.tenancy import users

routes = Routes("roles")


@routes.get("/v1/roles", Permission.READER)
async def list_roles(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[RoleResponse]:
    """List roles."""
    async with tenant_connection(context) as connection:
        rows = await users.list_roles(connection, context.actor.org_id, after=read_uuid_cursor(cursor), limit=limit + 1)
    return make_page(rows, limit, _to_role, lambda row: row["id"])


@routes.post("/v1/roles", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create_role(context: Context, body: CreateRoleRequest) -> RoleResponse:
    """Create a role."""
    async with tenant_transaction(context) as connection:
        row = await users.create_role(connection, context.actor.org_id, slug=body.slug, name=body.name)
        await write_audit(context, connection, "role.create", row["id"], {"slug": body.slug})
    return _to_role(row)


@routes.delete("/v1/roles/{role_id}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_role(context: Context, role_id: UUID) -> None:
    """Delete a role and its memberships."""
    async with tenant_transaction(context) as connection:
        await users.delete_role(connection, context.actor.org_id, role_id)
        await write_audit(context, connection, "role.delete", role_id)


@routes.get("/v1/roles/{role_id}/members", Permission.ADMIN)
async def list_role_members(
    context: Context, role_id: UUID, cursor: Cursor = None, limit: Limit = 100
) -> Page[Membership]:
    """List the members of a role."""
    async with tenant_connection(context) as connection:
        await users.get_role(connection, context.actor.org_id, role_id)
        rows = await users.list_members(
            connection, context.actor.org_id, role_id, after=read_uuid_cursor(cursor), limit=limit + 1
        )
    return make_page(rows, limit, _to_membership, lambda row: row["user_id"])


@routes.put("/v1/roles/{role_id}/members/{user_id}", Permission.ADMIN)
async def add_role_member(context: Context, role_id: UUID, user_id: UUID) -> Membership:
    """Add a user to a role."""
    async with tenant_transaction(context) as connection:
        row = await users.add_member(connection, context.actor.org_id, role_id, user_id)
        await write_audit(context, connection, "role.add", role_id, {"user": str(user_id)})
    return _to_membership(row)


@routes.delete("/v1/roles/{role_id}/members/{user_id}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def remove_role_member(context: Context, role_id: UUID, user_id: UUID) -> None:
    """Remove a user from a role."""
    async with tenant_transaction(context) as connection:
        await users.remove_member(connection, context.actor.org_id, role_id, user_id)
        await write_audit(context, connection, "role.remove", role_id, {"user": str(user_id)})


def _to_role(row: Any) -> RoleResponse:
    return RoleResponse(**{name: row[name] for name in RoleResponse.model_fields})


def _to_membership(row: Any) -> Membership:
    return Membership(**{name: row[name] for name in Membership.model_fields})
