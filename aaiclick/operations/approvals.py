"""Operations on approvals and their one-time links."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from aaiclick.api.approval_forms import check_answers
from aaiclick.api.approvals import (
    Approval,
    ApprovalDetail,
    ApprovalLinkResponse,
    CreateLinkRequest,
    DecideByLinkRequest,
    DecideRequest,
    LinkRequest,
    ShownData,
)
from aaiclick.api.field_types import Page
from aaiclick.catalog.dataset_visibility import hidden_task_ids
from aaiclick.catalog.sql_yaml_analysis import current_client, run_analysis
from aaiclick.errors import ConflictError, ForbiddenError
from aaiclick.operations.actor import SCOPE_PERMISSIONS, Actor, Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.operations.operation import operation, write_audit
from aaiclick.operations.pagination import make_page, read_id_cursor
from aaiclick.settings import get_settings
from aaiclick.store.engine import approvals as store
from aaiclick.store.engine.approvals import ApprovalFields, RecordedDecision
from aaiclick.store.engine.queries import LAST_ID

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

LINK_PATH = "/approve/"
EXPIRED_LINK = "The link has expired."
HIDDEN_DATA = "The data is hidden: your roles do not include every dataset of the task."


@operation(Permission.READER, changes=False)
async def list_approvals(
    connection: Connection, actor: Actor, *, everything: bool = False, cursor: str | None = None, limit: int = 100
) -> Page[Approval]:
    """List approvals that wait for a decision, newest first; with `everything` those that have ended too.

    Reasons of hidden tasks are left out.
    """
    before = read_id_cursor(cursor, LAST_ID)
    rows = await store.list_approvals(
        connection, actor.org_id, only_waiting=not everything, before=before, limit=limit + 1
    )
    hidden = await hidden_task_ids(connection, await dataset_reader(connection, actor), [row.task_id for row in rows])
    visible_rows = [replace(row, reason=None) if row.task_id in hidden else row for row in rows]
    return make_page(visible_rows, limit, _to_approval, lambda row: row.id)


@operation(Permission.READER, changes=False)
async def get_approval(connection: Connection, actor: Actor, approval_id: int) -> ApprovalDetail:
    """Get an approval with its data and its form, which are hidden like the task unless the actor may decide."""
    fields = await _find(connection, actor, approval_id)
    has_role = await _has_role(connection, actor, fields.role)
    detail = _to_detail(fields, may_decide=fields.state == "waiting" and has_role)
    if has_role or not await hidden_task_ids(connection, await dataset_reader(connection, actor), [fields.task_id]):
        return detail
    return _hide_data(detail, HIDDEN_DATA)


@operation(Permission.READER)
async def decide_approval(
    connection: Connection, actor: Actor, approval_id: int, decision: DecideRequest
) -> ApprovalDetail:
    """Approve or reject. The first decision counts; later ones receive a conflict that names it."""
    fields = await _find(connection, actor, approval_id)
    if not await _has_role(connection, actor, fields.role):
        raise ForbiddenError(
            f"{fields.title!r} is decided by the role {fields.role!r}, which this credential does not have.",
            remedy="Ask a member of the role, or an admin to grant it: aaiclick role grant.",
        )
    return await _decide(connection, actor, fields, decision)


@operation(Permission.WRITER)
async def create_approval_link(
    connection: Connection, actor: Actor, approval_id: int, link: CreateLinkRequest
) -> ApprovalLinkResponse:
    """Create a link with which a person without an account decides once."""
    fields = await _find(connection, actor, approval_id)
    if not await _has_role(connection, actor, fields.role):
        raise ForbiddenError(
            f"Links to {fields.title!r} are created by the role {fields.role!r}, which this credential does not have.",
            remedy="A link gives its holder the right to decide: ask a member of the role for it.",
        )
    if fields.state != "waiting":
        raise store.closed_approval(fields)
    token, expires_at = await store.create_link(connection, approval_id, link.recipient, link.valid_seconds)
    await write_audit(connection, actor, "approval.link", approval_id, {"recipient": link.recipient})
    base = (get_settings().server_public_url or "").rstrip("/")
    return ApprovalLinkResponse(token=token, url=f"{base}{LINK_PATH}{token}", expires_at=expires_at)


@operation(Permission.PUBLIC, as_owner=True, changes=False)
async def get_linked_approval(connection: Connection, actor: Actor, link: LinkRequest) -> ApprovalDetail:  # noqa: ARG001
    """Get the approval of a one-time link; without its data if the link has expired."""
    found_link = await store.find_link(connection, link.token)
    fields = await store.get_approval(connection, found_link.approval_id)
    may_decide = fields.state == "waiting" and not found_link.is_used and not found_link.is_expired
    detail = _to_detail(fields, may_decide=may_decide)
    return _hide_data(detail, EXPIRED_LINK) if found_link.is_expired else detail


@operation(Permission.PUBLIC, as_owner=True)
async def decide_by_link(connection: Connection, actor: Actor, request: DecideByLinkRequest) -> ApprovalDetail:
    """Approve or reject by a one-time link."""
    link = await store.find_link(connection, request.token)
    fields = await store.get_approval(connection, link.approval_id)
    if fields.state == "waiting" and (link.is_used or link.is_expired):
        raise ConflictError("The link was used, or has expired.", remedy="Ask for a new one.")
    current_client.set(str(link.org_id))
    holder = Actor(link.org_id, f"link {link.recipient}", frozenset(), request_id=actor.request_id)
    detail = await _decide(connection, holder, fields, request.decision)
    await store.use_link(connection, request.token)
    return detail


async def _decide(
    connection: Connection, actor: Actor, fields: ApprovalFields, decision: DecideRequest
) -> ApprovalDetail:
    if fields.state != "waiting":
        raise store.closed_approval(fields)
    answers = await _check_answers(fields.form, decision.values) if decision.approve else {}
    decided = await store.decide_approval(
        connection, fields.id, RecordedDecision(decision.approve, actor.name, decision.reason, answers)
    )
    detail = {"title": fields.title, "reason": decision.reason, "task": str(fields.task_id)}
    await write_audit(connection, actor, f"approval.{'approve' if decision.approve else 'reject'}", fields.id, detail)
    return _to_detail(decided, may_decide=False)


async def _check_answers(form_text: str | None, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Validate answers; in another process if that compiles regular expressions."""
    form = _parse_form(form_text)
    if form_text is None or '"pattern"' not in form_text:
        return check_answers(form, answers)
    return await run_analysis(check_answers, form, answers)


async def _find(connection: Connection, actor: Actor, approval_id: int) -> ApprovalFields:
    """An approval that the actor sees; one of another org does not exist."""
    fields = await store.get_approval(connection, approval_id)
    if not actor.sees(fields.org_id):
        raise store.unknown_approval(approval_id)
    return fields


async def _has_role(connection: Connection, actor: Actor, role: str) -> bool:
    """Whether the actor may decide: by a permission of that name, by a role of the organisation, or as an admin."""
    if Permission.ADMIN in actor.permissions:
        return True
    if role in SCOPE_PERMISSIONS:
        return Permission(role) in actor.permissions
    roles = (await dataset_reader(connection, actor)).roles
    return roles is None or role in roles


def _hide_data(detail: ApprovalDetail, text: str) -> ApprovalDetail:
    """The approval without its data, its form, and what was decided about them."""
    return detail.model_copy(update={"shown": ShownData(text=text), "form": None, "values": None, "reason": None})


def _to_approval(fields: ApprovalFields) -> Approval:
    return Approval.model_validate(fields, from_attributes=True)


def _to_detail(fields: ApprovalFields, *, may_decide: bool) -> ApprovalDetail:
    return ApprovalDetail(
        **_to_approval(fields).model_dump(),
        form=_parse_form(fields.form),
        shown=_parse_shown(fields.shown),
        values=None if fields.answers is None else json.loads(fields.answers),
        may_decide=may_decide,
    )


def _parse_form(text: str | None) -> dict[str, Any] | None:
    """The JSON Schema of a form; a worker over HTTP may store any JSON."""
    form: object = None if text is None else json.loads(text)
    return cast("dict[str, Any]", form) if isinstance(form, dict) else None


def _parse_shown(text: str | None) -> ShownData | None:
    if text is None:
        return None
    try:
        return ShownData.model_validate_json(text)
    except ValidationError:  # a worker over HTTP may store any JSON
        return ShownData(text=text)
