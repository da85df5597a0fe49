"""Routes of secrets: set, list without values, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Path

from aaiclick.api.field_types import Page
from aaiclick.api.orgs import SecretSummary, SetSecretRequest
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_text_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import owner_transaction, tenant_connection, tenant_transaction, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.tenancy import orgs, secrets
from aaiclick.store.tenancy.secrets import ListedSecret

routes = Routes("secrets")

SecretName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


@routes.get("/v1/secrets", Permission.ADMIN)
async def list_secrets(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[SecretSummary]:
    """List secrets without their values."""
    async with tenant_connection(context) as connection:
        org = await orgs.get_org(connection, context.actor.org_id)
        listed = await secrets.list_secrets(connection, org, after=read_text_cursor(cursor), limit=limit + 1)
    return make_page(listed, limit, _to_secret_summary, lambda secret: secret.name)


@routes.put("/v1/secrets/{name}", Permission.ADMIN)
async def set_secret(context: Context, name: SecretName, body: SetSecretRequest) -> SecretSummary:
    """Set a secret. Its value is not readable afterwards."""
    async with context.app_state.owner_connection() as connection:
        keys = await secrets.load_keys_for_writing(connection)
    async with tenant_transaction(context) as connection:
        org = await orgs.get_org(connection, context.actor.org_id)
        value = body.value.get_secret_value()
        stored = await secrets.set_secret(connection, org, name, value, body.host, keys)
        await write_audit(context, connection, "secret.set", name, {"host": stored.host})
    return _to_secret_summary(stored)


@routes.delete("/v1/secrets/{name}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_secret(context: Context, name: SecretName) -> None:
    """Delete a secret: tasks that use it fail from now on."""
    async with tenant_transaction(context) as connection:
        await secrets.delete_secret(connection, context.actor.org_id, name)
        await write_audit(context, connection, "secret.remove", name)


@routes.get("/v1/orgs/{org_id}/secrets", Permission.OPERATOR)
async def list_org_secrets(
    context: Context, org_id: UUID, cursor: Cursor = None, limit: Limit = 100
) -> Page[SecretSummary]:
    """List secrets of another organisation without their values."""
    async with owner_transaction(context) as connection:
        org = await orgs.get_org(connection, org_id)
        listed = await secrets.list_secrets(connection, org, after=read_text_cursor(cursor), limit=limit + 1)
    return make_page(listed, limit, _to_secret_summary, lambda secret: secret.name)


@routes.put("/v1/orgs/{org_id}/secrets/{name}", Permission.OPERATOR)
async def set_org_secret(context: Context, org_id: UUID, name: SecretName, body: SetSecretRequest) -> SecretSummary:
    """Set a secret of another organisation."""
    async with owner_transaction(context) as connection:
        org = await orgs.get_org(connection, org_id)
        keys = await secrets.load_keys_for_writing(connection)
        value = body.value.get_secret_value()
        stored = await secrets.set_secret(connection, org, name, value, body.host, keys)
        await write_audit(context, connection, "secret.set", name, {"org": str(org_id), "host": stored.host})
    return _to_secret_summary(stored)


@routes.delete("/v1/orgs/{org_id}/secrets/{name}", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def delete_org_secret(context: Context, org_id: UUID, name: SecretName) -> None:
    """Delete a secret of another organisation."""
    async with owner_transaction(context) as connection:
        await orgs.get_org(connection, org_id)
        await secrets.delete_secret(connection, org_id, name)
        await write_audit(context, connection, "secret.remove", name, {"org": str(org_id)})


def _to_secret_summary(secret: ListedSecret) -> SecretSummary:
    return SecretSummary(
        name=secret.name,
        host=secret.host,
        source="map" if secret.source == "map" else "stored",
        created_at=secret.created_at,
        updated_at=secret.updated_at,
    )
