"""Child jobs: linked to the task that submits them, cancelled with it, submitted once over its attempts."""

from __future__ import annotations

import asyncio

import pytest

from aaiclick.errors import LeaseLost, LimitError
from aaiclick.orchestration.loops import due_task_promoter
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import new_jobs, queries, user_actions
from aaiclick.store.engine.leases_and_outcomes import Lease, Wait
from aaiclick.store.engine.submit import NewJob, submit_job
from tests.integration.engine.conftest import Engine
from tests.integration.engine.test_waits import begin, claim_one, state


async def submit_child(engine: Engine, lease: Lease, name: str = "child", key: str | None = None) -> int:
    plan = engine.plan(f"{name}-task-{get_snowflake_id()}")
    new = NewJob(engine.ids.pop(name, None) or get_snowflake_id(), name, idempotency_key=key, parent=lease)
    engine.ids[name] = await submit_job(engine.db, new, plan)
    return engine.ids[name]


async def tree(engine: Engine, job: str = "job") -> list[tuple[int, str, str]]:
    rows = await queries.list_job_tree(engine.db, engine.id(job))
    return [(row["depth"], row["name"], row["status"]) for row in rows]


async def test_children_are_linked_in_both_directions(engine: Engine) -> None:
    await engine.submit("a")
    parent = await claim_one(engine)
    child = await submit_child(engine, parent.lease)
    inner = await claim_one(engine)
    await submit_child(engine, inner.lease, "grandchild")
    assert await tree(engine) == [(0, "job", "RUNNING"), (1, "child", "RUNNING"), (2, "grandchild", "PENDING")]
    row = await queries.get_job(engine.db, child)
    assert row is not None
    assert (row["parent_job_id"], row["parent_task_id"]) == (engine.id("job"), engine.id("a"))
    await engine.check()


async def test_cancel_of_the_parent_cancels_all_descendants(engine: Engine) -> None:
    await engine.submit("a")
    parent = await claim_one(engine)
    await submit_child(engine, parent.lease)
    await submit_child(engine, (await claim_one(engine)).lease, "grandchild")
    await user_actions.cancel_job(engine.db, engine.id("job"))
    rows = await engine.db.fetch(
        "SELECT name, cancel_requested_at IS NOT NULL AS requested, status FROM jobs ORDER BY id"
    )
    assert [(row["name"], row["requested"]) for row in rows] == [("job", True), ("child", True), ("grandchild", True)]
    assert rows[2]["status"] == "CANCELLED"
    with pytest.raises(LeaseLost, match="is cancelled"):
        await submit_child(engine, parent.lease, "late")
    await engine.check()


@pytest.mark.parametrize("order", ["submit first", "cancel first"])
async def test_child_submitted_during_the_cancel_does_not_survive(engine: Engine, second: Engine, order: str) -> None:
    await engine.submit("a")
    parent = await claim_one(engine)

    async def submit(session: Engine) -> None:
        try:
            await submit_child(session, parent.lease)
        except LeaseLost:
            session.ids["child"] = 0

    async def cancel(session: Engine) -> None:
        await user_actions.cancel_job(session.db, session.id("job"))

    first, then = (submit, cancel) if order == "submit first" else (cancel, submit)
    async with engine.db.transaction():
        await first(engine)
        later = asyncio.create_task(then(second))
        await second.wait_until_idle(engine, later)
    await later
    unfinished = "SELECT count(*) FROM jobs WHERE parent_task_id IS NOT NULL AND cancel_requested_at IS NULL"
    assert await engine.db.fetchval(unfinished) == 0
    assert (engine.ids["child"] == 0) == (order == "cancel first")


async def test_cancel_of_the_task_cancels_its_children_only(engine: Engine) -> None:
    await engine.submit("a b")
    first, second = await engine.claim()
    await submit_child(engine, first.lease)
    await submit_child(engine, second.lease, "other")
    await user_actions.cancel_tasks(engine.db, [first.lease.task_id])
    assert await tree(engine) == [(0, "job", "RUNNING"), (1, "child", "CANCELLED"), (1, "other", "PENDING")]


async def test_retried_attempt_finds_its_child_unless_it_failed(engine: Engine) -> None:
    await engine.submit("a")
    parent = await claim_one(engine)
    child = await submit_child(engine, parent.lease, key="k")
    engine.ids.pop("child")
    assert await submit_child(engine, parent.lease, key="k") == child
    await engine.fail(await claim_one(engine), permanent=True)
    engine.ids.pop("child")
    assert await submit_child(engine, parent.lease, key="k") != child
    await engine.complete(await claim_one(engine))
    completed = engine.ids.pop("child")
    assert await submit_child(engine, parent.lease, key="k") == completed
    await engine.complete(parent)
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    engine.ids.pop("child")
    assert await submit_child(engine, (await claim_one(engine)).lease, key="k") != completed
    await engine.check()


async def test_lost_lease_submits_no_child(engine: Engine) -> None:
    await engine.submit("a")
    parent = await claim_one(engine)
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    with pytest.raises(LeaseLost):
        await submit_child(engine, parent.lease)
    assert await engine.db.fetchval("SELECT count(*) FROM jobs") == 1


async def test_children_of_children_have_a_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_jobs, "MAX_CHILD_DEPTH", 2)
    await engine.submit("a")
    await submit_child(engine, (await claim_one(engine)).lease)
    with pytest.raises(LimitError, match="2 levels deep"):
        await submit_child(engine, (await claim_one(engine)).lease, "grandchild")


async def test_parent_with_a_concurrency_key_waits_for_a_slot(engine: Engine) -> None:
    await engine.submit("a b", concurrency_key="k")
    parent = await claim_one(engine)
    child = await submit_child(engine, parent.lease)
    await begin(engine, parent, Wait("job", job_id=child))
    claims = {engine.name(claim.lease.task_id): claim for claim in await engine.claim()}
    other = claims.pop("b")
    await engine.complete(*claims.values())
    await due_task_promoter.run_once(engine.db)
    assert await engine.claim() == []
    await engine.complete(other)
    resumed = await claim_one(engine)
    assert (resumed.lease.task_id, state(resumed)["job"]["status"]) == (engine.id("a"), "COMPLETED")
    await engine.check()
