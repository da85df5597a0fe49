"""Operations on dataset roles and their members. A role is named by its slug or id, a user by its subject or id."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import CreateRoleRequest, Membership, RoleResponse
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.store.tenancy import users
from aaiclick.store.tenancy.users import MembershipRow, RoleRow

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.READER, changes=False)
async def list_roles(
    connection: Connection, actor: Actor, *, cursor: str | None = None, limit: int = 100
) -> Page[RoleResponse]:
    """List roles."""
    after = read_uuid_cursor(cursor)
    rows = await users.list_roles(connection, actor.org_id, after=after, limit=limit + 1)
    return make_page(rows, limit, _to_role, lambda row: row.id)


@operation(Permission.ADMIN)
async def create_role(connection: Connection, actor: Actor, new_role: CreateRoleRequest) -> RoleResponse:
    """Create a role."""
    row = await users.create_role(connection, actor.org_id, slug=new_role.slug, name=new_role.name)
    await write_audit(connection, actor, "role.create", row.id, {"slug": row.slug})
    return _to_role(row)


@operation(Permission.ADMIN)
async def delete_role(connection: Connection, actor: Actor, role: str) -> None:
    """Delete a role and its memberships."""
    role_id = (await users.get_role(connection, actor.org_id, role)).id
    await users.delete_role(connection, actor.org_id, role_id)
    await write_audit(connection, actor, "role.delete", role_id)


@operation(Permission.ADMIN, changes=False)
async def list_role_members(
    connection: Connection, actor: Actor, role: str, *, cursor: str | None = None, limit: int = 100
) -> Page[Membership]:
    """List the members of a role."""
    role_id = (await users.get_role(connection, actor.org_id, role)).id
    after = read_uuid_cursor(cursor)
    rows = await users.list_members(connection, actor.org_id, role_id, after=after, limit=limit + 1)
    return make_page(rows, limit, _to_membership, lambda row: row.user_id)


@operation(Permission.ADMIN)
async def grant_role(connection: Connection, actor: Actor, role: str, user: str) -> Membership:
    """Grant a role to a user."""
    role_id, user_id = await _find_ids(connection, actor, role, user)
    row = await users.add_member(connection, actor.org_id, role_id, user_id)
    await write_audit(connection, actor, "role.add", role_id, {"user": str(user_id)})
    return _to_membership(row)


@operation(Permission.ADMIN)
async def revoke_role(connection: Connection, actor: Actor, role: str, user: str) -> None:
    """Revoke a role from a user."""
    role_id, user_id = await _find_ids(connection, actor, role, user)
    await users.remove_member(connection, actor.org_id, role_id, user_id)
    await write_audit(connection, actor, "role.remove", role_id, {"user": str(user_id)})


async def _find_ids(connection: Connection, actor: Actor, role: str, user: str) -> tuple[UUID, UUID]:
    role_row = await users.get_role(connection, actor.org_id, role)
    return role_row.id, (await users.get_user(connection, actor.org_id, user)).id


def _to_role(row: RoleRow) -> RoleResponse:
    return RoleResponse.model_validate(row, from_attributes=True)


def _to_membership(row: MembershipRow) -> Membership:
    return Membership.model_validate(row, from_attributes=True)
