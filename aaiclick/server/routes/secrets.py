"""Routes of secrets: set, list without values, delete."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.field_types import Page
from aaiclick.api.tenancy import SecretSummary, SetSecretRequest
from aaiclick.operations import secrets as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.orgs import OrgName
from aaiclick.server.routing import Context, Routes

routes = Routes("secrets")

SecretName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


@routes.get("/v1/secrets", Permission.ADMIN)
async def list_secrets(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[SecretSummary]:
    """List secrets without their values."""
    return await context.perform(operations.list_secrets, cursor=cursor, limit=limit)


@routes.put("/v1/secrets/{name}", Permission.ADMIN)
async def set_secret(context: Context, name: SecretName, body: SetSecretRequest) -> SecretSummary:
    """Set a secret. Its value is not readable afterwards."""
    return await context.perform(operations.set_secret, name, body)


@routes.delete("/v1/secrets/{name}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete_secret(context: Context, name: SecretName) -> None:
    """Delete a secret: tasks that use it fail from now on."""
    await context.perform(operations.delete_secret, name)


@routes.get("/v1/orgs/{org}/secrets", Permission.OPERATOR)
async def list_org_secrets(
    context: Context, org: OrgName, cursor: Cursor = None, limit: Limit = 100
) -> Page[SecretSummary]:
    """List secrets of another organisation without their values."""
    return await context.perform(operations.list_org_secrets, org, cursor=cursor, limit=limit)


@routes.put("/v1/orgs/{org}/secrets/{name}", Permission.OPERATOR)
async def set_org_secret(context: Context, org: OrgName, name: SecretName, body: SetSecretRequest) -> SecretSummary:
    """Set a secret of another organisation."""
    return await context.perform(operations.set_org_secret, org, name, body)


@routes.delete("/v1/orgs/{org}/secrets/{name}", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def delete_org_secret(context: Context, org: OrgName, name: SecretName) -> None:
    """Delete a secret of another organisation."""
    await context.perform(operations.delete_org_secret, org, name)
