"""Tasks with critical=False: dependents run after their final failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aaiclick.store.engine import user_actions
from tests.integration.engine.conftest import Engine


async def submit(engine: Engine, tasks: str, groups: str = "", edges: str = "", optional: str = "a") -> None:
    plan = engine.plan(tasks, groups, edges, max_attempts=1)
    for task in plan.tasks:
        task.options = replace(task.options, critical=engine.name(task.id) not in optional.split())
    from aaiclick.store.engine.submit import NewJob, submit_job

    await submit_job(engine.db, NewJob(engine.id("job"), "job"), plan)


@pytest.mark.parametrize("permanent", [True, False], ids=["failed", "dead letter"])
async def test_final_failure_of_an_optional_task_does_not_fail_the_job(engine: Engine, permanent: bool) -> None:
    await submit(engine, "a b c:g d", "g", "a>b a>g g>d")
    (claim,) = await engine.claim()
    await engine.fail(claim, permanent=permanent)
    await engine.check()
    assert await engine.run() == ["b c", "d"]
    assert await engine.status("a", "job") == ("FAILED COMPLETED" if permanent else "DEAD_LETTER COMPLETED")
    await engine.check()


async def test_a_group_completes_without_its_optional_member(engine: Engine) -> None:
    await submit(engine, "a:g b:g c", "g", "g>c")
    for claim in await engine.claim():
        await (engine.fail if claim.type == "a" else engine.complete)(claim)
    assert await engine.run() == ["c"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_redrive_of_optional_task_runs_no_dependents(engine: Engine) -> None:
    await submit(engine, "a b", "", "a>b")
    await engine.fail(*await engine.claim())
    assert await engine.run() == ["b"]
    assert await user_actions.redrive_dead_letters(engine.db) == {engine.id("a")}
    await engine.check()
    assert await engine.status("job") == "RUNNING"
    assert await engine.run() == ["a"]
    assert await engine.status("a", "b", "job") == "COMPLETED COMPLETED COMPLETED"
    await engine.check()


async def test_additions_of_an_optional_task_that_fails_never_run(engine: Engine) -> None:
    await submit(engine, "a b", "", "a>b")
    (claim,) = await engine.claim()
    await engine.add("job", "added", lease=claim.lease)
    await engine.fail(claim)
    assert await engine.run() == ["b"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_retry_of_job_skips_optional_failures(engine: Engine) -> None:
    await submit(engine, "a b", "", "a>b")
    await engine.fail(*await engine.claim())
    await engine.fail(*await engine.claim())
    assert await engine.status("a", "b", "job") == "DEAD_LETTER DEAD_LETTER FAILED"
    assert await user_actions.retry_failed_tasks(engine.db, engine.id("job")) == {engine.id("b")}
    assert await engine.run() == ["b"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_clear_of_an_optional_task_runs_its_dependents_again(engine: Engine) -> None:
    await submit(engine, "a b", "", "a>b")
    await engine.fail(*await engine.claim())
    assert await engine.run() == ["b"]
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    await engine.check()
    assert await engine.run() == ["a", "b"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()
