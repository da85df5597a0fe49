"""Routes of API keys."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from fastapi import Request

from aaiclick.api.field_types import Page
from aaiclick.api.orgs import ApiKey, CreatedKeyResponse, CreateKeyRequest
from aaiclick.errors import NotFoundError
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.problems import MalformedError
from aaiclick.server.routes.common import owner_transaction, tenant_connection, tenant_transaction, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.tenancy import api_keys, orgs

routes = Routes("keys")


@routes.get("/v1/keys", Permission.ADMIN)
async def list_keys(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[ApiKey]:
    """List API keys including revoked ones, without their secrets."""
    async with tenant_connection(context) as connection:
        rows = await api_keys.list_keys(
            connection, context.actor.org_id, after=read_uuid_cursor(cursor), limit=limit + 1
        )
    return make_page(rows, limit, _to_api_key, lambda row: row["id"])


@routes.post("/v1/keys", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create_key(context: Context, request: Request, body: CreateKeyRequest) -> CreatedKeyResponse:
    """Create an API key. Only this response contains its secret."""
    if "idempotency-key" in request.headers:
        raise MalformedError(
            "A key cannot be created with an Idempotency-Key: its secret is not stored for a replay.",
            remedy="Look for the key (GET /v1/keys), revoke it, and create another.",
        )
    async with tenant_transaction(context) as connection:
        created_key = await api_keys.create_key(connection, org_id=context.actor.org_id, **body.model_dump())
        await write_audit(
            context, connection, "key.create", created_key.row["prefix"], {"scopes": list(created_key.row["scopes"])}
        )
    return CreatedKeyResponse(**_to_api_key(created_key.row).model_dump(), key=created_key.text)


@routes.post("/v1/orgs/{org_id}/keys", Permission.OPERATOR, status_code=HTTPStatus.CREATED)
async def create_org_key(context: Context, org_id: UUID, body: CreateKeyRequest) -> CreatedKeyResponse:
    """Create an API key of another organisation, such as that of its first admin."""
    async with owner_transaction(context) as connection:
        await orgs.get_org(connection, org_id)
        created_key = await api_keys.create_key(connection, org_id=org_id, **body.model_dump())
        await write_audit(context, connection, "key.create", created_key.row["prefix"], {"org": str(org_id)})
    return CreatedKeyResponse(**_to_api_key(created_key.row).model_dump(), key=created_key.text)


@routes.get("/v1/keys/{key_id}", Permission.ADMIN)
async def get_key(context: Context, key_id: UUID) -> ApiKey:
    """Get an API key without its secret."""
    async with tenant_connection(context) as connection:
        row = await api_keys.get_key(connection, context.actor.org_id, key_id)
    if row is None:
        raise NotFoundError(f"There is no key {key_id}.", remedy="GET /v1/keys lists them.")
    return _to_api_key(row)


@routes.delete("/v1/keys/{key_id}", Permission.ADMIN)
async def revoke_key(context: Context, key_id: UUID) -> ApiKey:
    """Revoke an API key."""
    async with tenant_transaction(context) as connection:
        row = await api_keys.revoke_key(connection, context.actor.org_id, key_id)
        await write_audit(context, connection, "key.revoke", row["prefix"])
    return _to_api_key(row)


def _to_api_key(row: Any) -> ApiKey:
    return ApiKey(**{name: row[name] for name in ApiKey.model_fields})
