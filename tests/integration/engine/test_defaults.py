"""Defaults of tasks and jobs that settings give, and history that is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from aaiclick.orchestration import OrchContext, create_job, create_task, enqueue, enqueue_many
from aaiclick.orchestration.loops import job_retention, reaper
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.task_options import DEFAULT_OPTIONS, OPTION_COLUMNS
from tests.integration.engine.conftest import LEASE_SECONDS, Engine


@pytest.fixture
def set_variable(monkeypatch):
    def set_and_reload(name: str, value: str) -> None:
        monkeypatch.setenv(name, value)
        get_settings.cache_clear()

    yield set_and_reload
    monkeypatch.undo()
    get_settings.cache_clear()


@pytest.mark.parametrize(("retries", "attempts"), [(None, 4), ("0", 1), ("5", 6)])
async def test_default_attempts_are_retries_plus_one(engine: Engine, set_variable, retries, attempts) -> None:
    if retries is not None:
        set_variable("WORKER_MAX_RETRIES", retries)
    async with OrchContext(endpoint=engine.endpoint):
        await create_job("nightly", create_task("m.step"))
        await enqueue("mail", {})
        await enqueue_many("mail", [{}, {}])
    rows = await engine.db.fetch("SELECT max_attempts FROM tasks")
    assert [row["max_attempts"] for row in rows] == [attempts] * 4


async def test_default_attempts_of_the_column_are_those_of_the_setting(engine: Engine) -> None:
    await engine.db.execute("INSERT INTO tasks (id, type) VALUES (1, 'x')")
    assert await engine.db.fetchval("SELECT max_attempts FROM tasks") == 4


async def test_defaults_of_all_option_columns_are_those_of_task_options(engine: Engine) -> None:
    """A submit of tasks with default options leaves them to PostgreSQL; one with `copied` options writes them."""
    copied = replace(DEFAULT_OPTIONS)
    tasks = [
        [NewTask(id_, "x", options=options) for id_ in get_snowflake_ids(60)] for options in (DEFAULT_OPTIONS, copied)
    ]
    for part in tasks:
        await enqueue_tasks(engine.db, part)
    rows = await engine.db.fetch(f"SELECT DISTINCT {', '.join(OPTION_COLUMNS)}, readiness FROM tasks")
    assert [tuple(row) for row in rows] == [(*DEFAULT_OPTIONS.values(), "READY")]


async def test_default_timeout_of_jobs(engine: Engine, set_variable) -> None:
    set_variable("JOB_DEFAULT_TIMEOUT", "60")
    async with OrchContext(endpoint=engine.endpoint):
        await create_job("all at once", create_task("m.step"))
        await create_job("streamed", (create_task("m.step") for _ in range(2)))
        await create_job("own", create_task("m.step"), timeout_seconds=7)
    assert len(await engine.claim()) == 4
    rows = await engine.db.fetch("SELECT name, timeout_seconds, deadline_at - started_at AS left FROM jobs")
    assert {row["name"]: (row["timeout_seconds"], row["left"].total_seconds()) for row in rows} == {
        "all at once": (60, 60), "streamed": (60, 60), "own": (7, 7),
    }  # fmt: skip


async def test_lease_that_expires_on_the_last_attempt_is_a_dead_letter(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b", max_attempts=1)
    await engine.claim()
    now = await engine.now() + timedelta(seconds=LEASE_SECONDS + 1)
    assert (await reaper.run_once(engine.db, restart_grace_seconds=0, now=now))["tasks"] == 1
    assert await engine.status("a", "b", "job") == "DEAD_LETTER CANCELLED FAILED"
    row = await engine.db.fetchrow("SELECT outcome::text, charged FROM task_attempts")
    assert tuple(row) == ("LOST", True)
    await engine.check()


async def test_retention_keeps_dead_letters_without_a_job(engine: Engine) -> None:
    dead, done = engine.plan("dead done", max_attempts=1).tasks
    await enqueue_tasks(engine.db, [dead, done], DEFAULT_ORG_ID)
    claims = {claim.type: claim for claim in await engine.claim()}
    await engine.fail(claims["dead"])
    await engine.complete(claims["done"])
    now = await engine.now() + timedelta(days=1)
    assert (await job_retention.run_once(engine.db, keep_seconds=60, now=now))["tasks"] == 1
    assert await engine.status("dead") == "DEAD_LETTER"
