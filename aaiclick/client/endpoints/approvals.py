"""Endpoints of approvals and their one-time links."""

from __future__ import annotations

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
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class ApprovalEndpoints:
    """Methods for approvals."""

    @listing
    def list_approvals(
        self, *, everything: bool = False, cursor: str | None = None, limit: int = 100
    ) -> ApiRequest[Page[Approval]]:
        """Iterate over approvals that wait for a decision, newest first; with `everything` over all."""
        query = {"everything": everything or None, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[Approval], "approvals", query=query)

    @endpoint
    def get_approval(self, approval_id: int) -> ApiRequest[ApprovalDetail]:
        """Get an approval with its data and its form."""
        return build_request("GET", ApprovalDetail, "approvals", approval_id)

    @endpoint
    def decide_approval(self, approval_id: int, decision: DecideRequest) -> ApiRequest[ApprovalDetail]:
        """Approve or reject. The first decision counts; later ones receive a conflict that names it."""
        return build_request("POST", ApprovalDetail, "approvals", approval_id, "decide", body=decision)

    @endpoint
    def create_approval_link(self, approval_id: int, link: CreateLinkRequest) -> ApiRequest[ApprovalLinkResponse]:
        """Create a link with which a person without an account decides once."""
        return build_request("POST", ApprovalLinkResponse, "approvals", approval_id, "links", body=link)

    @endpoint
    def get_linked_approval(self, link: LinkRequest) -> ApiRequest[ApprovalDetail]:
        """Get the approval of a one-time link."""
        return build_request("POST", ApprovalDetail, "approval-links", "show", body=link)

    @endpoint
    def decide_by_link(self, request: DecideByLinkRequest) -> ApiRequest[ApprovalDetail]:
        """Approve or reject by a one-time link."""
        return build_request("POST", ApprovalDetail, "approval-links", "decide", body=request)
