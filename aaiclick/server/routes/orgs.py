"""Routes of organisations: the caller's own, or all for the operator."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Any
from uuid import UUID

from aaiclick.api.field_types import Page
from aaiclick.api.orgs import CreateOrgRequest, Org, UpdateOrgRequest, WhoamiResponse
from aaiclick.errors import NotFoundError, UnreachableError
from aaiclick.operations.actor import Permission
from aaiclick.operations.pagination import make_page, read_uuid_cursor
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routes.common import owner_transaction, tenant_connection, write_audit
from aaiclick.server.routing import Context, Routes
from aaiclick.store.engine import control
from aaiclick.store.tenancy import orgs
from aaiclick.store.tenancy.orgs import ClaimLimits

routes = Routes("orgs")


@routes.get("/v1/whoami", Permission.READER)
async def get_whoami(context: Context) -> WhoamiResponse:
    """Get the organisation, actor and scopes of the credential."""
    actor = context.actor
    return WhoamiResponse(org_id=actor.org_id, actor=actor.name, scopes=sorted(actor.scopes))


@routes.get("/v1/orgs", Permission.READER)
async def list_orgs(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[Org]:
    """List organisations: the caller's own, or all for the operator."""
    if Permission.OPERATOR in context.actor.permissions:
        async with context.app_state.owner_connection() as connection:
            rows = await orgs.list_orgs(connection, after=read_uuid_cursor(cursor), limit=limit + 1)
    else:
        async with tenant_connection(context) as connection:
            rows = [await orgs.get_org(connection, context.actor.org_id)]
    return make_page(rows, limit, _to_org, lambda row: row["id"])


@routes.post("/v1/orgs", Permission.OPERATOR, status_code=HTTPStatus.CREATED)
async def create_org(context: Context, body: CreateOrgRequest) -> Org:
    """Create an organisation."""
    limits = ClaimLimits(**body.model_dump(exclude={"name", "slug"}))
    async with owner_transaction(context) as connection:
        row = await orgs.create_org(connection, name=body.name, slug=body.slug, limits=limits)
        await write_audit(context, connection, "org.create", row["id"], {"slug": body.slug})
    with suppress(UnreachableError):  # the database is created at its first use
        await context.app_state.clickhouse_endpoint(row["id"])
    return _to_org(row)


@routes.get("/v1/orgs/{org_id}", Permission.READER)
async def get_org(context: Context, org_id: UUID) -> Org:
    """Get an organisation."""
    if org_id == context.actor.org_id:
        async with tenant_connection(context) as connection:
            return _to_org(await orgs.get_org(connection, org_id))
    if Permission.OPERATOR not in context.actor.permissions:
        raise NotFoundError(f"There is no org {org_id}.")
    async with context.app_state.owner_connection() as connection:
        return _to_org(await orgs.get_org(connection, org_id))


@routes.put("/v1/orgs/{org_id}", Permission.OPERATOR)
async def update_org(context: Context, org_id: UUID, body: UpdateOrgRequest) -> Org:
    """Update the name, weight and limits of an organisation."""
    limits = ClaimLimits(**body.model_dump(exclude={"name"}))
    async with owner_transaction(context) as connection:
        row = await orgs.update_org(connection, org_id, name=body.name, limits=limits)
        await write_audit(context, connection, "org.change", org_id, body.model_dump(exclude_none=True))
    return _to_org(row)


@routes.post("/v1/orgs/{org_id}/pause", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def pause_org(context: Context, org_id: UUID) -> None:
    """Pause an organisation: none of its tasks starts."""
    async with owner_transaction(context) as connection:
        await control.pause_org(connection, org_id)
        await write_audit(context, connection, "org.pause", org_id)


@routes.post("/v1/orgs/{org_id}/resume", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def resume_org(context: Context, org_id: UUID) -> None:
    """Resume a paused organisation."""
    async with owner_transaction(context) as connection:
        await control.resume_org(connection, org_id)
        await write_audit(context, connection, "org.resume", org_id)


def _to_org(row: Any) -> Org:
    return Org(**{name: row[name] for name in Org.model_fields})
