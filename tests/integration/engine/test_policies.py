"""When a failed task is tried again: its own policy, then its type's, then the caller's default."""

from datetime import timedelta

import pytest

from aaiclick.cli.main import run
from aaiclick.errors import SubmitError
from aaiclick.orchestration import OrchContext, RetryPolicy, set_retry_policy
from tests.integration.engine.conftest import Engine

JITTER = 1.1


async def wait_after_failure(engine: Engine, name: str, *, asked: float = 0.0) -> float:
    """Fail everything that is ready, and say how long one task waits for its next try."""
    await engine.fail(*await engine.claim(), delay=asked)
    row = await engine.db.fetchrow("SELECT next_retry_at, updated_at FROM tasks WHERE id = $1", engine.id(name))
    assert row is not None
    return (row["next_retry_at"] - row["updated_at"]).total_seconds()


async def test_a_types_policy_holds_for_its_tasks(engine: Engine) -> None:
    async with OrchContext(target=engine.target):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
    await engine.submit("a", max_attempts=9)
    assert 200 <= await wait_after_failure(engine, "a", asked=7) <= 200 * JITTER


async def test_it_does_not_hold_for_other_types(engine: Engine) -> None:
    async with OrchContext(target=engine.target):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
    await engine.submit("b", max_attempts=9)
    assert await wait_after_failure(engine, "b", asked=7) == 7


async def test_a_tasks_own_policy_wins(engine: Engine) -> None:
    async with OrchContext(target=engine.target):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
    await engine.submit("a", max_attempts=9, retry_policy='{"base_seconds": 7}')
    assert await wait_after_failure(engine, "a", asked=7) == 7


async def test_it_doubles_up_to_its_cap(engine: Engine) -> None:
    async with OrchContext(target=engine.target):
        await set_retry_policy("a", RetryPolicy(base_seconds=50, cap_seconds=250))
    await engine.submit("a", max_attempts=9)
    for least in (100, 200, 250, 250):
        assert least <= await wait_after_failure(engine, "a") <= least * JITTER
        engine.shift += timedelta(seconds=300)


async def test_taken_away_the_default_is_back(engine: Engine) -> None:
    async with OrchContext(target=engine.target):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
        await set_retry_policy("a", None)
    await engine.submit("a", max_attempts=9)
    assert await wait_after_failure(engine, "a", asked=7) == 7


def test_a_policy_that_cannot_be_is_refused() -> None:
    with pytest.raises(SubmitError, match="-1 s"):
        RetryPolicy(base_seconds=-1)


async def test_a_job_says_what_failed_first(engine: Engine) -> None:
    await engine.submit("a b c", edges="a>c", max_attempts=1)
    a, b = await engine.claim()
    await engine.fail(b)
    await engine.fail(a)
    error = await engine.db.fetchval("SELECT error FROM jobs")
    assert error == f"b (task {engine.id('b')}) failed in attempt 1: it broke"


async def test_a_job_that_is_retried_forgets_why_it_failed(engine: Engine) -> None:
    from aaiclick.store.control import redrive, retry_failed_tasks

    job = await engine.submit("a b", max_attempts=1)
    await engine.fail(*await engine.claim())
    await redrive(engine.db, task_ids=[engine.id("a")])
    assert (await engine.db.fetchval("SELECT error FROM jobs")).startswith("b (task")
    await retry_failed_tasks(engine.db, job)
    assert await engine.db.fetchval("SELECT error FROM jobs") is None
    await engine.run()
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_a_job_with_a_dead_letter_stays_until_somebody_decides(engine: Engine) -> None:
    from aaiclick.store.control import discard, redrive
    from aaiclick.store.upkeep import forget

    async def forgotten() -> int:
        return (await forget(engine.db, keep_seconds=1, now=await engine.now() + timedelta(days=1)))["jobs"]

    await engine.submit("a", job="dead", max_attempts=1)
    await engine.submit("b", job="dead too", max_attempts=1)
    await engine.fail(*await engine.claim())
    await engine.submit("c", job="failed")
    await engine.fail(*await engine.claim(), permanent=True)
    await engine.submit("d", job="done")
    await engine.run()
    assert await forgotten() == 2
    assert await engine.status("a", "b") == "DEAD_LETTER DEAD_LETTER"
    await discard(engine.db, task_ids=[engine.id("a")])
    await redrive(engine.db, task_ids=[engine.id("b")])
    assert await forgotten() == 1
    await engine.run()
    assert await forgotten() == 1


def test_the_command_line_sets_shows_and_takes_away_a_types_policy(aaiclick_env, capsys) -> None:
    assert run(["types", "retry", "load", "--base-seconds", "5"]) == 0
    assert run(["types", "ls"]) == 0
    assert "after 10 s, doubling up to 3600 s" in capsys.readouterr().out
    assert run(["types", "retry", "load", "--default"]) == 0
    assert run(["types", "ls", "-o", "json"]) == 0
    assert capsys.readouterr().out.strip() == "[]"
    assert run(["types", "retry", "load"]) == 2
    assert run(["types", "pause", "load"]) == 0
    assert run(["types", "resume", "load"]) == 0
