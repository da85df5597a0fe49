"""Routes of approvals: list, decide, and one-time links."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from aaiclick.api.approvals import (
    Approval,
    ApprovalDetail,
    ApprovalLinkResponse,
    CreateLinkRequest,
    DecideByLinkRequest,
    DecideRequest,
    LinkRequest,
)
from aaiclick.api.field_types import Page
from aaiclick.operations import approvals as operations
from aaiclick.operations.actor import ANONYMOUS, Permission
from aaiclick.server.pagination import Cursor, Limit
from aaiclick.server.routing import Context, PathId, Routes

routes = Routes("approvals")


@routes.get("/v1/approvals", Permission.READER)
async def list_approvals(
    context: Context, everything: bool = False, cursor: Cursor = None, limit: Limit = 100
) -> Page[Approval]:
    """List approvals that wait for a decision, newest first; with `everything` those that have ended too."""
    return await context.perform(operations.list_approvals, everything=everything, cursor=cursor, limit=limit)


@routes.get("/v1/approvals/{approval_id}", Permission.READER)
async def get_approval(context: Context, approval_id: PathId) -> ApprovalDetail:
    """Get an approval with its data and its form."""
    return await context.perform(operations.get_approval, approval_id)


@routes.post("/v1/approvals/{approval_id}/decide", Permission.READER)
async def decide_approval(context: Context, approval_id: PathId, body: DecideRequest) -> ApprovalDetail:
    """Approve or reject, as a member of the role. The first decision counts."""
    return await context.perform(operations.decide_approval, approval_id, body)


@routes.post("/v1/approvals/{approval_id}/links", Permission.WRITER, status_code=HTTPStatus.CREATED)
async def create_approval_link(context: Context, approval_id: PathId, body: CreateLinkRequest) -> ApprovalLinkResponse:
    """Create a link with which a person without an account decides once."""
    return await context.perform(operations.create_approval_link, approval_id, body)


@routes.post("/v1/approval-links/show", Permission.PUBLIC)
async def get_linked_approval(context: Context, body: LinkRequest) -> ApprovalDetail:
    """Get the approval of a one-time link."""
    return await replace(context, actor=ANONYMOUS).perform(operations.get_linked_approval, body)


@routes.post("/v1/approval-links/decide", Permission.PUBLIC)
async def decide_by_link(context: Context, body: DecideByLinkRequest) -> ApprovalDetail:
    """Approve or reject by a one-time link."""
    return await replace(context, actor=ANONYMOUS).perform(operations.decide_by_link, body)
