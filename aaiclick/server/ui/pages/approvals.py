"""Approval pages: what waits for people, one approval with its data and form, and the page of a one-time link."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from aaiclick.api.approval_forms import list_fields, parse_form_fields
from aaiclick.api.approvals import ApprovalDetail, CreateLinkRequest, DecideByLinkRequest, DecideRequest, LinkRequest
from aaiclick.api.field_types import parse_fields
from aaiclick.errors import AaiclickError, ConflictError, RequestError
from aaiclick.operations import approvals as operations
from aaiclick.operations.actor import ANONYMOUS, Permission
from aaiclick.server.routing import RequestContext
from aaiclick.server.ui.routing import PageNotFoundError, PageRequest, Pages

pages = Pages()

MAX_ROWS = 100
FIELD_PREFIX = "value:"


@pages.get("/approvals", Permission.READER)
async def list_approvals(page: PageRequest) -> Response:
    everything = bool(page.query_param("all"))
    listed = await page.call.perform(
        operations.list_approvals, everything=everything, cursor=page.query_param("cursor") or None, limit=MAX_ROWS
    )
    return page.render("approvals.html", approvals=listed.items, next_cursor=listed.next, everything=everything)


@pages.get("/approvals/{approval_id:id}", Permission.READER)
async def show_approval(page: PageRequest) -> Response:
    return _render(page, await page.call.perform(operations.get_approval, _approval_id(page)))


@pages.post("/approvals/{approval_id:id}/decide", Permission.READER)
async def decide_approval(page: PageRequest) -> Response:
    approval_id = _approval_id(page)
    approval = await page.call.perform(operations.get_approval, approval_id)
    try:
        decided = await page.call.perform(operations.decide_approval, approval_id, _read_decision(page, approval))
    except ConflictError as error:
        return page.redirect(f"/approvals/{approval_id}", error.what, is_error=True)
    except RequestError as error:
        return _render(page, approval, error)
    return page.redirect("/approvals", f"{decided.title}: {decided.state}.")


@pages.post("/approvals/{approval_id:id}/links", Permission.WRITER)
async def create_link(page: PageRequest) -> Response:
    """Show a new link; it is not stored, so there is no redirect."""
    approval_id = _approval_id(page)
    request = parse_fields(CreateLinkRequest, {"recipient": page.form_field("recipient")})
    link = await page.call.perform(operations.create_approval_link, approval_id, request)
    base = "" if link.url.startswith("http") else str(page.request.base_url).rstrip("/")
    approval = await page.call.perform(operations.get_approval, approval_id)
    return _render(page, approval, link=f"{base}{link.url}")


@pages.get("/approve/{token}", Permission.PUBLIC)
async def show_linked_approval(page: PageRequest) -> Response:
    """Show the approval of a link. Programs that open links in advance decide nothing: that needs a POST."""
    approval = await _anonymous(page).perform(operations.get_linked_approval, _link(page))
    return _render(page, approval, action=page.request.url.path)


@pages.post("/approve/{token}", Permission.PUBLIC)
async def decide_by_link(page: PageRequest) -> Response:
    link = _link(page)
    approval = await _anonymous(page).perform(operations.get_linked_approval, link)
    try:
        request = DecideByLinkRequest(token=link.token, decision=_read_decision(page, approval))
        await _anonymous(page).perform(operations.decide_by_link, request)
    except ConflictError as error:
        return page.redirect(page.request.url.path, error.what, is_error=True)
    except RequestError as error:
        return _render(page, approval, error, action=page.request.url.path)
    return page.redirect(page.request.url.path, "Your decision was recorded.")


def _approval_id(page: PageRequest) -> int:
    return int(page.request.path_params["approval_id"])


def _link(page: PageRequest) -> LinkRequest:
    try:
        return parse_fields(LinkRequest, {"token": str(page.request.path_params["token"])})
    except RequestError:
        raise PageNotFoundError("Invalid link.", remedy="Ask for a new one.") from None


def _anonymous(page: PageRequest) -> RequestContext:
    return RequestContext(page.app_state, ANONYMOUS, page.request.state.request_id)


def _read_decision(page: PageRequest, approval: ApprovalDetail) -> DecideRequest:
    approve = page.form_field("decision") == "approve"
    posted = {name.removeprefix(FIELD_PREFIX): values for name, values in page.form.items()}
    values = parse_form_fields(approval.form, posted) if approve else {}
    return parse_fields(DecideRequest, {"approve": approve, "reason": page.form_field("reason"), "values": values})


def _render(
    page: PageRequest, approval: ApprovalDetail, error: AaiclickError | None = None, *, link: str = "", action: str = ""
) -> Response:
    shown = approval.shown
    rows: list[dict[str, Any]] = []
    if shown is not None:
        rows = [dict(zip(shown.columns, row, strict=False)) for row in shown.rows]
    return page.render(
        "approval.html",
        approval=approval,
        rows=rows,
        fields=list_fields(approval.form),
        posted={name: values[0] for name, values in page.form.items()},
        error=error,
        link=link,
        action=action or f"/approvals/{approval.id}/decide",
        by_link=bool(action),
    )
