"""Tasks of pinned jobs are claimed only by workers with their version of the code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.orchestration import job, task
from aaiclick.orchestration.process_code_version import current_code_version
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.store.engine import maintenance, queries, queue
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.leases_and_outcomes import Failure
from aaiclick.store.engine.maintenance import MAX_SCANNED_TASKS, delete_old_history
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.retry_and_redrive import discard_dead_letters
from aaiclick.store.engine.submission_plan import NewTask, Plan, pin_plan
from aaiclick.store.engine.submit import add_to_job, submit_job
from aaiclick.store.task_options import TaskOptions
from tests.integration.engine.conftest import Engine


@task
def add(a: int, b: int) -> int:
    return a + b


@job(pin_version=True)
def pinned_sum(a: int) -> None:
    add(add(a, 1), 2)


async def submit_pinned(engine: Engine, version: str, **options: object) -> int:
    plan = Plan([NewTask(engine.id("a"), "a", "m.a", options=TaskOptions(**options))])  # pyright: ignore[reportArgumentType]
    pin_plan(plan, version)
    return await submit_job(engine.db, NewJob(engine.id("job"), "job"), plan)


async def claim_as(engine: Engine, version: str | None, *queues: str) -> list[str]:
    worker = await queue.register_worker(engine.db, hostname="h", pid=1, queues=queues, code_version=version)
    claims = await queue.claim(engine.db, worker_id=worker.id, limit=9, queues=queues, lease_seconds=60)
    return [claim.type for claim in claims]


@pytest.mark.parametrize("version", ["3f2a91cd-8c1d22aa", "release:1.2"])
async def test_only_workers_with_the_version_claim(engine: Engine, version: str) -> None:
    await submit_pinned(engine, version)
    assert await claim_as(engine, None) == []
    assert await claim_as(engine, "other") == []
    assert await claim_as(engine, version, "slow") == []
    [reason] = [reason for reason in await explain_task(engine.db, engine.id("a")) if reason.code == "code_version"]
    assert f"--code-version {version.replace(':', '_')}" in reason.text or ":" in version
    assert await claim_as(engine, version) == ["a"]


async def test_pinned_tasks_keep_their_queue(engine: Engine) -> None:
    await submit_pinned(engine, "v1", queue="slow")
    await engine.submit("plain", job="other")
    assert await claim_as(engine, "v1", "default") == ["plain"]
    assert await claim_as(engine, "v2") == []
    assert await claim_as(engine, "v1", "slow", "default") == ["a"]


async def test_plain_tasks_run_beside_pinned_ones(engine: Engine) -> None:
    await submit_pinned(engine, "v1")
    await engine.submit("plain", job="other")
    assert sorted(await claim_as(engine, "v1")) == ["a", "plain"]


async def test_tasks_added_by_a_pinned_task_are_pinned(engine: Engine) -> None:
    job_id = await submit_pinned(engine, "v1")
    worker = await queue.register_worker(engine.db, hostname="h", pid=1, code_version="v1")
    [claim] = await queue.claim(engine.db, worker_id=worker.id, limit=9, queues=[], lease_seconds=60)
    await add_to_job(engine.db, job_id, Plan([NewTask(engine.id("b"), "b", "m.b")]), None, claim.lease)
    await engine.complete(claim)
    assert await claim_as(engine, "v2") == []
    assert await claim_as(engine, "v1") == ["b"]
    await engine.check()


async def test_pinned_job_runs_with_the_version_of_its_caller(aaiclick_env: None) -> None:
    submitted = await pinned_sum(1)
    ended = await run_until_job_ends(submitted.id)
    assert ended.status == "COMPLETED"
    assert len(current_code_version()) >= 8


async def test_version_of_a_stopped_worker_stays_while_its_task_exists(engine: Engine) -> None:
    await engine.submit("a")
    worker = await queue.register_worker(engine.db, hostname="h", pid=1, code_version="v1")
    [claim] = await queue.claim(engine.db, worker_id=worker.id, limit=9, queues=[], lease_seconds=60)
    await engine.db.execute("UPDATE tasks SET max_attempts = 1")
    failure = Failure(claim.lease, "no", "f", permanent=False)
    await queue.acknowledge(engine.db, worker_id=worker.id, failures=[failure])
    await queue.deregister_worker(engine.db, worker.id)
    later = datetime.now(UTC) + timedelta(days=100)
    await delete_old_history(engine.db, keep_seconds=60, now=later)
    task = await queries.get_task(engine.db, engine.id("a"))
    assert (task["status"], task["code_version"]) == ("DEAD_LETTER", "v1")
    [attempt] = await queries.list_task_attempts(engine.db, engine.id("a"))
    assert attempt["code_version"] == "v1"
    await discard_dead_letters(engine.db)
    await delete_old_history(engine.db, keep_seconds=60, now=later)
    assert await engine.db.fetchval("SELECT count(*) FROM workers WHERE id = $1", worker.id) == 0


@pytest.mark.parametrize("scanned", [MAX_SCANNED_TASKS, 1])
async def test_old_tasks_keep_only_the_workers_of_their_attempts(engine: Engine, monkeypatch, scanned: int) -> None:
    monkeypatch.setattr(maintenance, "MAX_SCANNED_TASKS", scanned)
    await engine.submit("a")
    workers = [
        (await queue.register_worker(engine.db, hostname="h", pid=1, code_version=f"v{number}")).id
        for number in range(3)
    ]
    [first] = await queue.claim(engine.db, worker_id=workers[0], limit=1, queues=[], lease_seconds=60)
    await queue.acknowledge(engine.db, worker_id=workers[0], releases=[first.lease])
    [second] = await queue.claim(engine.db, worker_id=workers[1], limit=1, queues=[], lease_seconds=60)
    for worker_id in (workers[0], workers[2]):
        await queue.deregister_worker(engine.db, worker_id)
    await queue.acknowledge(
        engine.db, worker_id=workers[1], failures=[Failure(second.lease, "no", "f", permanent=True)]
    )
    await queue.deregister_worker(engine.db, workers[1])
    await engine.db.execute("UPDATE tasks SET status = 'DEAD_LETTER'")
    later = datetime.now(UTC) + timedelta(days=100)
    await delete_old_history(engine.db, keep_seconds=60, now=later)
    worker_ids = await engine.db.fetchval(
        "SELECT array_agg(id ORDER BY id) FROM workers WHERE code_version IS NOT NULL"
    )
    assert worker_ids == (workers[:2] if scanned > 1 else workers)
