"""Routes of API keys. A key is named by its prefix or id."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Request

from aaiclick.api.field_types import Name, Page
from aaiclick.api.tenancy import ApiKey, CreatedKeyResponse, CreateKeyRequest
from aaiclick.operations import api_keys as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.problem_responses import MalformedError
from aaiclick.server.routes.orgs import OrgName
from aaiclick.server.routing import Context, Routes

routes = Routes("keys")

KeyName = Annotated[Name, Path(description="Prefix or id of a key")]


@routes.get("/v1/keys", Permission.ADMIN)
async def list_keys(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[ApiKey]:
    """List API keys including revoked ones, without their secrets."""
    return await context.perform(operations.list_keys, cursor=cursor, limit=limit)


@routes.post("/v1/keys", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create_key(context: Context, request: Request, body: CreateKeyRequest) -> CreatedKeyResponse:
    """Create an API key. Only this response contains its secret."""
    _refuse_idempotency_key(request)
    return await context.perform(operations.create_key, body)


@routes.post("/v1/orgs/{org}/keys", Permission.OPERATOR, status_code=HTTPStatus.CREATED)
async def create_org_key(
    context: Context, request: Request, org: OrgName, body: CreateKeyRequest
) -> CreatedKeyResponse:
    """Create an API key of another organisation, such as that of its first admin."""
    _refuse_idempotency_key(request)
    return await context.perform(operations.create_org_key, org, body)


@routes.get("/v1/keys/{key}", Permission.ADMIN)
async def get_key(context: Context, key: KeyName) -> ApiKey:
    """Get an API key without its secret."""
    return await context.perform(operations.get_key, key)


@routes.delete("/v1/keys/{key}", Permission.ADMIN)
async def revoke_key(context: Context, key: KeyName) -> ApiKey:
    """Revoke an API key."""
    return await context.perform(operations.revoke_key, key)


def _refuse_idempotency_key(request: Request) -> None:
    if "idempotency-key" in request.headers:
        raise MalformedError(
            "A key cannot be created with an Idempotency-Key: its secret is not stored for a replay.",
            remedy="Look for the key (GET /v1/keys), revoke it, and create another.",
        )
