"""Attempts that end uncharged: delays that grow, and a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from aaiclick.orchestration.loops import reaper
from aaiclick.store import control, queue, supervision
from aaiclick.store.clock import uptime_seconds
from aaiclick.store.doctor import check_invariants
from aaiclick.store.leases import MOST_RELEASES, MOST_RELEASES_SECONDS, RELEASE_CAP_SECONDS, Claim, Failure
from tests.integration.engine.conftest import Engine

OUTAGE = "ClickHouse does not answer."


async def end_uncharged(engine: Engine, claim: Claim, delay_seconds: float = 1.0) -> float:
    """End an attempt as in an outage; returns the delay until the next one, or -1 if there is none."""
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
    """An outage of so long: how many attempts it cost, and the claim after it, if there is one."""
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
    await engine.submit("a", max_attempts=1)
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    delays = []
    for _ in range(11):
        delays.append(await end_uncharged(engine, claim))
        claim = await claim_at_next_retry(engine, delays[-1])
    for nth, delay in enumerate(delays):
        wanted = min(2.0**nth, RELEASE_CAP_SECONDS)
        assert wanted <= delay <= 1.11 * wanted
    await engine.check()


async def test_a_charged_failure_starts_the_delays_over(engine: Engine) -> None:
    await engine.submit("a", max_attempts=3)
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    for _ in range(4):
        claim = await claim_at_next_retry(engine, await end_uncharged(engine, claim))
    await engine.fail(claim)
    claim = await claim_at_next_retry(engine, 0)
    assert await end_uncharged(engine, claim) < 1.2


@pytest.mark.parametrize("hours", [1, 23])
async def test_an_outage_of_hours_costs_no_job(engine: Engine, hours: int) -> None:
    await engine.submit("a b", "", "a>b", max_attempts=1)
    attempts, claim = await outage(engine, hours * 3600)
    assert attempts < 20 + hours * 13
    assert claim is not None
    await engine.complete(claim)
    assert [each.type for each in await engine.claim()] == ["b"]
    await engine.check()


async def test_uncharged_ends_for_more_than_a_day_make_a_dead_letter(engine: Engine) -> None:
    await engine.submit("a b", "", "a>b", max_attempts=3)
    attempts, claim = await outage(engine, 3 * MOST_RELEASES_SECONDS)
    assert claim is None
    assert attempts > MOST_RELEASES
    assert await engine.status("a", "b", "job") == "DEAD_LETTER CANCELLED FAILED"
    row = await engine.db.fetchrow("SELECT error, failures FROM tasks WHERE type = 'a'")
    assert row["failures"] == 1
    assert row["error"].startswith(f"{attempts} attempts in a row since ")
    assert row["error"].endswith(f"The last one: {OUTAGE}")
    await engine.check()
    await control.redrive(engine.db, task_ids=[engine.id("a")], now=await engine.now())
    (claim,) = await engine.claim()
    assert await end_uncharged(engine, claim) > 0  # the count starts over


async def test_few_releases_over_many_days_are_no_dead_letter(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1)
    engine.shift = timedelta(seconds=1)
    (claim,) = await engine.claim()
    for _ in range(MOST_RELEASES - 1):
        await release(engine, claim)
        engine.shift += timedelta(days=2)
        (claim,) = await engine.claim()
    assert await engine.status("a") == "CLAIMED"
    await engine.check()


@pytest.mark.parametrize("end", [end_uncharged, release])
async def test_few_uncharged_ends_in_more_than_a_day_are_no_dead_letter(
    engine: Engine, end: Callable[[Engine, Claim], Awaitable[object]]
) -> None:
    await engine.submit("a", max_attempts=1)
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


async def test_a_running_task_that_is_released_again_and_again_waits_and_ends(engine: Engine) -> None:
    """Its workers stop before it has ended, each time."""
    await engine.submit("a b", "", "a>b", max_attempts=1)
    engine.shift = timedelta(seconds=1)
    undelayed = 0
    while claims := await engine.claim():
        await release(engine, claims[0])
        undelayed += 1
    assert undelayed == 4
    for _ in range(400):
        engine.shift += timedelta(seconds=RELEASE_CAP_SECONDS + 1)
        if not (claims := await engine.claim()):
            break
        await release(engine, claims[0])
    assert await engine.status("a", "b", "job") == "DEAD_LETTER CANCELLED FAILED"
    error = await engine.db.fetchval("SELECT error FROM tasks WHERE type = 'a'")
    assert "Its worker stopped before it had ended." in error
    await engine.check()


async def test_what_was_never_begun_is_released_without_delay_and_limit(engine: Engine) -> None:
    await engine.submit("a", max_attempts=1)
    engine.shift = timedelta(seconds=1)
    for _ in range(30):
        (claim,) = await engine.claim()
        await release(engine, claim, started=False)
        engine.shift += timedelta(hours=2)
    assert await engine.status("a") == "PENDING"


async def test_the_doctor_finds_uncharged_attempts_without_end(engine: Engine) -> None:
    """I12 looks at attempts that are no failures, too."""
    await engine.submit("a", max_attempts=1)
    for _ in range(200):
        (claim,) = await engine.claim()
        await queue.acknowledge(engine.db, worker_id=engine.worker_id, releases=[claim.lease])
    found = await check_invariants(engine.db)
    assert [(each.invariant, each.id) for each in found] == [("I12", engine.id("a"))]
    assert "200 attempts in a row ended uncharged" in found[0].finding


async def test_nothing_is_reaped_right_after_a_start_of_postgresql(engine: Engine) -> None:
    """Leases that ran out while it was down are renewed by their holders first."""
    await engine.submit("a", max_attempts=1)
    (claim,) = await engine.claim()
    engine.shift = timedelta(minutes=10)
    now = await engine.now()
    assert await reaper.run_once(engine.db, restart_grace_seconds=1e9, now=now) == {"workers": 0, "tasks": 0}
    await supervision.keep_leases(engine.db, [engine.worker_id], 3600)
    assert (await reaper.run_once(engine.db, worker_timeout_seconds=3600, now=now))["tasks"] == 0
    assert await engine.complete(claim) == {claim.lease.task_id}


async def test_the_uptime_of_postgresql_is_known(engine: Engine) -> None:
    assert 0 < await uptime_seconds(engine.db) < 86_400
