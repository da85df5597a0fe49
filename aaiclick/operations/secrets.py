"""Operations on secrets. Their values are written, and read only by attempts that hold a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import SecretSummary, SetSecretRequest
from aaiclick.operations.actor import Actor, Permission
from aaiclick.operations.database_access import Databases, open_transaction
from aaiclick.operations.operation import databases_operation, operation, write_audit
from aaiclick.operations.orgs import act_for_org
from aaiclick.operations.pagination import make_page, read_text_cursor
from aaiclick.store.tenancy import orgs, secrets
from aaiclick.store.tenancy.secret_encryption import KeyRing
from aaiclick.store.tenancy.secrets import ListedSecret

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


@operation(Permission.ADMIN, changes=False)
async def list_secrets(
    connection: Connection, actor: Actor, *, cursor: str | None = None, limit: int = 100
) -> Page[SecretSummary]:
    """List secrets without their values."""
    org = await orgs.get_org(connection, actor.org_id)
    rows = await secrets.list_secrets(connection, org, after=read_text_cursor(cursor), limit=limit + 1)
    return make_page(rows, limit, _to_summary, lambda row: row.name)


@databases_operation(Permission.ADMIN)
async def set_secret(databases: Databases, actor: Actor, name: str, secret: SetSecretRequest) -> SecretSummary:
    """Set a secret. Its value is not readable afterwards."""
    async with databases.connect(as_owner=True) as connection:
        keys = await secrets.load_keys_for_writing(connection)
    async with open_transaction(databases) as connection:
        return await _store_secret(connection, actor, name, secret, keys)


async def _store_secret(
    connection: Connection, actor: Actor, name: str, secret: SetSecretRequest, keys: KeyRing
) -> SecretSummary:
    org = await orgs.get_org(connection, actor.org_id)
    stored = await secrets.set_secret(connection, org, name, secret.value.get_secret_value(), secret.host, keys)
    await write_audit(connection, actor, "secret.set", name, {"host": stored.host})
    return _to_summary(stored)


@operation(Permission.ADMIN)
async def delete_secret(connection: Connection, actor: Actor, name: str) -> None:
    """Delete a secret: tasks that use it fail from now on."""
    secrets.check_secret_name(name)
    await secrets.delete_secret(connection, actor.org_id, name)
    await write_audit(connection, actor, "secret.remove", name)


@operation(Permission.OPERATOR, as_owner=True, changes=False)
async def list_org_secrets(
    connection: Connection, actor: Actor, org: str, *, cursor: str | None = None, limit: int = 100
) -> Page[SecretSummary]:
    """List secrets of another organisation without their values."""
    return await list_secrets(connection, await act_for_org(connection, actor, org), cursor=cursor, limit=limit)


@operation(Permission.OPERATOR, as_owner=True)
async def set_org_secret(
    connection: Connection, actor: Actor, org: str, name: str, secret: SetSecretRequest
) -> SecretSummary:
    """Set a secret of another organisation."""
    keys = await secrets.load_keys_for_writing(connection)
    return await _store_secret(connection, await act_for_org(connection, actor, org), name, secret, keys)


@operation(Permission.OPERATOR, as_owner=True)
async def delete_org_secret(connection: Connection, actor: Actor, org: str, name: str) -> None:
    """Delete a secret of another organisation."""
    await delete_secret(connection, await act_for_org(connection, actor, org), name)


def _to_summary(secret: ListedSecret) -> SecretSummary:
    return SecretSummary.model_validate(secret, from_attributes=True)
