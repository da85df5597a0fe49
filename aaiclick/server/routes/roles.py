"""Routes of dataset roles and their members. A role is named by its slug or id."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.field_types import Name, Page
from aaiclick.api.tenancy import CreateRoleRequest, Membership, RoleResponse
from aaiclick.operations import roles as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.users import UserName
from aaiclick.server.routing import Context, Routes

routes = Routes("roles")

RoleName = Annotated[Name, Path(description="Slug or id of a role")]


@routes.get("/v1/roles", Permission.READER)
async def list_roles(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[RoleResponse]:
    """List roles."""
    return await context.perform(operations.list_roles, cursor=cursor, limit=limit)


@routes.post("/v1/roles", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create_role(context: Context, body: CreateRoleRequest) -> RoleResponse:
    """Create a role."""
    return await context.perform(operations.create_role, body)


@routes.delete("/v1/roles/{role}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_role(context: Context, role: RoleName) -> None:
    """Delete a role and its memberships."""
    await context.perform(operations.delete_role, role)


@routes.get("/v1/roles/{role}/members", Permission.ADMIN)
async def list_role_members(
    context: Context, role: RoleName, cursor: Cursor = None, limit: Limit = 100
) -> Page[Membership]:
    """List the members of a role."""
    return await context.perform(operations.list_role_members, role, cursor=cursor, limit=limit)


@routes.put("/v1/roles/{role}/members/{user:path}", Permission.ADMIN)
async def grant_role(context: Context, role: RoleName, user: UserName) -> Membership:
    """Grant a role to a user."""
    return await context.perform(operations.grant_role, role, user)


@routes.delete("/v1/roles/{role}/members/{user:path}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def revoke_role(context: Context, role: RoleName, user: UserName) -> None:
    """Revoke a role from a user."""
    await context.perform(operations.revoke_role, role, user)
