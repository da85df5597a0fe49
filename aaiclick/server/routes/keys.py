"""API keys: made, listed without their secrets, revoked."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from uuid import UUID

from fastapi import Request

from aaiclick.errors import NotFoundError
from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, page, uuid_cursor
from aaiclick.server.permissions import Permission
from aaiclick.server.problems import MalformedError
from aaiclick.server.routes.common import changing, note, operating, reading
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import keys, orgs

routes = Routes("keys")


@routes.get("/v1/keys", Permission.ADMIN)
async def index(call: Caller, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.KeyOut]:
    """List keys, revoked ones too; never their secrets."""
    async with reading(call) as connection:
        rows = await keys.list_keys(connection, call.principal.org_id, after=uuid_cursor(cursor), limit=limit + 1)
    return page(rows, limit, _key, lambda row: row["id"])


@routes.post("/v1/keys", Permission.ADMIN, status_code=HTTPStatus.CREATED)
async def create(call: Caller, request: Request, body: shapes.NewKey) -> shapes.KeyMade:
    """Make a key. Its text is in this answer and nowhere else."""
    if "idempotency-key" in request.headers:
        raise MalformedError(
            "Making a key takes no Idempotency-Key: answering again would mean keeping the secret.",
            remedy="Look whether the key is there (GET /v1/keys), revoke it, and make another.",
        )
    async with changing(call) as connection:
        made = await keys.create_key(connection, org_id=call.principal.org_id, **body.model_dump())
        await note(call, connection, "key.create", made.row["prefix"], {"scopes": list(made.row["scopes"])})
    return shapes.KeyMade(**_key(made.row).model_dump(), key=made.text)


@routes.post("/v1/orgs/{org_id}/keys", Permission.OPERATOR, status_code=HTTPStatus.CREATED)
async def create_for(call: Caller, org_id: UUID, body: shapes.NewKey) -> shapes.KeyMade:
    """Make a key of another organisation: how it gets its first admin."""
    async with operating(call) as connection:
        await orgs.get_org(connection, org_id)
        made = await keys.create_key(connection, org_id=org_id, **body.model_dump())
        await note(call, connection, "key.create", made.row["prefix"], {"org": str(org_id)})
    return shapes.KeyMade(**_key(made.row).model_dump(), key=made.text)


@routes.get("/v1/keys/{key_id}", Permission.ADMIN)
async def show(call: Caller, key_id: UUID) -> shapes.KeyOut:
    """Show a key without its secret."""
    async with reading(call) as connection:
        row = await keys.get_key(connection, call.principal.org_id, key_id)
    if row is None:
        raise NotFoundError(f"There is no key {key_id}.", remedy="GET /v1/keys lists them.")
    return _key(row)


@routes.delete("/v1/keys/{key_id}", Permission.ADMIN)
async def revoke(call: Caller, key_id: UUID) -> shapes.KeyOut:
    """Revoke a key: it opens nothing from now on."""
    async with changing(call) as connection:
        row = await keys.revoke_key(connection, call.principal.org_id, key_id)
        await note(call, connection, "key.revoke", row["prefix"])
    return _key(row)


def _key(row: Any) -> shapes.KeyOut:
    return shapes.KeyOut(**{name: row[name] for name in shapes.KeyOut.model_fields})
