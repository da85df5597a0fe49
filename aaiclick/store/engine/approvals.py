"""Approvals: waits that end by a person's decision.

An approval is open while its task waits in the attempt that asked. A decision locks the task, then the approval: of
two people who decide at the same time, one succeeds and the other receives the first decision as a ConflictError.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.deadlock_retry import retry_on_deadlock
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.leases_and_outcomes import ApprovalRequest, Lease
from aaiclick.store.statements import statement
from aaiclick.store.typed_rows import fetch_row, fetch_rows

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

TOKEN_BYTES = 32
ApprovalState = Literal["waiting", "approved", "rejected", "expired", "cancelled"]


@dataclass(frozen=True, slots=True)
class ApprovalFields:
    """An approval with its task and job; `form`, `shown` and `answers` are JSON."""

    id: int
    org_id: UUID
    task_id: int
    created_at: datetime
    expires_at: datetime
    title: str
    role: str
    form: str | None
    shown: str | None
    decision: Literal["approved", "rejected"] | None
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None
    answers: str | None
    job_id: int | None
    job_name: str | None
    task_status: str
    is_waiting: bool | None

    @property
    def state(self) -> ApprovalState:
        if self.decision is not None:
            return self.decision
        if self.is_waiting:
            return "waiting"
        return "cancelled" if self.task_status == "CANCELLED" else "expired"


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A person's decision; `answers` are the values of the form."""

    approved: bool
    decided_by: str
    reason: str
    answers: dict[str, Any]

    @property
    def outcome(self) -> str:
        """JSON for the arguments of the waiting task."""
        fields = {"approved": self.approved, "by": self.decided_by, "reason": self.reason, "values": self.answers}
        return json.dumps({"approval": fields})


@dataclass(frozen=True, slots=True)
class LinkFields:
    """A one-time link, found by its token."""

    approval_id: int
    org_id: UUID
    recipient: str
    is_used: bool
    is_expired: bool


async def insert_approval(connection: Connection, lease: Lease, request: ApprovalRequest, now: datetime | None) -> None:
    """Store the question of an attempt that has begun to wait."""
    await connection.execute(
        statement("insert_approval"), get_snowflake_id(), lease.task_id, lease.attempt, request.title, request.role,
        request.form, request.shown, now,
    )  # fmt: skip


async def list_approvals(
    connection: Connection, org_id: UUID, *, only_waiting: bool, before: int, limit: int
) -> list[ApprovalFields]:
    """Approvals of an org, newest first."""
    query = statement("list_waiting_approvals") if only_waiting else statement("list_approvals")
    return await fetch_rows(connection, ApprovalFields, query, org_id, before, limit)


async def get_approval(connection: Connection, approval_id: int) -> ApprovalFields:
    """Get an approval; raises NotFoundError."""
    fields = await fetch_row(connection, ApprovalFields, statement("get_approval"), approval_id)
    if fields is None:
        raise unknown_approval(approval_id)
    return fields


def unknown_approval(approval_id: int) -> NotFoundError:
    return NotFoundError(
        f"There is no approval {approval_id}.", remedy="'aaiclick approvals ls' lists those that wait."
    )


async def decide_approval(
    connection: Connection, approval_id: int, decision: RecordedDecision, *, now: datetime | None = None
) -> ApprovalFields:
    """Record the decision of an open approval and let its task go on; raises ConflictError if it is not open."""

    async def decide_in_transaction() -> ApprovalFields:
        async with failpoints.transaction(connection, "decide_approval"):
            await connection.execute(statement("lock_approval"), approval_id)
            approval = await get_approval(connection, approval_id)
            if approval.state != "waiting":
                raise closed_approval(approval)
            answers = json.dumps(decision.answers)
            name = "approved" if decision.approved else "rejected"
            columns = approval_id, name, decision.decided_by, decision.reason, answers, now
            await connection.execute(statement("decide_approval"), *columns)
            await connection.execute(statement("delete_wait"), approval.task_id)
            row = await connection.fetchrow(statement("wake_task"), approval.task_id, decision.outcome)
            if row is not None:
                admitted = await admit_held_tasks(connection, [(row["org_id"], row["key"])])
                await notify_ready(connection, {row["queue"]} | admitted)
            return await get_approval(connection, approval_id)

    return await retry_on_deadlock(decide_in_transaction)


def closed_approval(approval: ApprovalFields) -> ConflictError:
    """The error of a decision that comes too late: it says which one was recorded."""
    if approval.decided_at is None:
        what = f"The approval {approval.title!r} has {approval.state}."
        if approval.state == "cancelled":
            what = f"The approval {approval.title!r} was cancelled."
    else:
        by = f"by {approval.decided_by} at {approval.decided_at:%Y-%m-%d %H:%M:%S} UTC"
        what = f"{approval.title!r} was {approval.decision} {by}."
    return ConflictError(f"{what} Your decision was not recorded.", remedy="Reload the approval to see its state.")


def hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


async def create_link(
    connection: Connection, approval_id: int, recipient: str, valid_seconds: float
) -> tuple[str, datetime]:
    """Create a one-time link to an approval; returns its token, which is not stored, and when it expires."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    columns = hash_token(token), approval_id, recipient, valid_seconds
    expires_at = await connection.fetchval(statement("insert_approval_link"), *columns)
    return token, expires_at


async def find_link(connection: Connection, token: str) -> LinkFields:
    """Find a link; raises NotFoundError."""
    link = await fetch_row(connection, LinkFields, statement("find_approval_link"), hash_token(token))
    if link is None:
        raise NotFoundError("Invalid link.", remedy="Ask for a new one, or sign in and decide there.")
    return link


async def use_link(connection: Connection, token: str) -> None:
    """Mark a link as used; within the transaction of the decision."""
    await connection.execute(statement("use_approval_link"), hash_token(token))
