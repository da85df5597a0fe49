"""Operations on API keys. A key is named by its prefix or id."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import ApiKey, CreatedKeyResponse, CreateKeyRequest
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.orgs import act_for_org
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.store.tenancy import api_keys
from aaiclick.store.tenancy.api_keys import KeyRow

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.ADMIN, changes=False)
async def list_keys(
    connection: Connection, actor: Actor, *, cursor: str | None = None, limit: int = 100
) -> Page[ApiKey]:
    """List API keys including revoked ones, without their secrets."""
    after = read_uuid_cursor(cursor)
    rows = await api_keys.list_keys(connection, actor.org_id, after=after, limit=limit + 1)
    return make_page(rows, limit, _to_key, lambda row: row.id)


@operation(Permission.ADMIN, changes=False)
async def get_key(connection: Connection, actor: Actor, key: str) -> ApiKey:
    """Get an API key without its secret."""
    return _to_key(await api_keys.get_key(connection, actor.org_id, key))


@operation(Permission.ADMIN)
async def create_key(connection: Connection, actor: Actor, new_key: CreateKeyRequest) -> CreatedKeyResponse:
    """Create an API key. Only this response contains its secret."""
    created = await api_keys.create_key(
        connection,
        org_id=actor.org_id,
        name=new_key.name,
        scopes=new_key.scopes,
        user_id=new_key.user_id,
        lifetime_seconds=new_key.lifetime_seconds,
    )
    await write_audit(connection, actor, "key.create", created.row.prefix, {"scopes": created.row.scopes})
    return CreatedKeyResponse(**asdict(created.row), key=created.text)


@operation(Permission.OPERATOR, as_owner=True)
async def create_org_key(
    connection: Connection, actor: Actor, org: str, new_key: CreateKeyRequest
) -> CreatedKeyResponse:
    """Create an API key of another organisation, such as that of its first admin."""
    return await create_key(connection, await act_for_org(connection, actor, org), new_key)


@operation(Permission.ADMIN)
async def revoke_key(connection: Connection, actor: Actor, key: str) -> ApiKey:
    """Revoke an API key."""
    row = await api_keys.revoke_key(connection, actor.org_id, key)
    await write_audit(connection, actor, "key.revoke", row.prefix)
    return _to_key(row)


def _to_key(row: KeyRow) -> ApiKey:
    return ApiKey.model_validate(row, from_attributes=True)
