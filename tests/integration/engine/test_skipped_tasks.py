"""Branches, joins of skipped tasks, and handlers of failures and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aaiclick.errors import SubmitError
from aaiclick.store.engine import queue, user_actions
from aaiclick.store.engine.leases_and_outcomes import Claim, Success
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.enums import Cancellation
from tests.integration.engine.conftest import Engine


async def submit(engine: Engine, tasks: str, groups: str = "", edges: str = "") -> None:
    """Submit a job of tasks that are tried once."""
    await engine.submit(tasks, groups, edges, max_attempts=1)


async def choose(engine: Engine, claim: Claim, *names: str) -> None:
    success = Success(claim.lease, branch=names)
    assert await queue.acknowledge(engine.db, worker_id=engine.worker_id, successes=[success]) == {claim.lease.task_id}


async def claim_one(engine: Engine) -> Claim:
    (claim,) = await engine.claim()
    return claim


async def test_branch_skips_other_dependents_and_what_follows_them(engine: Engine) -> None:
    await submit(engine, "a b c d e", edges="a>b a>c c>d b>e")
    await choose(engine, await claim_one(engine), "b")
    await engine.check()
    assert await engine.status("b", "c", "d") == "PENDING SKIPPED SKIPPED"
    assert await engine.run() == ["b", "e"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_join_with_any_runs_after_the_chosen_branch(engine: Engine) -> None:
    await submit(engine, "a b c d join@any all", edges="a>b a>c c>d b>join d>join b>all d>all")
    await choose(engine, await claim_one(engine), "b")
    assert await engine.run() == ["b", "join"]
    assert await engine.status("join", "all", "job") == "COMPLETED SKIPPED COMPLETED"
    await engine.check()


async def test_join_with_any_is_skipped_with_its_last_predecessor(engine: Engine) -> None:
    await submit(engine, "a b c join@any after", edges="a>b a>c b>join c>join join>after")
    await choose(engine, await claim_one(engine))
    assert await engine.status("b", "c", "join", "after", "job") == "SKIPPED SKIPPED SKIPPED SKIPPED COMPLETED"
    await engine.check()


@pytest.mark.parametrize("chosen", ["g", "b"])
async def test_branch_skips_groups_with_their_members(engine: Engine, chosen: str) -> None:
    await submit(engine, "a b c:g d:h join@any", "g h:g", "a>b a>g g>join b>join c>h")
    await choose(engine, await claim_one(engine), chosen)
    await engine.check()
    assert await engine.run() == (["c", "d", "join"] if chosen == "g" else ["b", "join"])
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_group_completes_without_skipped_members(engine: Engine) -> None:
    await submit(engine, "a b:g c:g after", "g", "a>b a>c g>after")
    await choose(engine, await claim_one(engine), "c")
    assert await engine.run() == ["c", "after"]
    await engine.check()


async def test_unknown_branch_fails_the_task(engine: Engine) -> None:
    await submit(engine, "a b", edges="a>b")
    await choose(engine, await claim_one(engine), "missing")
    assert await engine.status("a", "b", "job") == "FAILED CANCELLED FAILED"
    error = await engine.db.fetchval("SELECT error FROM tasks WHERE id = $1", engine.id("a"))
    assert error == "The task chose missing, which does not depend on it. Its dependents: b."
    await engine.check()


async def test_clear_of_a_branch_chooses_again(engine: Engine) -> None:
    await submit(engine, "a b c:g join@any", "g", "a>b a>g b>join g>join")
    await choose(engine, await claim_one(engine), "b")
    assert await engine.run() == ["b", "join"]
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    await engine.check()
    await choose(engine, await claim_one(engine), "g")
    await engine.check()
    assert await engine.run() == ["c", "join"]
    assert await engine.status("b", "job") == "SKIPPED COMPLETED"
    await engine.check()


async def test_clear_of_a_task_after_a_skipped_one_skips_it_again(engine: Engine) -> None:
    await submit(engine, "a b c d", edges="a>b a>c c>d")
    await choose(engine, await claim_one(engine), "b")
    await engine.run()
    await user_actions.clear_tasks(engine.db, engine.id("d"))
    assert await engine.status("d", "job") == "SKIPPED COMPLETED"
    await user_actions.clear_tasks(engine.db, engine.id("c"))  # a skipped task runs if it is cleared itself
    assert await engine.run() == ["c", "d"]
    await engine.check()


@pytest.mark.parametrize(
    ("tasks", "groups", "edges"), [("a b c d", "", "a>b b>c c>d"), ("a b c:g d", "g", "a>b b>c g>d")]
)
async def test_clear_of_a_task_after_cancelled_ones_cancels_it_again(
    engine: Engine, tasks: str, groups: str, edges: str
) -> None:
    await submit(engine, tasks, groups, edges)
    await user_actions.cancel_tasks(engine.db, [engine.id("a")])
    await user_actions.clear_tasks(engine.db, engine.id("d"))
    await engine.check()
    assert await engine.status("a", "b", "c", "d") == "CANCELLED CANCELLED CANCELLED CANCELLED"


async def test_retry_skips_tasks_again_that_were_cancelled_before(engine: Engine) -> None:
    await submit(engine, "a b bad join", edges="a>b b>join bad>join")
    branch, bad = sorted(await engine.claim(), key=lambda claim: claim.type)
    await engine.fail(bad)
    await choose(engine, branch)
    assert await engine.status("b", "join", "job") == "SKIPPED CANCELLED FAILED"
    await engine.check()
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"))
    await engine.check()
    assert await engine.run() == ["bad"]
    assert await engine.status("join", "job") == "SKIPPED COMPLETED"
    await engine.check()


async def test_failure_handler_runs_after_a_failure_with_its_cause(engine: Engine) -> None:
    plan = engine.plan("a b alert", edges="a>b a>alert", max_attempts=1)
    plan.tasks[2].options = replace(plan.tasks[2].options, when="failed")
    plan.tasks[2].kwargs = '{"failure": {"object_type": "failure"}, "to": "ada"}'
    await submit_job(engine.db, NewJob(engine.id("job"), "job"), plan)
    await engine.fail(await claim_one(engine))
    await engine.check()
    claim = await claim_one(engine)
    assert claim.type == "alert"
    kwargs = await engine.db.fetchval("SELECT kwargs FROM tasks WHERE id = $1", engine.id("alert"))
    assert '"error": "it broke"' in kwargs
    assert f'"task_id": "{engine.id("a")}"' in kwargs
    await engine.complete(claim)
    assert await engine.status("a", "b", "alert", "job") == "DEAD_LETTER CANCELLED COMPLETED FAILED"
    await engine.check()


async def test_failure_handler_is_skipped_without_a_failure(engine: Engine) -> None:
    await submit(engine, "a b alert@failed after", edges="a>alert b>alert alert>after")
    assert await engine.run() == ["a b"]
    assert await engine.status("alert", "after", "job") == "SKIPPED SKIPPED COMPLETED"
    await engine.check()


ENDS: Sequence[str] = ("complete", "fail", "cancel task", "cancel job")


@pytest.mark.parametrize("end", ENDS)
async def test_final_task_of_a_group_runs_after_every_end(engine: Engine, end: str) -> None:
    await submit(engine, "a:g b:g after last@ended", "g", "a>b g>last g>after")
    claim = await claim_one(engine)
    if end == "complete":
        await engine.complete(claim)
        assert await engine.run() == ["b", "after last"]
    elif end == "fail":
        await engine.fail(claim)
        assert await engine.run() == ["last"]
    elif end == "cancel task":
        await user_actions.cancel_tasks(engine.db, [engine.id("b")])
        await engine.check()
        await engine.complete(claim)
        assert await engine.run() == ["last"]
    else:
        assert await user_actions.cancel_job(engine.db, engine.id("job")) is Cancellation.REQUESTED
        await engine.check()
        assert await engine.claim() == []
        await engine.complete(claim)
        await engine.check()
        assert await engine.run() == ["last"]
    expected = {"complete": "COMPLETED", "fail": "FAILED"}.get(end, "CANCELLED")
    assert await engine.status("last", "job") == f"COMPLETED {expected}"
    await engine.check()


async def test_second_cancel_of_a_job_cancels_its_final_tasks(engine: Engine) -> None:
    await submit(engine, "a last@ended", edges="a>last")
    job = engine.id("job")
    assert await user_actions.cancel_job(engine.db, job) is Cancellation.REQUESTED
    assert await engine.status("a", "last", "job") == "CANCELLED PENDING PENDING"
    await engine.check()
    assert await user_actions.cancel_job(engine.db, job) is Cancellation.CANCELLED
    assert await engine.status("last", "job") == "CANCELLED CANCELLED"
    await engine.check()


async def test_cancel_of_a_job_with_only_final_tasks_cancels_them(engine: Engine) -> None:
    await submit(engine, "a last@ended", edges="a>last")
    await engine.complete(await claim_one(engine))
    assert await user_actions.cancel_job(engine.db, engine.id("job")) is Cancellation.CANCELLED
    assert await engine.status("a", "last", "job") == "COMPLETED CANCELLED CANCELLED"
    await engine.check()


async def test_timeout_of_a_job_starts_its_failure_handler(engine: Engine) -> None:
    await submit(engine, "a alert@failed last@ended", edges="a>alert a>last alert>last")
    await user_actions.cancel_job(engine.db, engine.id("job"), error="The job did not end within 5 s.")
    await engine.check()
    assert await engine.run() == ["alert", "last"]
    assert await engine.status("a", "alert", "last", "job") == "CANCELLED COMPLETED COMPLETED FAILED"
    await engine.check()


async def test_plain_cancel_starts_no_failure_handler(engine: Engine) -> None:
    await submit(engine, "a alert@failed last@ended", edges="a>alert a>last alert>last")
    await user_actions.cancel_job(engine.db, engine.id("job"))
    assert await engine.run() == ["last"]
    assert await engine.status("alert", "job") == "SKIPPED CANCELLED"
    await engine.check()


async def test_retry_runs_handlers_again(engine: Engine) -> None:
    await submit(engine, "a alert@failed last@ended", edges="a>alert a>last alert>last")
    await engine.fail(await claim_one(engine))
    assert await engine.run() == ["alert", "last"]
    assert await engine.status("job") == "FAILED"
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"))
    assert await engine.status("a", "alert", "last") == "PENDING PENDING PENDING"
    await engine.check()
    assert await engine.run() == ["a", "last"]
    assert await engine.status("alert", "job") == "SKIPPED COMPLETED"
    await engine.check()


async def test_handlers_wait_for_tasks_that_their_task_added(engine: Engine) -> None:
    await submit(engine, "a alert@failed", edges="a>alert")
    claim = await claim_one(engine)
    await engine.add("job", "more", lease=claim.lease)
    await engine.check()
    await engine.complete(claim)
    (more,) = await engine.claim()
    assert more.type == "more"
    await engine.fail(more, permanent=True)
    assert await engine.run() == ["alert"]
    await engine.check()


async def test_discarded_additions_do_not_block_handlers(engine: Engine) -> None:
    plan = engine.plan("a last", edges="a>last")
    plan.tasks[1].options = replace(plan.tasks[1].options, when="ended")
    await submit_job(engine.db, NewJob(engine.id("job"), "job"), plan)
    claim = await claim_one(engine)
    await engine.add("job", "more", lease=claim.lease)
    await engine.fail(claim)
    await engine.check()
    (again,) = await engine.claim()
    await engine.complete(again)
    await engine.check()
    assert await engine.run() == ["last"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_failure_handler_without_predecessor_is_refused(engine: Engine) -> None:
    with pytest.raises(SubmitError, match=r"alert has when='failed' and no predecessor"):
        await submit(engine, "a alert@failed")


async def test_handler_in_a_group_is_refused(engine: Engine) -> None:
    with pytest.raises(SubmitError, match=r"last is in a group and has when='ended'"):
        await submit(engine, "a last@ended:g", "g", "a>last")
