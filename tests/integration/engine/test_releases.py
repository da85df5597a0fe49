"""Attempts that end uncharged: growing delays, and a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from aaiclick.orchestration.loops import reaper
from aaiclick.store.clock import read_uptime_seconds
from aaiclick.store.engine import queue, user_actions, worker_leases
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.leases_and_outcomes import (
    MAX_RELEASE_DELAY_SECONDS,
    MAX_RELEASES,
    MAX_RELEASES_SECONDS,
    Claim,
    Failure,
)
from tests.integration.engine.conftest import Engine

OUTAGE = "ClickHouse does not answer."


async def end_uncharged(engine: Engine, claim: Claim, delay_seconds: float = 1.0) -> float:
    """End an attempt uncharged, as in an outage; return the delay until the next one, or -1."""
    now = await engine.now()
    await queue.start(engine.db, [claim.lease], now)
    failure = Failure(claim.lease, OUTAGE, "outage", delay_seconds=delay_seconds, charged=False, outcome="RELEASED")
    await queue.acknowledge(engine.db, worker_id=engine.worker_id, failures=[failure], now=now)
    retry_at = await engine.db.fetchval("SELECT next_retry_at FROM tasks WHERE id = $1", claim.lease.task_id)
    return -1.0 if retry_at is None else (retry_at - now).total_seconds()


async def claim_at_next_retry(engine: Engine, delay: float) -> Claim:
    engine.shift += timedelta(seconds=delay + 1)
    (claim,) = await engine.claim()
    return claim


async def release(engine: Engine, claim: Claim, *, started: bool = True) -> None:
    now = await engine.now()
    if started:
        await queue.start(engine.db, [claim.lease], now)
    await queue.acknowledge(engine.db, worker_id=engine.worker_id, releases=[claim.lease], now=now)


async def outage(engine: Engine, seconds: float) -> tuple[int, Claim | None]:
    """Simulate an outage; return its number of attempts, and the claim after it."""
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    began, attempts = engine.shift.total_seconds(), 0
    while engine.shift.total_seconds() - began < seconds:
        attempts += 1
        delay = await end_uncharged(engine, claim)
        if delay < 0:
            return attempts, None
        claim = await claim_at_next_retry(engine, delay)
    return attempts, claim


async def test_delays_of_uncharged_ends_double_up_to_a_cap(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1, repeatable=True)
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    delays = []
    for _ in range(11):
        delays.append(await end_uncharged(engine, claim))
        claim = await claim_at_next_retry(engine, delays[-1])
    for count, delay in enumerate(delays):
        expected = min(2.0**count, MAX_RELEASE_DELAY_SECONDS)
        assert expected <= delay <= 1.11 * expected
    await engine.check()


async def test_charged_failure_resets_delays(engine: Engine) -> None:
    await engine.submit("a", max_attempts=3)
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    for _ in range(4):
        claim = await claim_at_next_retry(engine, await end_uncharged(engine, claim))
    await engine.fail(claim)
    claim = await claim_at_next_retry(engine, 0)
    assert await end_uncharged(engine, claim) < 1.2


@pytest.mark.parametrize("hours", [1, 23])
async def test_long_outage_fails_no_job(engine: Engine, hours: int) -> None:
    await engine.submit("a b", "", "a>b", max_attempts=1, repeatable=True)
    attempts, claim = await outage(engine, hours * 3600)
    assert attempts < 20 + hours * 13
    assert claim is not None
    await engine.complete(claim)
    assert [claim.type for claim in await engine.claim()] == ["b"]
    await engine.check()


async def test_uncharged_ends_for_more_than_a_day_make_a_dead_letter(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b", max_attempts=3)
    attempts, claim = await outage(engine, 3 * MAX_RELEASES_SECONDS)
    assert claim is None
    assert attempts > MAX_RELEASES
    assert await engine.status("a", "b", "job") == "DEAD_LETTER CANCELLED FAILED"
    row = await engine.db.fetchrow("SELECT error, failures FROM tasks WHERE type = 'a'")
    assert row["failures"] == 1
    assert row["error"].startswith(f"{attempts} attempts in a row since ")
    assert row["error"].endswith(f"The last one: {OUTAGE}")
    await engine.check()
    await user_actions.redrive_dead_letters(engine.db, task_ids=[engine.id("a")], now=await engine.now())
    (claim,) = await engine.claim()
    assert await end_uncharged(engine, claim) > 0  # the counter is reset


async def test_few_releases_over_many_days_are_no_dead_letter(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1, repeatable=True)
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    for _ in range(MAX_RELEASES - 1):
        await release(engine, claim)
        engine.shift += timedelta(days=2)
        (claim,) = await engine.claim()
    assert await engine.status("a") == "CLAIMED"
    await engine.check()


@pytest.mark.parametrize("end", [end_uncharged, release])
async def test_few_uncharged_ends_in_more_than_a_day_are_no_dead_letter(
    engine: Engine, end: Callable[[Engine, Claim], Awaitable[object]]
) -> None:
    await engine.submit("a", max_attempts=1, repeatable=True)
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    for _ in range(12):
        await end(engine, claim)
        engine.shift += timedelta(hours=3)
        (claim,) = await engine.claim()
    await end(engine, claim)
    row = await engine.db.fetchrow("SELECT completed_at, error FROM tasks")
    assert row is not None
    assert row["completed_at"] is None
    assert row["error"] == (OUTAGE if end is end_uncharged else None)
    await engine.check()


async def test_repeated_releases_are_delayed_and_limited(engine: Engine) -> None:
    """Its workers stop before it ends, each time."""
    await engine.submit("a b", "", "a>b", max_attempts=1, repeatable=True)
    engine.shift = timedelta(seconds=1)
    undelayed = 0
    while claims := await engine.claim():
        await release(engine, claims[0])
        undelayed += 1
    assert undelayed == 4
    for _ in range(400):
        engine.shift += timedelta(seconds=MAX_RELEASE_DELAY_SECONDS + 1)
        if not (claims := await engine.claim()):
            break
        await release(engine, claims[0])
    assert await engine.status("a", "b", "job") == "DEAD_LETTER CANCELLED FAILED"
    error = await engine.db.fetchval("SELECT error FROM tasks WHERE type = 'a'")
    assert "The worker stopped before the task ended." in error
    await engine.check()


async def test_unstarted_task_is_released_without_delay_and_limit(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1, repeatable=True)
    engine.shift = timedelta(seconds=1)
    for _ in range(30):
        (claim,) = await engine.claim()
        await release(engine, claim, started=False)
        engine.shift += timedelta(hours=2)
    assert await engine.status("a") == "PENDING"


async def test_the_doctor_finds_uncharged_attempts_without_end(engine: Engine) -> None:
    """I12 also covers uncharged attempts."""
    await engine.submit("a", max_attempts=1, repeatable=True)
    for _ in range(200):
        (claim,) = await engine.claim()
        await queue.acknowledge(engine.db, worker_id=engine.worker_id, releases=[claim.lease])
    violations = await check_invariants(engine.db)
    assert [(violation.invariant, violation.id) for violation in violations] == [("I12", engine.id("a"))]
    assert "200 attempts in a row ended uncharged" in violations[0].finding


async def test_nothing_is_reaped_right_after_a_start_of_postgresql(engine: Engine) -> None:
    """Leases that expired during the downtime may be renewed by their holders first."""
    await engine.submit("a", max_attempts=1, repeatable=True)
    (claim,) = await engine.claim()
    engine.shift = timedelta(minutes=10)
    now = await engine.now()
    assert await reaper.run_once(engine.db, restart_grace_seconds=1e9, now=now) == {"workers": 0, "tasks": 0}
    await worker_leases.extend_worker_leases(engine.db, [engine.worker_id], 3600)
    assert (await reaper.run_once(engine.db, worker_timeout_seconds=3600, now=now))["tasks"] == 0
    assert await engine.complete(claim) == {claim.lease.task_id}


async def test_postgresql_uptime_is_read(engine: Engine) -> None:
    assert 0 < await read_uptime_seconds(engine.db) < 86_400


@pytest.mark.parametrize("end", [end_uncharged, release])
async def test_begun_task_without_retries_is_not_run_again(
    engine: Engine, end: Callable[[Engine, Claim], Awaitable[object]]
) -> None:
    await engine.submit("a b", "", "a>b", max_attempts=1)
    (claim,) = await engine.claim()
    assert claim.runs_once
    await end(engine, claim)
    assert await engine.status("a", "b", "job") == "DEAD_LETTER CANCELLED FAILED"
    row = await engine.db.fetchrow("SELECT error, failures FROM tasks WHERE type = 'a'")
    assert row["failures"] == 1
    assert row["error"].endswith("It is not run again: it has no retries and is not repeatable.")
    await engine.check()


async def test_cancelled_task_without_retries_stays_cancelled(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1)
    (claim,) = await engine.claim()
    await queue.start(engine.db, [claim.lease])
    await user_actions.cancel_tasks(engine.db, [engine.id("a")])
    await release(engine, claim)
    assert await engine.status("a") == "CANCELLED"
