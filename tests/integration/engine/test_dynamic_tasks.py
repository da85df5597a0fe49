"""Dynamic tasks: tasks that attempts add, and tasks that return tasks."""

from __future__ import annotations

import json

import pytest

from aaiclick.errors import LeaseLost, LimitError, SubmitError
from aaiclick.store.engine import queue, user_actions
from aaiclick.store.engine.leases_and_outcomes import Claim, Success
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import JobLimits, NewJob, add_to_job, submit_job
from aaiclick.store.enums import Cancellation
from aaiclick.store.statements import statement
from tests.integration.engine.conftest import Engine


def reference(engine: Engine, name: str) -> dict[str, str]:
    return {"object_type": "task", "task_id": str(engine.id(name))}


async def hand_over(engine: Engine, claim: Claim, form: object, *names: str) -> set[int]:
    """The task of a claim returns the tasks `names`."""
    success = Success(claim.lease, json.dumps(form), awaits=tuple(engine.id(name) for name in names))
    return await queue.acknowledge(engine.db, worker_id=engine.worker_id, successes=[success])


async def result(engine: Engine, name: str) -> object:
    text = await engine.db.fetchval("SELECT result::text FROM tasks WHERE id = $1", engine.id(name))
    return None if text is None else json.loads(text)


async def names(engine: Engine) -> str:
    rows = await engine.db.fetch("SELECT type FROM tasks ORDER BY type")
    return " ".join(row["type"] for row in rows)


# --- additions ----------------------------------------------------------------------------------------------------


async def test_added_tasks_wait_for_their_adder(engine: Engine) -> None:
    await engine.submit("a")
    (first,) = await engine.claim()
    await engine.add("job", "b c d:g", "g h", "b>c", first.lease)
    await engine.check()
    assert await engine.claim() == []
    await engine.complete(first)
    assert await engine.run() == ["b d", "c"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_additions_are_durable_before_the_attempt_continues(engine: Engine) -> None:
    """After a crash of PostgreSQL, the attempt would complete without additions that it believes stored."""
    await engine.db.execute("SET synchronous_commit = on")  # as on servers that are not for tests
    await engine.submit("a")
    (first,) = await engine.claim()
    async with engine.db.transaction():
        await engine.db.fetchrow(statement("lock_lease"), first.lease.task_id, first.lease.attempt, first.lease.token)
        assert await engine.db.fetchval("SHOW synchronous_commit") == "on"


async def test_retried_fan_out_adds_tasks_once(engine: Engine) -> None:
    await engine.submit("a z:g", "g")
    claims = {claim.type: claim for claim in await engine.claim()}
    await engine.complete(claims["z"])
    await engine.add("job", "b1 b2:g1", "g1", "", claims["a"].lease)
    await engine.fail(claims["a"])
    await engine.check()
    (again,) = await engine.claim()
    await engine.add("job", "c1 c2:g2", "g2", "", again.lease)
    await engine.complete(again)
    await engine.check()
    assert await names(engine) == "a c1 c2 z"
    assert await engine.run() == ["c1 c2"]
    assert await engine.status("job") == "COMPLETED"
    assert await engine.db.fetchval("SELECT total_tasks FROM jobs") == 4
    await engine.check()


async def test_attempt_without_additions_removes_earlier_ones(engine: Engine) -> None:
    await engine.submit("a:g last", "g", "g>last")
    (first,) = await engine.claim()
    await engine.add("job", "b:g", "h:g", "", first.lease)
    await engine.fail(first)
    await engine.complete(*await engine.claim())
    await engine.check()
    assert await names(engine) == "a last"
    assert await engine.run() == ["last"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_final_failure_cancels_additions(engine: Engine) -> None:
    await engine.submit("a")
    (first,) = await engine.claim()
    await engine.add("job", "b c", "", "b>c", first.lease)
    await engine.fail(first, permanent=True)
    assert await engine.status("a", "b", "c", "job") == "FAILED CANCELLED CANCELLED FAILED"
    await engine.check()
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"))
    (again,) = await engine.claim()
    await engine.add("job", "d", lease=again.lease)
    await engine.complete(again)
    await engine.check()
    assert await engine.run() == ["d"]
    assert await names(engine) == "a d"
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_clear_removes_additions_recursively(engine: Engine) -> None:
    await engine.submit("a")
    (first,) = await engine.claim()
    await engine.add("job", "b", lease=first.lease)
    await engine.complete(first)
    (second,) = await engine.claim()
    await engine.add("job", "c:g", "g", lease=second.lease)
    await engine.complete(second)
    assert await engine.run() == ["c"]
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    await engine.check()
    assert await engine.run() == ["a"]
    assert await names(engine) == "a"
    assert await engine.db.fetchval("SELECT count(*) FROM groups") == 0
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_uncommitted_additions_accept_no_additions(engine: Engine) -> None:
    await engine.submit("a")
    (first,) = await engine.claim()
    await engine.add("job", "b", "g", "", first.lease)
    with pytest.raises(SubmitError, match="has not completed yet"):
        await engine.add("job", "c", "", "b>c")
    with pytest.raises(SubmitError, match="has not completed yet"):
        await engine.add("job", "c:g")
    await engine.add("job", "d", "", "b>d", first.lease)
    await engine.complete(first)
    await engine.add("job", "c", "", "b>c")
    assert await engine.run() == ["b", "c d"]
    await engine.check()


# --- tasks that return tasks --------------------------------------------------------------------------------------


async def test_returned_task_provides_result(engine: Engine) -> None:
    await engine.submit("a last", "", "a>last")
    (first,) = await engine.claim()
    await engine.add("job", "b", lease=first.lease)
    assert await hand_over(engine, first, reference(engine, "b"), "b") == {engine.id("a")}
    await engine.check()
    assert await engine.status("a", "b", "last", "job") == "PENDING PENDING PENDING RUNNING"
    (inner,) = await engine.claim()
    assert inner.type == "b"
    await engine.complete(inner, result='{"object_type": "object", "table_id": "t1"}')
    assert await engine.status("a", "b", "job") == "COMPLETED COMPLETED RUNNING"
    assert await result(engine, "a") == {"object_type": "object", "table_id": "t1"}
    await engine.check()
    assert await engine.run() == ["last"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_lists_and_dicts_of_returned_tasks(engine: Engine) -> None:
    await engine.submit("a")
    (first,) = await engine.claim()
    await engine.add("job", "b c side", "", "", first.lease)
    form = {"x": [reference(engine, "b"), 7], "y": reference(engine, "c"), "z": reference(engine, "b")}
    await hand_over(engine, first, form, "b", "c")
    claims = {claim.type: claim for claim in await engine.claim()}
    assert sorted(claims) == ["b", "c", "side"]
    await engine.complete(claims["b"], result='"B"')
    assert await engine.status("a") == "PENDING"
    await engine.complete(claims["c"])
    assert await engine.status("a", "job") == "COMPLETED RUNNING"
    assert await result(engine, "a") == {"x": ["B", 7], "y": None, "z": "B"}
    await engine.complete(claims["side"])
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_nested_returned_tasks_complete_together(engine: Engine) -> None:
    await engine.submit("t0:g last", "g", "g>last")
    for depth in range(1, 6):
        (claim,) = await engine.claim()
        await engine.add("job", f"t{depth}:g{depth}", f"g{depth}", "", claim.lease)
        await hand_over(engine, claim, reference(engine, f"t{depth}"), f"t{depth}")
        await engine.check()
    (claim,) = await engine.claim()
    await engine.complete(claim, result='"deep"')
    assert [await result(engine, f"t{depth}") for depth in range(6)] == ["deep"] * 6
    await engine.check()
    assert await engine.run() == ["last"]
    assert await engine.status("job") == "COMPLETED"


async def test_the_failure_of_a_returned_task_is_the_cause(engine: Engine) -> None:
    await engine.submit("a last", "", "a>last")
    (first,) = await engine.claim()
    await engine.add("job", "b", lease=first.lease)
    await hand_over(engine, first, reference(engine, "b"), "b")
    await engine.fail(*await engine.claim(), permanent=True)
    assert await engine.status("a", "b", "last", "job") == "CANCELLED FAILED CANCELLED FAILED"
    causes = await engine.db.fetch("SELECT DISTINCT cause_id FROM tasks WHERE cause_id IS NOT NULL")
    assert [row["cause_id"] for row in causes] == [engine.id("b")]
    await engine.check()
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"))
    (again,) = await engine.claim()
    assert again.type == "b"
    await engine.complete(again, result='"B"')
    assert await result(engine, "a") == "B"
    assert await engine.run() == ["last"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_lost_lease_cannot_return_tasks(engine: Engine) -> None:
    await engine.submit("a")
    (first,) = await engine.claim()
    await engine.add("job", "b", lease=first.lease)
    await engine.fail(first)
    assert await hand_over(engine, first, reference(engine, "b"), "b") == set()
    with pytest.raises(LeaseLost):
        await engine.add("job", "c", lease=first.lease)
    (again,) = await engine.claim()
    await engine.add("job", "c", lease=again.lease)
    await hand_over(engine, again, reference(engine, "c"), "c")
    await engine.check()
    assert await names(engine) == "a c"
    assert await engine.run() == ["c"]
    assert await engine.status("job") == "COMPLETED"


async def test_only_own_tasks_are_returned(engine: Engine) -> None:
    await engine.submit("a other")
    claims = {claim.type: claim for claim in await engine.claim()}
    await hand_over(engine, claims["a"], reference(engine, "other"), "other")
    assert await engine.status("a") == "FAILED"
    assert "had not added" in await engine.db.fetchval("SELECT error FROM tasks WHERE id = $1", engine.id("a"))
    await engine.complete(claims["other"])
    await engine.check()


async def test_cleared_task_with_returned_tasks_runs_again(engine: Engine) -> None:
    await engine.submit("a last", "", "a>last")
    for round_ in ("b", "c"):
        (claim,) = await engine.claim()
        await engine.add("job", round_, lease=claim.lease)
        await hand_over(engine, claim, reference(engine, round_), round_)
        await engine.check()
        assert await engine.run() == [round_, "last"]
        assert await engine.status("job") == "COMPLETED"
        assert await names(engine) == f"a {round_} last"
        await engine.check()
        await user_actions.clear_tasks(engine.db, engine.id("a"))


# --- limits -------------------------------------------------------------------------------------------------------


async def test_job_fails_at_its_task_limit(engine: Engine) -> None:
    await engine.submit("t0")
    limits, number = JobLimits(max_tasks=20), 0
    with pytest.raises(LimitError, match="may have 20"):  # noqa: PT012
        while claims := await engine.claim():
            for claim in claims:
                number += 2
                plan = engine.plan(f"t{number - 1} t{number}")
                await add_to_job(engine.db, engine.id("job"), plan, {}, claim.lease, limits=limits)
                await engine.complete(claim)
    await engine.fail(*claims)
    row = await engine.db.fetchrow("SELECT status::text, error, total_tasks FROM jobs")
    assert row["status"] == "FAILED"
    assert "AAICLICK_JOB_MAX_TASKS" in row["error"]
    assert row["total_tasks"] <= 20
    await engine.check()


async def test_job_fails_at_its_depth_limit(engine: Engine) -> None:
    await engine.submit("t0")
    for depth in range(1, 4):
        (claim,) = await engine.claim()
        await add_to_job(
            engine.db, engine.id("job"), engine.plan(f"t{depth}"), {}, claim.lease, limits=JobLimits(100, 3)
        )
        await engine.complete(claim)
    (claim,) = await engine.claim()
    with pytest.raises(LimitError, match="3 levels deep"):
        await add_to_job(engine.db, engine.id("job"), engine.plan("t4"), {}, claim.lease, limits=JobLimits(100, 3))
    await engine.fail(claim)
    row = await engine.db.fetchrow("SELECT status::text, error FROM jobs")
    assert row["status"] == "FAILED"
    assert "AAICLICK_JOB_MAX_DEPTH" in row["error"]
    await engine.check()


async def test_a_job_too_large_is_refused_whole(engine: Engine) -> None:
    plan = Plan([NewTask(engine.id(str(n)), "t") for n in range(11)])
    with pytest.raises(LimitError, match="would have 11"):
        await submit_job(engine.db, NewJob(engine.id("job"), "large"), plan, limits=JobLimits(max_tasks=10))
    assert await engine.db.fetchval("SELECT count(*) FROM jobs") == 0


async def test_tasks_returned_after_an_acknowledged_cancel_are_discarded(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    await engine.add("job", "b", "", "", claim.lease)
    assert await user_actions.cancel_job(engine.db, engine.id("job")) is Cancellation.REQUESTED
    assert await hand_over(engine, claim, reference(engine, "b"), "b") == {claim.lease.task_id}
    assert await engine.status("a", "job") == "CANCELLED CANCELLED"
    assert await result(engine, "a") is None
    await engine.check()
