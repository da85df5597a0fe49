"""Waits: a task that ends its attempt and goes on later, without a worker in between.

A waiting task is scheduled (`TIME`) at the end of its wait. An event or the end of a job makes it ready earlier; its
next attempt finds the outcome in its arguments (`aaiclick_wait`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import LimitError, SubmitError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.deadlock_retry import retry_on_deadlock
from aaiclick.store.engine.approvals import insert_approval
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.leases_and_outcomes import Lease, Wait
from aaiclick.store.name_and_key_limits import check_key
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

MAX_STORED_EVENTS = 100_000
"""Events of an organisation that have not expired."""


@dataclass(frozen=True, slots=True)
class RefusedWait:
    """A wait that cannot end: the attempt fails with this error; without one it was cancelled."""

    error: str | None


async def lock_events(connection: Connection, events: Sequence[tuple[UUID, str, str]]) -> None:
    """Lock events (org, name, key) against each other's senders and waiters until the end of the transaction."""
    columns = [list(values) for values in zip(*events, strict=True)]
    await connection.execute(statement("lock_event_names"), *columns)


async def begin_wait(
    connection: Connection, lease: Lease, wait: Wait, now: datetime | None
) -> asyncpg.Record | RefusedWait | None:
    """Suspend the task of a lease; returns its row, None if the lease is lost, or why it cannot wait."""
    key = lease.task_id, lease.attempt, lease.token
    row = await connection.fetchrow(statement("lock_waiting_lease"), *key, now)
    if row is None:
        return None
    if row["cancelled"]:
        return RefusedWait(None)
    if (wait.wait_type == "approval") != (wait.approval is not None):
        return RefusedWait("A wait for an approval has a title and a role, and other waits have none.")
    if wait.wait_type == "event":
        try:
            check_event(wait.name, wait.key)
        except SubmitError as error:
            return RefusedWait(str(error))
    if row["expired"]:
        return RefusedWait(f"It has not ended within {wait.deadline_seconds:g} s.")
    outcome, job_id = cast("str | None", None), wait.job_id
    if wait.wait_type == "event":
        await lock_events(connection, [(row["org_id"], wait.name, wait.key)])
        payload = await connection.fetchval(statement("find_workflow_event"), row["org_id"], wait.name, wait.key, now)
        outcome = None if payload is None else f'{{"event": {payload}}}'
    elif wait.wait_type == "job":
        if row["is_turn"]:
            job_id = await _await_turn(connection, row)
            outcome = '{"job": null}' if job_id is None else None
        else:
            awaited = await connection.fetchrow(statement("await_job"), job_id, row["org_id"])
            if awaited is None or job_id == row["job_id"]:
                return RefusedWait(f"There is no other job {job_id} to wait for.")
            if awaited["has_ended"]:
                outcome = await connection.fetchval(statement("get_job_outcome"), job_id)
    times = wait.at, wait.seconds, wait.deadline_seconds
    suspended = await connection.fetchrow(statement("suspend_task"), *key, *times, now)
    if outcome is not None:
        await connection.execute(statement("wake_task"), lease.task_id, outcome)
        if suspended is not None:
            await notify_ready(connection, {suspended["queue"]})
    else:
        columns = wait.wait_type, wait.name, wait.key, job_id
        await connection.execute(statement("insert_wait"), lease.task_id, lease.attempt, *columns, now)
        if wait.approval is not None and wait.wait_type == "approval":
            await insert_approval(connection, lease, wait.approval, now)
    return suspended


async def _await_turn(connection: Connection, task: asyncpg.Record) -> int | None:
    """Let the end of the job before a limited one wake its turn; None if the turn has come.

    The job is that of the locked row: since the claim, a restart may have let the turn come.
    """
    while (job_id := await connection.fetchval(statement("find_awaited_turn"), task["turn_after"])) is not None:
        awaited = await connection.fetchrow(statement("await_job"), job_id, task["org_id"])
        if awaited is None or job_id == task["job_id"]:
            return None
        if not awaited["has_ended"]:
            return job_id
    return None


def check_event(name: object, key: object) -> None:
    """Raise SubmitError for a name or key that no event can have."""
    check_key("The name of an event", name)
    check_key(f"The key of the event {name!r:.80}", key, is_empty_allowed=True)


async def send_event(
    connection: Connection,
    org_id: UUID,
    name: str,
    key: str = "",
    payload: str = "{}",
    *,
    keep_seconds: float = 86_400.0,
    now: datetime | None = None,
) -> tuple[int, int]:
    """Store an event for `keep_seconds`, and end the waits for it; returns its id and the number of waits.

    `payload` is the text of a JSON object.
    """
    check_event(name, key)
    if '"object_type"' in payload:
        raise SubmitError(
            "The payload of an event has a field 'object_type'.",
            remedy="Rename it: references to Objects are not sent.",
        )

    async def send_in_transaction() -> tuple[int, int]:
        async with failpoints.transaction(connection, "send_event"):
            await lock_events(connection, [(org_id, name, key)])
            event_id = get_snowflake_id()
            if keep_seconds > 0:
                await _store_event(connection, event_id, org_id, name, key, payload, keep_seconds, now)
            rows = await connection.fetch(statement("wake_event_waits"), org_id, name, key, payload, now)
            ready = {row["queue"] for row in rows if row["readiness"] == "READY"}
            ready |= await admit_held_tasks(connection, ((row["org_id"], row["concurrency_key"]) for row in rows))
            await notify_ready(connection, ready)
        return event_id, len(rows)

    return await retry_on_deadlock(send_in_transaction)


async def _store_event(
    connection: Connection,
    event_id: int,
    org_id: UUID,
    name: str,
    key: str,
    payload: str,
    keep_seconds: float,
    now: datetime | None,
) -> None:
    """Store an event for waits that begin later; raises LimitError if the organisation has too many."""
    if await connection.fetchval(statement("count_workflow_events"), org_id, MAX_STORED_EVENTS) >= MAX_STORED_EVENTS:
        raise LimitError(
            f"The organisation has {MAX_STORED_EVENTS:,} events that have not expired.",
            remedy="Send events with a shorter keep_seconds: 0 ends only the waits that have begun.",
        )
    columns = event_id, org_id, name, key, payload, keep_seconds, now
    await connection.execute(statement("insert_workflow_event"), *columns)
