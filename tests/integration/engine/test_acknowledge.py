"""Acknowledgements: fencing, retries, dead letters, cancellation, redrive."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from uuid import uuid4

import pytest

from aaiclick.errors import NotFoundError
from aaiclick.orchestration.loops import due_task_promoter, job_retention, job_timeouts, leader, reaper, scheduler
from aaiclick.store.engine import queries, queue, user_actions
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.leases_and_outcomes import Failure, Lease, Success
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import Cancellation
from aaiclick.store.postgres_connections import connect
from tests.integration.engine.conftest import LEASE_SECONDS, Engine


async def test_result_and_attempt_are_stored(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    await engine.complete(claim, result='{"x": [1, null]}')
    row = await engine.db.fetchrow("SELECT result, attempt, failures, worker_id FROM tasks")
    assert tuple(row) == ('{"x": [1, null]}', 1, 0, engine.worker_id)
    assert await engine.db.fetchval("SELECT count(*) FROM task_attempts") == 0


@pytest.mark.parametrize("change", ["token", "attempt", "task"])
@pytest.mark.parametrize("edges", ["a>b", ""], ids=["linked", "plain"])
async def test_only_lease_holder_can_acknowledge(engine: Engine, change: str, edges: str) -> None:
    await engine.submit("a b", "", edges)
    (claim,) = await engine.claim(1)
    held = claim.lease
    false = {
        "token": Lease(held.task_id, held.attempt, uuid4(), held.linked),
        "attempt": Lease(held.task_id, held.attempt + 1, held.token, held.linked),
        "task": Lease(engine.id("b"), held.attempt, held.token, held.linked),
    }[change]
    for outcome in ({"successes": [Success(false)]}, {"failures": [Failure(false, "x", "x")]}, {"releases": [false]}):
        assert await queue.acknowledge(engine.db, worker_id=engine.worker_id, **outcome) == set()
    assert await queue.start(engine.db, [false]) == set()
    answer = await queue.heartbeat(engine.db, worker_id=engine.worker_id, leases=[false], lease_seconds=60)
    assert answer.lost == {false.task_id}
    assert await engine.status("a", "b") == "CLAIMED PENDING"
    assert await engine.complete(claim) == {held.task_id}
    await engine.check()


async def test_lost_lease_cannot_complete(engine: Engine, second: Engine) -> None:
    await engine.submit("a b", "", "a>b")
    (zombie,) = await engine.claim()
    engine.shift = second.shift = timedelta(minutes=5)
    assert (await reaper.run_once(second.db, restart_grace_seconds=0, now=await second.now()))["tasks"] == 1
    second.shift = timedelta(hours=5)
    (alive,) = await second.claim()
    assert (alive.lease.task_id, alive.lease.attempt) == (zombie.lease.task_id, 2)
    assert await engine.complete(zombie) == set()
    assert await engine.fail(zombie) == set()
    assert await second.complete(alive) == {alive.lease.task_id}
    assert await engine.complete(zombie) == set()
    assert await engine.db.fetchval("SELECT unmet FROM tasks WHERE type = 'b'") == 0


async def test_repeated_outcome_is_accepted_once(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b")
    (claim,) = await engine.claim()
    assert await engine.complete(claim) == {claim.lease.task_id}
    assert await engine.complete(claim) == set()
    await engine.check()


async def test_claim_makes_the_acknowledgement_durable(engine: Engine) -> None:
    await engine.db.execute("SET synchronous_commit = on")  # as on servers that are not for tests
    await engine.submit("a b c d e", "", "a>b b>c c>d d>e")
    claims = await engine.claim(1)
    for _ in range(4):
        inserted = await engine.db.fetchval("SELECT pg_current_wal_insert_lsn()")
        accepted, claims = await queue.acknowledge_and_claim(
            engine.db,
            worker_id=engine.worker_id,
            successes=[Success(claim.lease) for claim in claims],
            limit=2,
            queues=[],
            lease_seconds=LEASE_SECONDS,
        )
        assert (len(accepted), len(claims)) == (1, 1)
        assert await engine.db.fetchval("SELECT pg_current_wal_flush_lsn() > $1", inserted)
    await engine.check()


async def test_repeated_start_keeps_first_start_time(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    assert await queue.start(engine.db, [claim.lease]) == {claim.lease.task_id}
    before = await engine.db.fetchval("SELECT started_at FROM tasks WHERE status = 'RUNNING'")
    assert await queue.start(engine.db, [claim.lease]) == {claim.lease.task_id}
    assert await engine.db.fetchval("SELECT started_at FROM tasks") == before


async def test_failed_task_is_retried_then_dead_letter(engine: Engine) -> None:
    await engine.submit("a", max_attempts=3)
    for attempt in (1, 2):
        (claim,) = await engine.claim()
        assert (claim.lease.attempt, claim.failures) == (attempt, attempt - 1)
        await engine.fail(claim, delay=10)
        assert await engine.status("a", "job") == "FAILED RUNNING"
        assert await engine.claim() == []
        engine.shift += timedelta(seconds=11)
    (claim,) = await engine.claim()
    await engine.fail(claim)
    assert await engine.status("a", "job") == "DEAD_LETTER FAILED"
    history = await engine.db.fetch("SELECT attempt, outcome::text, charged, error FROM task_attempts ORDER BY 1")
    assert [tuple(row) for row in history] == [(n, "FAILED", True, "it broke") for n in (1, 2, 3)]
    await engine.check()


async def test_a_permanent_error_is_not_retried(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    await engine.fail(claim, permanent=True)
    assert await engine.status("a", "job") == "FAILED FAILED"


async def test_uncharged_attempts_are_retried_without_limit(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1)
    for _ in range(3):
        (claim,) = await engine.claim()
        lost = Failure(claim.lease, "killed with a neighbour", "neighbour", charged=False, outcome="LOST")
        await queue.acknowledge(engine.db, worker_id=engine.worker_id, failures=[lost])
    (claim,) = await engine.claim()
    assert (claim.lease.attempt, claim.failures) == (4, 0)
    await engine.complete(claim)
    await engine.check()


async def test_released_task_is_ready_at_once(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    await queue.acknowledge(engine.db, worker_id=engine.worker_id, releases=[claim.lease])
    (again,) = await engine.claim()
    assert (again.lease.attempt, again.failures) == (2, 0)
    await engine.check()


async def test_redrive_resets_failures_and_keeps_attempt_number(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b", max_attempts=1)
    (claim,) = await engine.claim()
    await engine.fail(claim)
    assert await engine.status("a", "b", "job") == "DEAD_LETTER CANCELLED FAILED"
    assert await user_actions.redrive_dead_letters(engine.db, fingerprint="another") == set()
    assert await user_actions.redrive_dead_letters(engine.db, fingerprint="broken") == {engine.id("a"), engine.id("b")}
    assert await engine.status("a", "b", "job") == "PENDING PENDING RUNNING"
    await engine.check()
    (claim,) = await engine.claim()
    assert (claim.lease.attempt, claim.failures) == (2, 0)
    await engine.complete(claim)
    assert await engine.run() == ["b"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_redrive_can_be_spread_over_time(engine: Engine) -> None:
    await engine.submit("a b c", max_attempts=1)
    await engine.fail(*await engine.claim())
    assert len(await user_actions.redrive_dead_letters(engine.db, per_second=1)) == 3
    assert len(await engine.claim()) == 1
    engine.shift = timedelta(seconds=1)
    assert len(await engine.claim()) == 1


@pytest.mark.parametrize("rate", [0.4, 2.0])
async def test_redrive_respects_rate(engine: Engine, rate: float) -> None:
    await engine.submit("a b c", max_attempts=1)
    await engine.fail(*await engine.claim())
    await user_actions.redrive_dead_letters(engine.db, per_second=rate)
    rows = await engine.db.fetch("SELECT available_at FROM tasks ORDER BY available_at")
    first, second, third = (row["available_at"] for row in rows)
    assert [(time_ - first).total_seconds() for time_ in (second, third)] == [1 / rate, 2 / rate]


async def test_concurrent_redrive_keeps_discarded_dead_letter(engine: Engine) -> None:
    await engine.submit("a b", max_attempts=1)
    await engine.fail(*await engine.claim())
    other = await connect(engine.endpoint)
    giving_up = other.transaction()
    await giving_up.start()
    await user_actions.discard_dead_letters(other, task_ids=[engine.id("a")])
    redriving = asyncio.create_task(user_actions.redrive_dead_letters(engine.db, limit=None))
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    while not await other.fetchval(waiting):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await giving_up.commit()
    assert await redriving == {engine.id("b")}
    assert await engine.status("a", "b") == "FAILED PENDING"
    await other.close()


async def test_unlimited_redrive_takes_all_dead_letters(engine: Engine, monkeypatch) -> None:
    monkeypatch.setattr("aaiclick.store.engine.retry_and_redrive.BATCH_SIZE", 2)
    await engine.submit("a b c", job="one", max_attempts=1)
    await engine.submit("d e", job="two", max_attempts=1)
    await engine.fail(*await engine.claim())
    assert len(await user_actions.redrive_dead_letters(engine.db, limit=2)) == 2
    assert len(await user_actions.redrive_dead_letters(engine.db, limit=None, per_second=1)) == 3
    await engine.check()
    assert len(await engine.claim()) == 3  # the two oldest, and the first of the others
    engine.shift = timedelta(seconds=1)
    assert len(await engine.claim()) == 1
    engine.shift = timedelta(seconds=2)
    assert len(await engine.claim()) == 1


async def test_unlimited_redrive_skips_new_dead_letters(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1)
    await engine.fail(*await engine.claim())
    await engine.db.execute("UPDATE tasks SET completed_at = now() + interval '1 minute'")
    assert await user_actions.redrive_dead_letters(engine.db, limit=None) == set()
    assert len(await user_actions.redrive_dead_letters(engine.db)) == 1


async def test_all_dead_letters_are_discarded(engine: Engine, monkeypatch) -> None:
    monkeypatch.setattr("aaiclick.store.engine.retry_and_redrive.BATCH_SIZE", 2)
    await engine.submit("a b c", max_attempts=1)
    await engine.fail(*await engine.claim())
    assert len(await user_actions.discard_dead_letters(engine.db, limit=1)) == 1
    assert len(await user_actions.discard_dead_letters(engine.db, limit=None)) == 2
    assert await engine.status("a", "b", "c") == "FAILED FAILED FAILED"
    await engine.check()


async def test_retry_keeps_tasks_cancelled_by_other_failure(engine: Engine) -> None:
    await engine.submit("a b c d", "", "a>c b>c c>d", max_attempts=1)
    claims = {claim.type: claim for claim in await engine.claim()}
    await engine.fail(claims["a"])
    await engine.fail(claims["b"])
    await user_actions.redrive_dead_letters(engine.db, task_ids=[engine.id("a")])
    assert await engine.status("a", "b", "c", "d") == "PENDING DEAD_LETTER CANCELLED CANCELLED"
    assert await engine.db.fetchval("SELECT count(*) FROM tasks WHERE cause_id = $1", engine.id("b")) == 2
    await engine.check()
    await engine.run()
    await user_actions.redrive_dead_letters(engine.db)
    assert await engine.run() == ["b", "c", "d"]
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


async def test_retry_of_job_includes_cancelled_dependents(engine: Engine) -> None:
    await engine.submit("a:g b c:h d", "g h:g", "a>b g>d", max_attempts=2)
    claims = {claim.type: claim for claim in await engine.claim()}
    await engine.fail(claims["a"], permanent=True)
    await engine.complete(claims["c"])
    assert await engine.status("job", "b", "d") == "FAILED CANCELLED CANCELLED"
    assert len(await user_actions.retry_failed_tasks(engine.db, engine.id("job"))) == 3
    await engine.check()
    assert await engine.run() == ["a", "b d"]
    assert await engine.status("job") == "COMPLETED"
    with pytest.raises(NotFoundError):
        await user_actions.retry_failed_tasks(engine.db, 1)


@pytest.mark.parametrize(
    ("tasks", "groups", "edges", "cleared", "again"),
    [
        ("a b c", "", "a>b b>c", "b", ["b", "c"]),
        ("a b:g c:g d", "g", "a>g g>d", "b", ["b", "d"]),
        ("a b:g c:g d", "g", "a>g g>d", "a", ["a", "b c", "d"]),
        ("a b:h c:g d", "g h:g", "h>c g>d", "b", ["b", "c", "d"]),
        ("a b", "g h", "a>g g>h h>b", "a", ["a", "b"]),
        ("a b", "", "", "a", ["a"]),
    ],
)
async def test_clear_reruns_task_and_dependents(
    engine: Engine, tasks: str, groups: str, edges: str, cleared: str, again: list[str]
) -> None:
    await engine.submit(tasks, groups, edges)
    await engine.run()
    ids = await user_actions.clear_tasks(engine.db, engine.id(cleared))
    assert sorted(engine.name(key) for key in ids) == sorted(" ".join(again).split())
    assert await engine.status("job") == "RUNNING"
    await engine.check()
    assert await engine.run() == again
    assert await engine.status("job") == "COMPLETED"
    await engine.check()


@pytest.mark.parametrize(
    ("tasks", "groups", "edges"),
    [
        ("a b c", "", "a>b b>c"),
        ("a:g b c", "g", "g>b b>c"),
        ("a b:g c", "g", "a>g g>c"),
        ("a b:g c:h", "g h", "a>g g>h"),
    ],
)
async def test_task_after_a_cancelled_one_is_cancelled_again_if_it_is_cleared(
    engine: Engine, tasks: str, groups: str, edges: str
) -> None:
    await engine.submit(tasks, groups, edges)
    await engine.fail(*await engine.claim(), permanent=True)
    assert await engine.status("b", "c", "job") == "CANCELLED CANCELLED FAILED"
    await user_actions.clear_tasks(engine.db, engine.id("c"))
    assert await engine.status("b", "c", "job") == "CANCELLED CANCELLED FAILED"
    await engine.check()
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"))
    assert await engine.run() == ["a", "b", "c"]
    await engine.check()


async def test_clear_revokes_leases_of_downstream_tasks(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b")
    await engine.complete(*await engine.claim())
    (running,) = await engine.claim()
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    assert await engine.complete(running) == set()
    await engine.check()
    assert await engine.run() == ["a", "b"]


async def test_cancel_ends_waiting_tasks_at_once_and_signals_running(engine: Engine) -> None:
    await engine.submit("a b:g c:g d", "g", "a>g g>d")
    (running,) = await engine.claim()
    assert await user_actions.cancel_job(engine.db, engine.id("job")) is Cancellation.REQUESTED
    assert await user_actions.cancel_job(engine.db, engine.id("job")) is Cancellation.REQUESTED
    assert await engine.status("a", "b", "c", "d", "job") == "CLAIMED CANCELLED CANCELLED CANCELLED RUNNING"
    answer = await queue.heartbeat(engine.db, worker_id=engine.worker_id, leases=[running.lease], lease_seconds=60)
    assert answer.cancelled == {running.lease.task_id}
    await engine.fail(running)
    assert await engine.status("a", "job") == "CANCELLED CANCELLED"
    assert await user_actions.cancel_job(engine.db, engine.id("job")) is Cancellation.OVER
    await engine.check()


@pytest.mark.parametrize("shape", [("a",), ("a b", "", "a>b"), ("a:g b", "g", "g>b")], ids=["plain", "chain", "group"])
async def test_completion_after_an_acknowledged_cancel_is_cancelled(engine: Engine, shape: tuple[str, ...]) -> None:
    await engine.submit(*shape)
    (running,) = await engine.claim()
    assert await user_actions.cancel_job(engine.db, engine.id("job")) is Cancellation.REQUESTED
    assert await engine.complete(running, result='"r"') == {running.lease.task_id}
    assert await engine.status("a", "job") == "CANCELLED CANCELLED"
    row = await engine.db.fetchrow("SELECT outcome::text, charged, error FROM task_attempts")
    assert row is not None
    assert (row["outcome"], row["charged"]) == ("CANCELLED", False)
    assert "discarded" in row["error"]
    assert await engine.db.fetchval("SELECT result FROM tasks WHERE id = $1", engine.id("a")) is None
    await engine.check()


async def test_a_leased_task_without_a_job_can_only_become_cancelled(engine: Engine) -> None:
    task_id = engine.id("alone")
    await enqueue_tasks(engine.db, [NewTask(task_id, "alone")])
    (running,) = await engine.claim()
    answers = await user_actions.cancel_tasks(engine.db, [task_id, 1])
    assert answers == {task_id: Cancellation.REQUESTED, 1: Cancellation.OVER}
    await engine.complete(running)
    assert await engine.status("alone") == "CANCELLED"
    assert await user_actions.cancel_tasks(engine.db, [task_id]) == {task_id: Cancellation.OVER}
    await engine.check()


async def test_cancelled_job_can_be_retried(engine: Engine) -> None:
    await engine.submit("a b:g", "g", "a>g")
    await user_actions.cancel_job(engine.db, engine.id("job"))
    assert await engine.status("job") == "CANCELLED"
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"), cancelled=True)
    await engine.check()
    assert await engine.run() == ["a", "b"]
    assert await engine.status("job") == "COMPLETED"


async def test_cancelled_task_cancels_dependents(engine: Engine) -> None:
    await engine.submit("a b c", "", "a>b")
    assert await user_actions.cancel_tasks(engine.db, [engine.id("a")]) == {engine.id("a"): Cancellation.CANCELLED}
    assert await engine.status("a", "b", "c") == "CANCELLED CANCELLED PENDING"
    assert await engine.run() == ["c"]
    assert await engine.status("job") == "CANCELLED"
    await engine.check()


async def test_a_heartbeat_in_time_keeps_the_lease(engine: Engine, second: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    engine.shift = timedelta(seconds=50)
    now = await engine.now()
    beat = {"worker_id": engine.worker_id, "leases": [claim.lease], "lease_seconds": 60.0, "now": now}
    assert (await queue.heartbeat(engine.db, **beat)).lost == set()
    assert (await reaper.run_once(second.db, restart_grace_seconds=0, now=now + timedelta(seconds=50)))["tasks"] == 0
    assert (await reaper.run_once(second.db, restart_grace_seconds=0, now=now + timedelta(seconds=61)))["tasks"] == 1
    assert (await queue.heartbeat(engine.db, **beat)).lost == {claim.lease.task_id}


async def test_heartbeat_during_reaping_keeps_lease(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    grip = Failure(claim.lease, "expired", "expired", outcome="LOST", expired=True)
    assert await queue.acknowledge(engine.db, worker_id=0, failures=[grip]) == set()
    assert await engine.complete(claim) == {claim.lease.task_id}


async def test_worker_without_heartbeat_is_stopped_and_tasks_recovered(engine: Engine, second: Engine) -> None:
    await engine.submit("a b")
    claims = await engine.claim(1)
    now = await engine.now() + timedelta(seconds=30)
    await queue.heartbeat(second.db, worker_id=second.worker_id, leases=(), lease_seconds=60, now=now)
    counts = await reaper.run_once(second.db, restart_grace_seconds=0, worker_timeout_seconds=20, now=now)
    assert counts == {"workers": 1, "tasks": 1}
    states = {worker.id: worker.status.value for worker in await queue.list_workers(second.db)}
    assert states == {engine.worker_id: "STOPPED", second.worker_id: "ACTIVE"}
    assert await engine.complete(*claims) == set()


@pytest.mark.parametrize("stuck", ["the graph of a job", "the row of a task"])
async def test_locked_row_does_not_block_recovery_of_others(engine: Engine, second: Engine, stuck: str) -> None:
    """A session is suspended in a transaction: only work on its locked rows waits."""
    for job, names in (("held", "a b"), ("free", "c d")):
        await engine.submit(names, "", ">".join(names.split()), job=job)
    await engine.submit("e")
    claims = await engine.claim()
    now = await engine.now() + timedelta(seconds=61)
    other = await connect(engine.endpoint)
    async with other.transaction():
        if stuck == "the row of a task":
            await other.fetchval("SELECT id FROM tasks WHERE id = $1 FOR UPDATE", engine.id("a"))
        else:
            await other.fetchval("SELECT pg_advisory_xact_lock_shared($1)", engine.id("held"))
        counts = await leader.run_once(second.db, worker_id=second.worker_id, now=now)
        assert counts["reaper_tasks"] == len(claims) - 1
        assert {"promoter_tasks", "deadlines_jobs", "retention_jobs"} <= set(counts)
        running = await second.db.fetch("SELECT id FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')")
        assert [row["id"] for row in running] == [engine.id("a")]
    await other.close()
    assert (await leader.run_once(second.db, worker_id=second.worker_id, now=now))["reaper_tasks"] == 1
    assert await second.db.fetchval("SHOW lock_timeout") == "0"
    await second.check()


async def test_deregistered_worker_releases_its_tasks(engine: Engine, second: Engine) -> None:
    await engine.submit("a b")
    await engine.claim()
    assert await queue.deregister_worker(engine.db, engine.worker_id)
    assert not await queue.deregister_worker(engine.db, engine.worker_id)
    assert [claim.failures for claim in await second.claim()] == [0, 0]
    await second.check()


async def test_terms_never_overlap(engine: Engine, second: Engine) -> None:
    now = await engine.now()
    first = await queue.lead(engine.db, engine.worker_id, term_seconds=10, now=now)
    assert await queue.lead(second.db, second.worker_id, term_seconds=10, now=now) is None
    assert await queue.lead(engine.db, engine.worker_id, term_seconds=10, now=now + timedelta(seconds=9)) == first
    later = now + timedelta(seconds=20)
    next_term = await queue.lead(second.db, second.worker_id, term_seconds=10, now=later)
    assert first is not None
    assert next_term is not None
    assert next_term > first
    assert await queue.lead(engine.db, engine.worker_id, term_seconds=10, now=later) is None
    assert await queue.deregister_worker(second.db, second.worker_id)
    assert not await queue.deregister_worker(second.db, second.worker_id)
    third = await queue.lead(engine.db, engine.worker_id, term_seconds=10, now=later)
    assert third is not None
    assert third > next_term
    await engine.check()


@pytest.mark.parametrize("way", ["alone", "followed", "failed"])
async def test_attempt_start_uses_database_clock(engine: Engine, way: str) -> None:
    """A worker sends the elapsed time, since its clock may be wrong by a day."""
    await engine.submit("a b", "", "a>b" if way == "followed" else "")
    engine.shift = timedelta(seconds=-10)
    claim, *_ = await engine.claim(1)
    began = time.monotonic() - 5
    outcomes = {"failures": [Failure(claim.lease, "no", "no", permanent=True, began=began)]}
    if way != "failed":
        outcomes = {"successes": [Success(claim.lease, began=began)]}
    assert await queue.acknowledge(engine.db, worker_id=engine.worker_id, **outcomes) == {claim.lease.task_id}
    took = "SELECT extract(epoch FROM completed_at - started_at)::float8 FROM tasks WHERE id = $1"
    assert await engine.db.fetchval(took, claim.lease.task_id) == pytest.approx(5, abs=1)


async def test_leader_runs_all_loops_and_followers_promote(engine: Engine, second: Engine) -> None:
    now = await engine.now()
    await engine.submit("a", run_at=now + timedelta(minutes=1))
    counts = await leader.run_once(engine.db, worker_id=engine.worker_id, term_seconds=100, now=now)
    assert (counts["leads"], counts["promoter_tasks"]) == (1, 0)
    assert {"reaper_tasks", "deadlines_jobs", "retention_jobs"} <= set(counts)
    assert await leader.run_once(second.db, worker_id=second.worker_id, now=now) == {"leads": 0}
    later = now + timedelta(minutes=1)
    counts = await leader.run_once(second.db, worker_id=second.worker_id, now=later)
    assert counts == {"leads": 0, "promoter_tasks": 1}
    await engine.check()


async def test_failing_loop_does_not_stop_others(engine: Engine, monkeypatch, caplog) -> None:
    async def stumble(*_: object, **__: object) -> dict[str, int]:
        raise KeyError("unthought of")

    monkeypatch.setattr(scheduler, "run_once", stumble)
    counts = await leader.run_once(engine.db, worker_id=engine.worker_id)
    assert "retention_jobs" in counts, "which comes after it"
    assert "The scheduler failed unexpectedly." in caplog.text


async def test_a_job_past_its_deadline_fails(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b")
    await engine.db.execute("UPDATE jobs SET timeout_seconds = 30")
    (claim,) = await engine.claim()
    now = await engine.now() + timedelta(seconds=31)
    assert await job_timeouts.run_once(engine.db) == {"jobs": 0}
    assert await job_timeouts.run_once(engine.db, now=now) == {"jobs": 1}
    assert await job_timeouts.run_once(engine.db, now=now) == {"jobs": 0}
    await engine.fail(claim)
    row = await engine.db.fetchrow("SELECT status::text, error FROM jobs")
    assert tuple(row) == ("FAILED", "The job did not end within 30 s.")
    await engine.check()


async def test_due_tasks_become_ready(engine: Engine) -> None:
    now = await engine.now()
    await engine.submit("a", run_at=now + timedelta(minutes=1))
    assert await engine.claim() == []
    assert 0 < (await queue.seconds_to_next_due(engine.db) or 0) <= 60
    assert await due_task_promoter.run_once(engine.db, now=now + timedelta(minutes=2)) == {"tasks": 1}
    assert len(await engine.claim()) == 1


async def test_old_history_is_deleted_with_dependents(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b")
    await engine.run()
    await engine.submit("x", job="young")
    now = await engine.now()
    assert (await job_retention.run_once(engine.db, keep_seconds=60))["jobs"] == 0
    counts = await job_retention.run_once(engine.db, keep_seconds=60, now=now + timedelta(minutes=2))
    assert counts == {"jobs": 1, "tasks": 0, "workers": 0}
    for table, left in (("jobs", 1), ("tasks", 1), ("dependencies", 0)):
        assert await engine.db.fetchval(f"SELECT count(*) FROM {table}") == left


@pytest.mark.parametrize("way", ["alone", "followed", "failed"])
async def test_no_attempt_starts_before_it_was_claimed(engine: Engine, way: str) -> None:
    """now() is the start of the transaction, which may be slightly before the worker's measurement."""
    await engine.submit("a b", "", "a>b" if way == "followed" else "")
    (claim,) = await engine.claim(1)
    began = time.monotonic() - 3600
    outcome = {"failures": [Failure(claim.lease, "no", "no", permanent=True, began=began)]}
    if way != "failed":
        outcome = {"successes": [Success(claim.lease, began=began)]}
    await queue.acknowledge(engine.db, worker_id=engine.worker_id, **outcome)
    row = await engine.db.fetchrow("SELECT * FROM tasks WHERE id = $1", claim.lease.task_id)
    assert row["created_at"] <= row["claimed_at"] <= row["started_at"] <= row["completed_at"]


async def test_clock_set_back_expires_leases_of_dead_worker(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    engine.shift = timedelta(hours=-1)
    assert (await reaper.run_once(engine.db, restart_grace_seconds=0, now=await engine.now()))["tasks"] == 0
    expires = await engine.db.fetchval("SELECT lease_expires_at FROM tasks")
    assert expires - await engine.now() <= timedelta(seconds=LEASE_SECONDS)
    engine.shift += timedelta(seconds=LEASE_SECONDS + 1)
    assert (await reaper.run_once(engine.db, restart_grace_seconds=0, now=await engine.now()))["tasks"] == 1
    assert await engine.complete(claim) == set()


async def test_clock_set_back_keeps_leases_of_live_worker(engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    engine.shift = timedelta(hours=-1)
    for _ in range(5):
        now = await engine.now()
        assert await reaper.run_once(engine.db, restart_grace_seconds=0, now=now) == {"workers": 0, "tasks": 0}
        beat = {"worker_id": engine.worker_id, "leases": [claim.lease], "lease_seconds": LEASE_SECONDS, "now": now}
        assert (await queue.heartbeat(engine.db, **beat)).lost == set()
        engine.shift += timedelta(seconds=LEASE_SECONDS / 2)
    assert await engine.complete(claim) == {claim.lease.task_id}


async def test_clock_set_back_extends_leadership_by_one_term_at_most(engine: Engine, second: Engine) -> None:
    assert await queue.lead(engine.db, engine.worker_id, term_seconds=20)
    past = await engine.now() - timedelta(hours=1)
    assert await queue.lead(second.db, second.worker_id, term_seconds=20, now=past) is None
    assert await queue.lead(second.db, second.worker_id, term_seconds=20, now=past + timedelta(seconds=21))


@pytest.mark.parametrize("rows", ['"many"', "1.5", "null", "-1", '"9999999999999999999999"', "7"])
async def test_progress_counts_only_rows_of_chunks(engine: Engine, rows: str) -> None:
    await engine.submit("a")
    await engine.complete(*await engine.claim(), result=f'{{"chunk": 1, "rows": {rows}}}')
    (progress,) = await queries.load_job_progress(engine.db, engine.id("job"))
    assert progress["rows"] == (7 if rows == "7" else None)
