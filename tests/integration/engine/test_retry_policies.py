"""Retry policies: of the task, then of its type, then the caller's default."""

from datetime import timedelta

import pytest

from aaiclick.cli.main import run_command
from aaiclick.errors import SubmitError
from aaiclick.orchestration import OrchContext, RetryPolicy, set_retry_policy
from tests.integration.engine.conftest import Engine

JITTER = 1.1


async def wait_after_failure(engine: Engine, name: str, *, delay: float = 0.0) -> float:
    """Fail everything that is ready; return the delay until the retry of one task."""
    await engine.fail(*await engine.claim(), delay=delay)
    row = await engine.db.fetchrow("SELECT next_retry_at, updated_at FROM tasks WHERE id = $1", engine.id(name))
    assert row is not None
    return (row["next_retry_at"] - row["updated_at"]).total_seconds()


async def test_type_policy_applies_to_its_tasks(engine: Engine) -> None:
    async with OrchContext(endpoint=engine.endpoint):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
    await engine.submit("a", max_attempts=9)
    assert 200 <= await wait_after_failure(engine, "a", delay=7) <= 200 * JITTER


async def test_type_policy_does_not_apply_to_other_types(engine: Engine) -> None:
    async with OrchContext(endpoint=engine.endpoint):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
    await engine.submit("b", max_attempts=9)
    assert await wait_after_failure(engine, "b", delay=7) == 7


async def test_a_tasks_own_policy_wins(engine: Engine) -> None:
    async with OrchContext(endpoint=engine.endpoint):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
    await engine.submit("a", max_attempts=9, retry_policy='{"base_seconds": 7}')
    assert await wait_after_failure(engine, "a", delay=7) == 7


async def test_retry_delay_doubles_up_to_cap(engine: Engine) -> None:
    async with OrchContext(endpoint=engine.endpoint):
        await set_retry_policy("a", RetryPolicy(base_seconds=50, cap_seconds=250))
    await engine.submit("a", max_attempts=9)
    for least in (100, 200, 250, 250):
        assert least <= await wait_after_failure(engine, "a") <= least * JITTER
        engine.shift += timedelta(seconds=300)


async def test_removed_policy_restores_default(engine: Engine) -> None:
    async with OrchContext(endpoint=engine.endpoint):
        await set_retry_policy("a", RetryPolicy(base_seconds=100))
        await set_retry_policy("a", None)
    await engine.submit("a", max_attempts=9)
    assert await wait_after_failure(engine, "a", delay=7) == 7


def test_invalid_policy_is_refused() -> None:
    with pytest.raises(SubmitError, match="-1 s"):
        RetryPolicy(base_seconds=-1)


async def test_job_error_names_first_failure(engine: Engine) -> None:
    await engine.submit("a b c", edges="a>c", max_attempts=1)
    a, b = await engine.claim()
    await engine.fail(b)
    await engine.fail(a)
    error = await engine.db.fetchval("SELECT error FROM jobs")
    assert error == f"b (task {engine.id('b')}) failed in attempt 1: it broke"


async def test_retry_clears_error_of_job(engine: Engine) -> None:
    from aaiclick.store.engine.user_actions import redrive_dead_letters, retry_failed_tasks

    job = await engine.submit("a b", max_attempts=1)
    await engine.fail(*await engine.claim())
    await redrive_dead_letters(engine.db, task_ids=[engine.id("a")])
    assert (await engine.db.fetchval("SELECT error FROM jobs")).startswith("b (task")
    await retry_failed_tasks(engine.db, job)
    assert await engine.db.fetchval("SELECT error FROM jobs") is None
    await engine.run()
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_job_with_dead_letter_is_retained(engine: Engine) -> None:
    from aaiclick.store.engine.maintenance import delete_old_history
    from aaiclick.store.engine.user_actions import discard_dead_letters, redrive_dead_letters

    async def forgotten() -> int:
        return (await delete_old_history(engine.db, keep_seconds=1, now=await engine.now() + timedelta(days=1)))["jobs"]

    await engine.submit("a", job="dead", max_attempts=1)
    await engine.submit("b", job="dead too", max_attempts=1)
    await engine.fail(*await engine.claim())
    await engine.submit("c", job="failed")
    await engine.fail(*await engine.claim(), permanent=True)
    await engine.submit("d", job="done")
    await engine.run()
    assert await forgotten() == 2
    assert await engine.status("a", "b") == "DEAD_LETTER DEAD_LETTER"
    await discard_dead_letters(engine.db, task_ids=[engine.id("a")])
    await redrive_dead_letters(engine.db, task_ids=[engine.id("b")])
    assert await forgotten() == 1
    await engine.run()
    assert await forgotten() == 1


def test_cli_sets_shows_and_removes_type_policy(aaiclick_env, capsys) -> None:
    assert run_command(["types", "retry", "load", "--base-seconds", "5"]) == 0
    assert run_command(["types", "ls"]) == 0
    assert "after 10 s, doubling up to 3600 s" in capsys.readouterr().out
    assert run_command(["types", "retry", "load", "--default"]) == 0
    assert run_command(["types", "ls", "-o", "json"]) == 0
    assert capsys.readouterr().out.strip() == "[]"
    assert run_command(["types", "retry", "load"]) == 2
    assert run_command(["types", "pause", "load"]) == 0
    assert run_command(["types", "resume", "load"]) == 0
