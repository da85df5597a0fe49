"""Approvals: one decision counts, and each wait ends once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.orchestration.loops import due_task_promoter
from aaiclick.store.engine import approvals, user_actions
from aaiclick.store.engine.approvals import ApprovalFields, RecordedDecision, decide_approval, get_approval
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.leases_and_outcomes import ApprovalRequest, Wait
from aaiclick.store.enums import DEFAULT_ORG_ID
from tests.integration.engine.conftest import Engine
from tests.integration.engine.test_waits import begin, claim_one, state

ASK = Wait(
    "approval", 3600.0, name="Pay?", key="finance", approval=ApprovalRequest("Pay?", "finance", "{}", '{"text": "7"}')
)


async def ask(engine: Engine, tasks: str = "a", **options: object) -> int:
    await engine.submit(tasks, **options)
    assert len(await begin(engine, await claim_one(engine), ASK)) == 1
    return await newest(engine)


async def newest(engine: Engine) -> int:
    return await engine.db.fetchval("SELECT max(id) FROM approvals")


async def decide(engine: Engine, approval_id: int, approved: bool = True, by: str = "ada") -> ApprovalFields:
    return await decide_approval(engine.db, approval_id, RecordedDecision(approved, by, "checked", {"euros": 7}))


async def list_ids(engine: Engine, *, only_waiting: bool = True) -> list[int]:
    listed = await approvals.list_approvals(
        engine.db, DEFAULT_ORG_ID, only_waiting=only_waiting, before=2**63 - 1, limit=10
    )
    return [fields.id for fields in listed]


@pytest.mark.parametrize("approved", [True, False])
async def test_decision_ends_the_wait_once(engine: Engine, approved: bool) -> None:
    approval_id = await ask(engine)
    assert await engine.claim() == []
    (reason,) = await explain_task(engine.db, engine.id("a"))
    assert reason.text.startswith("waits for finance to decide: Pay?, until ")
    assert await list_ids(engine) == [approval_id]
    fields = await decide(engine, approval_id, approved)
    assert (fields.state, fields.decided_by, fields.reason) == (
        "approved" if approved else "rejected",
        "ada",
        "checked",
    )
    assert await list_ids(engine) == []
    assert await list_ids(engine, only_waiting=False) == [approval_id]
    claim = await claim_one(engine)
    expected = {"approved": approved, "by": "ada", "reason": "checked", "values": {"euros": 7}}
    assert state(claim)["approval"] == expected
    await engine.complete(claim)
    await engine.check()


async def test_second_person_receives_the_first_decision(engine: Engine, second: Engine) -> None:
    approval_id = await ask(engine)
    errors: list[ConflictError] = []

    async def decide_later() -> None:
        try:
            await decide(second, approval_id, False, "bob")
        except ConflictError as error:
            errors.append(error)

    async with engine.db.transaction():
        await decide(engine, approval_id)
        later = asyncio.create_task(decide_later())
        await second.wait_until_idle(engine, later)
    await later
    assert errors[0].what.startswith("'Pay?' was approved by ada at ")
    assert errors[0].what.endswith("Your decision was not recorded.")
    assert state(await claim_one(engine))["approval"]["by"] == "ada"
    await engine.check()


async def test_timeout_closes_the_approval(engine: Engine) -> None:
    approval_id = await ask(engine)
    engine.shift += timedelta(seconds=3601)
    await due_task_promoter.run_once(engine.db, now=await engine.now())
    with pytest.raises(ConflictError, match="has expired"):
        await decide(engine, approval_id)
    assert "approval" not in state(await claim_one(engine))
    await engine.check()


async def test_cancel_closes_the_approval(engine: Engine) -> None:
    approval_id = await ask(engine)
    await user_actions.cancel_job(engine.db, engine.id("job"))
    with pytest.raises(ConflictError, match="was cancelled"):
        await decide(engine, approval_id)
    assert await engine.status("a", "job") == "CANCELLED CANCELLED"


async def test_clear_asks_again_and_closes_the_first_question(engine: Engine) -> None:
    first = await ask(engine)
    await decide(engine, first)
    await engine.complete(await claim_one(engine))
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    await begin(engine, await claim_one(engine), ASK)
    assert await list_ids(engine) == [await newest(engine)]
    assert (await get_approval(engine.db, first)).state == "approved"
    await decide(engine, await newest(engine), False)
    assert state(await claim_one(engine))["approval"]["approved"] is False
    await engine.check()


async def test_decided_task_waits_for_a_slot_of_its_key(engine: Engine) -> None:
    approval_id = await ask(engine, "a b", concurrency_key="k")
    other = await claim_one(engine)
    await decide(engine, approval_id)
    assert await engine.claim() == []
    await engine.complete(other)
    assert state(await claim_one(engine))["approval"]["approved"]
    await engine.check()


async def test_wait_for_an_approval_without_a_question_fails(engine: Engine) -> None:
    await engine.submit("a b")
    first, second = await engine.claim()
    await begin(engine, first, Wait("approval"))
    await begin(engine, second, Wait("time", approval=ASK.approval))
    assert await engine.status("a", "b") == "FAILED FAILED"


async def test_unknown_approvals_and_links_are_not_found(engine: Engine) -> None:
    with pytest.raises(NotFoundError, match="There is no approval 1"):
        await decide(engine, 1)
    with pytest.raises(NotFoundError, match="Invalid link"):
        await approvals.find_link(engine.db, "x" * 43)
