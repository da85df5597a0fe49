"""Rates per key: number of claims in any period, by PostgreSQL's clock."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import datetime, timedelta

import pytest

from aaiclick.errors import SubmitError
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine import queue, user_actions
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.leases_and_outcomes import Claim
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.engine.workers import rebase_heartbeats
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskOptions, parse_rate
from tests.fork_server import FORK_SERVER
from tests.integration.engine.conftest import Engine

PROCESSES = 8
TASKS = 400
RATE = 40
SECONDS = 0.5

CLAIM_ALL = """
import asyncio, sys
from aaiclick.server_addresses import parse_postgres_url
from aaiclick.store.postgres_connections import connect
from aaiclick.store.engine import queue
from aaiclick.store.engine.leases_and_outcomes import Success

async def main(url, worker_id, limit):
    db = await connect(parse_postgres_url(url))
    while await db.fetchval("SELECT EXISTS (SELECT FROM tasks WHERE completed_at IS NULL)"):
        claims = await queue.claim(db, worker_id=worker_id, limit=limit, queues=[], lease_seconds=60.0)
        await queue.acknowledge(db, worker_id=worker_id, successes=[Success(claim.lease, None) for claim in claims])
    await db.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


async def put(engine: Engine, count: int, type_: str = "x", **options: object) -> list[int]:
    ids = get_snowflake_ids(count)
    task_options = TaskOptions(**options)  # pyright: ignore[reportArgumentType]
    await enqueue_tasks(engine.db, [NewTask(key, type_, options=task_options) for key in ids])
    return ids


def most_in_a_window(times: list[datetime], seconds: float) -> int:
    """Largest number of times in any half-open window of that length."""
    ordered, first, most = sorted(times), 0, 0
    for last, time in enumerate(ordered):
        while time - ordered[first] >= timedelta(seconds=seconds):
            first += 1
        most = max(most, last - first + 1)
    return most


def test_rates_are_normalised() -> None:
    assert [parse_rate(text) for text in ("100/m", "5/10s", "5/10", "7 / 0.5s", "1/d")] == [
        "100/60", "5/10", "5/10", "7/0.5", "1/86400",
    ]  # fmt: skip
    for text in ("", "100", "0/m", "5/", "5/0s", "5/2d", "m/5", "-1/s", "5/w"):
        with pytest.raises(SubmitError, match="rate"):
            parse_rate(text)
    assert DEFAULT_OPTIONS.change({"rate": "100/m", "rate_key": "geo"}) == TaskOptions(rate="100/60", rate_key="geo")
    with pytest.raises(SubmitError, match="no rate"):
        TaskOptions(rate_key="geo").check("The task")


async def test_tasks_above_the_rate_are_held_until_the_period_is_over(engine: Engine) -> None:
    ids = await put(engine, 25, rate="10/60")
    assert len(await engine.claim()) == 10
    assert len(await engine.claim()) == 0
    assert await engine.db.fetchval("SELECT count(*) FROM tasks WHERE readiness = 'HELD'") == 15
    [reason] = await explain_task(engine.db, ids[-1])
    assert reason.code == "rate"
    assert "10 tasks of rate key 'x' were claimed within 60 s" in reason.text
    await engine.check()
    engine.shift = timedelta(seconds=59)
    assert len(await engine.claim()) == 0
    engine.shift = timedelta(seconds=62)
    assert len(await engine.claim()) == 10
    engine.shift = timedelta(seconds=124)
    assert len(await engine.claim()) == 5
    assert await engine.db.fetchval("SELECT next_at FROM rate_limits") is None
    await engine.check()


async def test_held_tasks_are_admitted_by_priority(engine: Engine) -> None:
    await put(engine, 3, "low", rate="2/60", rate_key="k")
    assert [claim.type for claim in await engine.claim()] == ["low", "low"]
    await put(engine, 1, "high", rate="2/60", rate_key="k", priority=5)
    assert await engine.claim() == []
    engine.shift = timedelta(seconds=62)
    assert [claim.type for claim in await engine.claim()] == ["high", "low"]


async def test_keys_and_plain_tasks_do_not_limit_each_other(engine: Engine) -> None:
    await put(engine, 5, "limited", rate="2/60", rate_key="a", priority=1)
    await put(engine, 5, "limited", rate="3/60", rate_key="b", priority=1)
    await put(engine, 5, "plain")
    claims = [claim.type for claim in await engine.claim(10)]
    assert claims.count("limited") == 5
    assert claims.count("plain") == 5


async def test_plain_task_behind_many_limited_ones_is_claimed(engine: Engine) -> None:
    await put(engine, 5_000, "limited", rate="1/60", priority=1)
    await put(engine, 1, "plain")
    assert [claim.type for claim in await engine.claim(1)] == ["limited"]
    assert [claim.type for claim in await engine.claim(1)] == ["plain"]
    await engine.check()


async def test_retries_and_released_claims_count(engine: Engine) -> None:
    await put(engine, 2, rate="2/60")
    first, second = await engine.claim()
    await engine.fail(first)
    await queue.acknowledge(engine.db, worker_id=engine.worker_id, releases=[second.lease])
    assert await engine.claim() == []
    engine.shift = timedelta(seconds=62)
    assert len(await engine.claim()) == 2


async def test_rate_and_concurrency_hold_together(engine: Engine) -> None:
    await put(engine, 6, rate="3/60", concurrency_key="c", concurrency_limit=2)
    for count in (2, 1):
        claims = await engine.claim()
        assert len(claims) == count
        await engine.complete(*claims)
    assert await engine.claim() == []
    await engine.check()
    engine.shift = timedelta(seconds=62)
    assert len(await engine.claim()) == 2


async def test_pause_and_resume_of_a_limited_type(engine: Engine) -> None:
    await put(engine, 4, rate="2/60")
    assert len(await engine.claim()) == 2
    assert await engine.claim() == []
    await user_actions.pause_type(engine.db, "x")
    engine.shift = timedelta(seconds=62)
    assert await engine.claim() == []
    await engine.check()
    await user_actions.resume_type(engine.db, "x")
    assert len(await engine.claim()) == 2
    await engine.check()


async def test_rate_that_was_raised_applies_at_once(engine: Engine) -> None:
    """Claims under the old rate, counted in longer parts of time, do not block those of the new one."""
    await put(engine, 2, rate="1/86400", rate_key="k")
    assert len(await engine.claim(5)) == 1
    await put(engine, 25, rate="10/1", rate_key="k", priority=1)
    claimed: list[int] = []
    for seconds in (1.0, 2.5, 4.0):
        engine.shift = timedelta(seconds=seconds)
        claimed.append(len(await engine.claim()))
    assert claimed == [9, 10, 6]
    await engine.check()


async def test_clock_that_was_set_back_does_not_stop_a_key(engine: Engine) -> None:
    engine.shift = timedelta(hours=1)
    await put(engine, 4, rate="2/1")
    assert len(await engine.claim()) == 2
    assert await engine.claim() == []
    engine.shift = timedelta()
    await queue.release_worker(engine.db, engine.worker_id)
    await rebase_heartbeats(engine.db)
    assert len(await engine.claim()) == 2


STEPS = ("put", "put", "claim", "claim", "complete", "fail", "release", "cancel", "pause", "resume", "later", "later")


@pytest.mark.parametrize("seed", range(12))
async def test_random_operations_keep_rates_and_lose_no_task(engine: Engine, seed: int) -> None:
    """Claims never exceed the rate, and every task is claimed once the rate allows."""
    choose = random.Random(seed)
    times: dict[str, list[datetime]] = {"a": [], "b": []}
    held: list[Claim] = []

    async def claim() -> int:
        claims = await engine.claim(choose.choice([1, 2, 50]))
        for claim in claims:
            times[claim.type].append(await engine.now())
        held.extend(claims)
        return len(claims)

    for _ in range(60):
        match choose.choice(STEPS):
            case "put":
                key = choose.choice(["a", "b"])
                rates: dict[str, object] = {"a": "3/60", "b": "7/10"}
                limit = choose.choice([{}, {"concurrency_key": "c", "concurrency_limit": 2}])
                await put(engine, choose.randint(1, 6), key, rate=rates[key], priority=choose.randint(0, 2), **limit)
            case "claim":
                await claim()
            case "complete" if held:
                await engine.complete(held.pop())
            case "fail" if held:
                await engine.fail(held.pop(), delay=choose.choice([0.0, 20.0]))
            case "release" if held:
                await queue.acknowledge(engine.db, worker_id=engine.worker_id, releases=[held.pop().lease])
            case "cancel":
                waiting = await engine.db.fetchval("SELECT id FROM tasks WHERE readiness = 'HELD' LIMIT 1")
                if waiting is not None:
                    await user_actions.cancel_tasks(engine.db, [waiting])
            case "pause":
                await user_actions.pause_type(engine.db, "a")
            case "resume":
                await user_actions.resume_type(engine.db, "a")
            case "later":
                engine.shift += timedelta(seconds=choose.choice([1, 11, 61]))
            case _:
                pass
        await engine.check()
    await user_actions.resume_type(engine.db, "a")
    while await engine.db.fetchval("SELECT count(*) FROM tasks WHERE completed_at IS NULL"):
        await engine.complete(*held)
        held.clear()
        engine.shift += timedelta(seconds=62)
        unleased = await engine.db.fetchval("SELECT count(*) FROM tasks WHERE readiness IS NOT NULL")
        assert await claim() or not unleased
    assert most_in_a_window(times["a"], 60) <= 3
    assert most_in_a_window(times["b"], 10) <= 7


@pytest.mark.timeout(120)
async def test_eight_processes_never_exceed_the_rate_in_any_window(engine: Engine) -> None:
    await put(engine, TASKS, rate=f"{RATE}/{SECONDS}")
    limits = [1, 2, 5, 100] * (PROCESSES // 4)
    commands = [[CLAIM_ALL, engine.endpoint.dsn, str(engine.worker_id), str(limit)] for limit in limits]
    processes = [FORK_SERVER.start(command, dict(os.environ), program="-c") for command in commands]
    assert [await asyncio.to_thread(process.wait) for process in processes] == [0] * PROCESSES
    times = [row["claimed_at"] for row in await engine.db.fetch("SELECT claimed_at FROM tasks")]
    assert len(times) == TASKS
    assert most_in_a_window(times, SECONDS) == RATE
    await engine.check()
