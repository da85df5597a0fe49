"""Routes of organisations: the caller's own, or all for the operator. An organisation is named by its slug or id."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from aaiclick.api.field_types import Name, Page
from aaiclick.api.tenancy import CreateOrgRequest, Org, UpdateOrgRequest, WhoamiResponse
from aaiclick.operations import orgs as operations
from aaiclick.operations.actor import Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, Routes

routes = Routes("orgs")

OrgName = Annotated[Name, Path(description="Slug or id of an organisation")]


@routes.get("/v1/whoami", Permission.READER)
async def whoami(context: Context) -> WhoamiResponse:
    """Get the organisation, actor and scopes of the credential."""
    return await context.perform(operations.whoami)


@routes.get("/v1/orgs", Permission.READER)
async def list_orgs(context: Context, cursor: Cursor = None, limit: Limit = 100) -> Page[Org]:
    """List organisations: the caller's own, or all for the operator."""
    return await context.perform(operations.list_orgs, cursor=cursor, limit=limit)


@routes.post("/v1/orgs", Permission.OPERATOR, status_code=HTTPStatus.CREATED)
async def create_org(context: Context, body: CreateOrgRequest) -> Org:
    """Create an organisation."""
    return await context.perform(operations.create_org, body)


@routes.get("/v1/orgs/{org}", Permission.READER)
async def get_org(context: Context, org: OrgName) -> Org:
    """Get an organisation."""
    return await context.perform(operations.get_org, org)


@routes.put("/v1/orgs/{org}", Permission.OPERATOR)
async def update_org(context: Context, org: OrgName, body: UpdateOrgRequest) -> Org:
    """Set the weight and limits of an organisation, and its name if given; an omitted limit is removed."""
    return await context.perform(operations.update_org, org, body)


@routes.post("/v1/orgs/{org}/pause", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def pause_org(context: Context, org: OrgName) -> None:
    """Pause an organisation: none of its tasks starts."""
    await context.perform(operations.pause_org, org)


@routes.post("/v1/orgs/{org}/resume", Permission.OPERATOR, status_code=HTTPStatus.NO_CONTENT)
async def resume_org(context: Context, org: OrgName) -> None:
    """Resume a paused organisation."""
    await context.perform(operations.resume_org, org)
