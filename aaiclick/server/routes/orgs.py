"""Organisations: one's own for everybody, all of them for the operator."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Any
from uuid import UUID

from aaiclick.errors import NotFoundError, UnreachableError
from aaiclick.server import shapes
from aaiclick.server.paging import Cursor, Limit, Page, page, uuid_cursor
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import note, operating, reading
from aaiclick.server.routing import Caller, Routes
from aaiclick.store import control, orgs
from aaiclick.store.orgs import Limits

routes = Routes("orgs")


@routes.get("/v1/whoami", Permission.READER)
async def whoami(call: Caller) -> shapes.Whoami:
    """Say who the credential stands for."""
    who = call.principal
    return shapes.Whoami(org_id=who.org_id, actor=who.actor, scopes=sorted(who.scopes))


@routes.get("/v1/orgs", Permission.READER)
async def index(call: Caller, cursor: Cursor = None, limit: Limit = 100) -> Page[shapes.Org]:
    """List organisations: one's own; for an admin of the operator's, all."""
    if Permission.OPERATOR in call.principal.permissions:
        async with call.service.owner() as connection:
            rows = await orgs.list_orgs(connection, after=uuid_cursor(cursor), limit=limit + 1)
    else:
        async with reading(call) as connection:
            rows = [await orgs.get_org(connection, call.principal.org_id)]
    return page(rows, limit, _org, lambda row: row["id"])


@routes.post("/v1/orgs", Permission.OPERATOR, status_code=HTTPStatus.CREATED)
async def create(call: Caller, body: shapes.NewOrg) -> shapes.Org:
    """Make an organisation."""
    limits = Limits(**body.model_dump(exclude={"name", "slug"}))
    async with operating(call) as connection:
        row = await orgs.create_org(connection, name=body.name, slug=body.slug, limits=limits)
        await note(call, connection, "org.create", row["id"], {"slug": body.slug})
    with suppress(UnreachableError):  # whoever needs it first makes it then
        await call.service.clickhouse(row["id"])
    return _org(row)


@routes.get("/v1/orgs/{org_id}", Permission.READER)
async def show(call: Caller, org_id: UUID) -> shapes.Org:
    """Show an organisation."""
    if org_id == call.principal.org_id:
        async with reading(call) as connection:
            return _org(await orgs.get_org(connection, org_id))
    if Permission.OPERATOR not in call.principal.permissions:
        raise NotFoundError(f"There is no org {org_id}.")
    async with call.service.owner() as connection:
        return _org(await orgs.get_org(connection, org_id))


@routes.put("/v1/orgs/{org_id}", Permission.OPERATOR)
async def change(call: Caller, org_id: UUID, body: shapes.OrgChange) -> shapes.Org:
    """Change the name, the share and the limits of an organisation."""
    limits = Limits(**body.model_dump(exclude={"name"}))
    async with operating(call) as connection:
        row = await orgs.change_org(connection, org_id, name=body.name, limits=limits)
        await note(call, connection, "org.change", org_id, body.model_dump(exclude_none=True))
    return _org(row)


@routes.post("/v1/orgs/{org_id}/pause", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def pause(call: Caller, org_id: UUID) -> None:
    """Let nothing more of an organisation begin."""
    async with operating(call) as connection:
        await control.pause_org(connection, org_id)
        await note(call, connection, "org.pause", org_id)


@routes.post("/v1/orgs/{org_id}/resume", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def resume(call: Caller, org_id: UUID) -> None:
    """Let a paused organisation go on."""
    async with operating(call) as connection:
        await control.resume_org(connection, org_id)
        await note(call, connection, "org.resume", org_id)


def _org(row: Any) -> shapes.Org:
    return shapes.Org(**{name: row[name] for name in shapes.Org.model_fields})
