"""Approvers: two people who decide every approval of the load at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.chaos.history import record_event
from aaiclick.errors import ConflictError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.engine.approvals import RecordedDecision, decide_approval, list_approvals
from aaiclick.store.engine.queries import LAST_ID
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

DECISIONS = "decisions"
"""File of the decisions, and of those that came second."""
POLL_SECONDS = 0.3
PEOPLE = ("ada", "bob")


async def decide_approvals(postgres: PostgresEndpoint, orgs: Sequence[UUID], history: Path) -> None:
    """Decide approvals until cancelled; reconnect after outages."""
    while True:
        try:
            connections = [await connect(postgres) for _ in PEOPLE]
            try:
                while True:
                    for org_id in orgs:
                        await _decide_waiting(connections, org_id, history)
                    await asyncio.sleep(POLL_SECONDS)
            finally:
                for connection in connections:
                    connection.terminate()
        except CONNECTION_ERRORS as error:
            record_event(history, "trouble", client="approver", error=f"{type(error).__name__}: {error}")
        await asyncio.sleep(POLL_SECONDS)


async def _decide_waiting(connections: Sequence[Connection], org_id: UUID, history: Path) -> None:
    waiting = await list_approvals(connections[0], org_id, only_waiting=True, before=LAST_ID, limit=100)
    for approval in waiting:
        people = zip(connections, PEOPLE, strict=True)
        await asyncio.gather(*(_decide(connection, approval.id, name, history) for connection, name in people))


async def _decide(connection: Connection, approval_id: int, name: str, history: Path) -> None:
    try:
        await decide_approval(connection, approval_id, RecordedDecision(True, name, "", {}))
    except ConflictError:
        return
    record_event(history, DECISIONS, approval=approval_id, by=name)
