"""Secrets of organisations: set, listed without their values, removed; and given to attempts that hold a lease."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Path

from aaiclick.server import protocol, shapes
from aaiclick.server.paging import Cursor, Limit, Page, page, text_cursor
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changing, note, operating, reading
from aaiclick.server.routes.work import lease_of, require_lease
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import org_secrets, orgs
from aaiclick.store.org_secrets import ListedSecret

routes = Routes("secrets")

SecretName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]


@routes.get("/v1/secrets", Permission.ADMIN)
async def index(call: Caller, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.SecretOut]:
    """List secrets; never their values."""
    async with reading(call) as connection:
        org = await orgs.get_org(connection, call.principal.org_id)
        found = await org_secrets.list_secrets(connection, org, after=text_cursor(cursor), limit=limit + 1)
    return page(found, limit, _secret, lambda each: each.name)


@routes.put("/v1/secrets/{name}", Permission.ADMIN)
async def put(call: Caller, name: SecretName, body: shapes.NewSecret) -> shapes.SecretOut:
    """Set a secret. Its value is never shown again."""
    async with call.service.owner() as connection:
        keys = await org_secrets.keys_for_writing(connection)
    async with changing(call) as connection:
        org = await orgs.get_org(connection, call.principal.org_id)
        value = body.value.get_secret_value()
        done = await org_secrets.set_secret(connection, org, name, value, body.host, keys)
        await note(call, connection, "secret.set", name, {"host": done.host})
    return _secret(done)


@routes.delete("/v1/secrets/{name}", Permission.ADMIN, status_code=HTTPStatus.NO_CONTENT)
async def delete(call: Caller, name: SecretName) -> None:
    """Remove a secret: tasks that use it fail from now on."""
    async with changing(call) as connection:
        await org_secrets.delete_secret(connection, call.principal.org_id, name)
        await note(call, connection, "secret.remove", name)


@routes.get("/v1/orgs/{org_id}/secrets", Permission.OPERATOR)
async def index_for(call: Caller, org_id: UUID, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.SecretOut]:
    """List secrets of another organisation; never their values."""
    async with operating(call) as connection:
        org = await orgs.get_org(connection, org_id)
        found = await org_secrets.list_secrets(connection, org, after=text_cursor(cursor), limit=limit + 1)
    return page(found, limit, _secret, lambda each: each.name)


@routes.put("/v1/orgs/{org_id}/secrets/{name}", Permission.OPERATOR)
async def put_for(call: Caller, org_id: UUID, name: SecretName, body: shapes.NewSecret) -> shapes.SecretOut:
    """Grant another organisation a secret."""
    async with operating(call) as connection:
        org = await orgs.get_org(connection, org_id)
        keys = await org_secrets.keys_for_writing(connection)
        value = body.value.get_secret_value()
        done = await org_secrets.set_secret(connection, org, name, value, body.host, keys)
        await note(call, connection, "secret.set", name, {"org": str(org_id), "host": done.host})
    return _secret(done)


@routes.delete("/v1/orgs/{org_id}/secrets/{name}", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def delete_for(call: Caller, org_id: UUID, name: SecretName) -> None:
    """Remove a secret of another organisation."""
    async with operating(call) as connection:
        await orgs.get_org(connection, org_id)
        await org_secrets.delete_secret(connection, org_id, name)
        await note(call, connection, "secret.remove", name, {"org": str(org_id)})


@routes.post("/v1/task/secrets", Permission.WORKER)
async def read(call: Caller, body: protocol.SecretsAsk) -> protocol.SecretsOut:
    """Give an attempt the secrets that its task may use; nothing to one that has lost its lease."""
    lease = lease_of(body.lease)
    await require_lease(call, lease)
    async with reading(call) as connection:
        found = await org_secrets.task_secrets(connection, lease, body.names)
    return protocol.SecretsOut(
        secrets=[protocol.SecretValue(name=each.name, value=each.value, host=each.host) for each in found]
    )


def _secret(secret: ListedSecret) -> shapes.SecretOut:
    return shapes.SecretOut(
        name=secret.name,
        host=secret.host,
        source="map" if secret.source == "map" else "stored",
        created_at=secret.created_at,
        updated_at=secret.updated_at,
    )
