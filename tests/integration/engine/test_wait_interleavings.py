"""Concurrent sessions around waits, approvals and rates: each wait ends once, each decision counts once.

The orders are those of `test_interleavings`: each session runs one action in a transaction of its own, and the sessions
begin and commit in all possible orders.
"""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from aaiclick.errors import ConflictError
from aaiclick.store.engine import queue, user_actions
from aaiclick.store.engine.approvals import RecordedDecision, decide_approval
from aaiclick.store.engine.leases_and_outcomes import ApprovalRequest, Claim, Success, Wait
from aaiclick.store.engine.waits import send_event
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.engine import test_interleavings as interleavings
from tests.integration.engine.conftest import Engine
from tests.integration.engine.test_interleavings import (
    chosen_orders,
    clear,
    crew,
    drain_and_check,
    engine,
    orders,
    play,
    sessions,
)

__all__ = ["crew", "engine", "sessions"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

DECISIONS: list[bool] = []
"""Decisions that were accepted in the current order."""


async def wait_for_event(session: Engine, claims: dict[str, Claim]) -> object:
    success = Success(claims["a"].lease, wait=Wait("event", 3600.0, name="paid"))
    return await queue.acknowledge(session.db, worker_id=session.worker_id, successes=[success])


async def send(session: Engine, claims: dict[str, Claim]) -> object:
    return await send_event(session.db, DEFAULT_ORG_ID, "paid", keep_seconds=3600.0)


async def promote_later(session: Engine, claims: dict[str, Claim]) -> object:
    return await queue.promote_due_tasks(session.db, now=await session.now() + timedelta(hours=2))


async def decide(session: Engine, *, approved: bool) -> object:
    approval_id = await session.db.fetchval("SELECT id FROM approvals")
    try:
        await decide_approval(session.db, approval_id, RecordedDecision(approved, "ada", "", {}))
    except ConflictError:
        return None
    DECISIONS.append(approved)
    return approved


async def approve(session: Engine, claims: dict[str, Claim]) -> object:
    return await decide(session, approved=True)


async def reject(session: Engine, claims: dict[str, Claim]) -> object:
    return await decide(session, approved=False)


async def claim_one(session: Engine, claims: dict[str, Claim]) -> object:
    return await session.claim(1)


async def clear_waiting(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.clear_tasks(session.db, session.id("a"))


async def redrive_all(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.redrive_dead_letters(session.db)


for action in (wait_for_event, send, promote_later, approve, reject, claim_one, clear_waiting, redrive_all):
    interleavings.ACTIONS.setdefault(action.__name__, action)

EVENT_PAIRS = [
    ("wait_for_event", "send"), ("wait_for_event", "cancel"), ("wait_for_event", "reap"),
    ("wait_for_event", "complete_a"), ("wait_for_event", "wait_for_event"), ("send", "send"),
    ("wait_for_event", "promote_later"), ("wait_for_event", "clear_waiting"), ("wait_for_event", "redrive_all"),
]  # fmt: skip
RESTARTS = ["retry", "redrive_all", "clear_waiting", "reap", "expire"]
ENDED_WAIT = [
    *itertools.combinations_with_replacement(["send", "promote_later", "cancel"], 2),
    *itertools.product(["send", "promote_later"], RESTARTS),
]
DECIDED = [
    *itertools.combinations_with_replacement(["approve", "reject", "promote_later", "cancel"], 2),
    *itertools.product(["approve"], RESTARTS),
]


async def submit_beside_dead_letter(engine: Engine) -> None:
    """A job with a task a, and a dead letter that has the same handlers: a restart resets those."""
    edges = "dead>alert dead>last a>b a>alert b>alert b>last alert>last"
    await engine.submit("dead a b alert@failed last@ended", "", edges, max_attempts=1)
    [dead] = await engine.claim(1)
    await engine.fail(dead)


async def begin_wait(engine: Engine, wait: Wait) -> None:
    await clear(engine)
    await engine.db.execute("DELETE FROM waits; DELETE FROM workflow_events; DELETE FROM approvals")
    await submit_beside_dead_letter(engine)
    [claim] = await engine.claim(1)
    await queue.acknowledge(engine.db, worker_id=engine.worker_id, successes=[Success(claim.lease, wait=wait)])


@pytest.mark.parametrize("pair", EVENT_PAIRS, ids="-".join)
async def test_event_before_after_and_with_the_wait(
    engine: Engine, sessions: list[Engine], pair: tuple[str, str]
) -> None:
    for order in chosen_orders(pair):
        await clear(engine)
        await engine.db.execute("DELETE FROM waits; DELETE FROM workflow_events")
        await submit_beside_dead_letter(engine)
        await play(engine, sessions, list(pair), order)
        if set(pair) == {"wait_for_event", "send"}:  # however they are ordered, the event ends the wait
            assert (
                await engine.db.fetchval("SELECT readiness::text FROM tasks WHERE id = $1", engine.id("a")) == "READY"
            )
        await drain_and_check(engine, sessions)


@pytest.mark.parametrize("pair", ENDED_WAIT, ids="-".join)
async def test_wait_for_an_event_ends_once(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    for order in chosen_orders(pair):
        await begin_wait(engine, Wait("event", 3600.0, name="paid"))
        await play(engine, sessions, list(pair), order)
        assert await engine.db.fetchval("SELECT max(attempt) FROM tasks") == 1
        await drain_and_check(engine, sessions)


@pytest.mark.parametrize("pair", DECIDED, ids="-".join)
async def test_approval_is_decided_once(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    request = ApprovalRequest("Pay?", "finance", "{}", '{"text": "7"}')
    for order in chosen_orders(pair):
        DECISIONS.clear()
        await begin_wait(engine, Wait("approval", 3600.0, name="Pay?", key="finance", approval=request))
        await play(engine, sessions, list(pair), order)
        decisions = await engine.db.fetch("SELECT decision FROM approvals WHERE decision IN ('approved', 'rejected')")
        assert len(DECISIONS) == len(decisions)
        assert len(DECISIONS) <= 1
        await drain_and_check(engine, sessions)


async def test_concurrent_claims_share_a_rate(engine: Engine, sessions: list[Engine]) -> None:
    for order in orders(3)[::3]:
        await clear(engine)
        await engine.db.execute("DELETE FROM rate_limits")
        await engine.submit("p q", "", "", job="first")
        await engine.submit("r s t", "", "", rate="2/3600", rate_key="k")
        await play(engine, sessions, ["claim_one"] * 3, order)
        claimed = await engine.db.fetchval("SELECT count(*) FROM tasks WHERE rate IS NOT NULL AND attempt > 0")
        assert claimed <= 2
        await drain_and_check(engine, sessions)
