"""LISTEN/NOTIFY: one notification per transaction and queue."""

from __future__ import annotations

import asyncio

from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine import queue, user_actions
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.leases_and_outcomes import Success
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.task_options import TaskOptions
from tests.integration.engine.conftest import Engine


async def collect_notifications(engine: Engine, second: Engine, channel: str, work) -> list[str]:
    """Return the notifications during `work`; a final notification of our own marks the end."""
    payloads: list[str] = []
    over = asyncio.Event()

    def listen(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        over.set() if payload == "over" else payloads.append(str(payload))

    await second.db.add_listener(channel, listen)
    await work
    await engine.db.execute("SELECT pg_notify($1, 'over')", channel)
    await asyncio.wait_for(over.wait(), 30)
    await second.db.remove_listener(channel, listen)
    return payloads


async def test_new_items_notify_once_per_queue(engine: Engine, second: Engine) -> None:
    def items(count: int, name: str) -> list[NewTask]:
        return [NewTask(key, "x", options=TaskOptions(queue=name)) for key in get_snowflake_ids(count)]

    few, many = enqueue_tasks(engine.db, items(3, "a") + items(1, "b")), enqueue_tasks(engine.db, items(100, "c"))
    assert sorted(await collect_notifications(engine, second, queue.READY_CHANNEL, few)) == ["a", "b"]
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, many) == ["c"]


async def test_submission_and_unblocked_tasks_notify(engine: Engine, second: Engine) -> None:
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, engine.submit("a b c", "", "a>b a>c")) == [
        "default"
    ]
    (claim,) = await engine.claim()
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, engine.complete(claim)) == ["default"]
    claims = await engine.claim()
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, engine.complete(*claims)) == []


async def test_exchange_notifies_only_of_tasks_that_it_does_not_claim(engine: Engine, second: Engine) -> None:
    async def exchange(limit: int) -> None:
        nonlocal claims
        accepted, claims = await queue.acknowledge_and_claim(
            engine.db,
            worker_id=engine.worker_id,
            successes=[Success(claim.lease) for claim in claims],
            limit=limit,
            queues=["default"],
            lease_seconds=60,
        )
        assert accepted

    await engine.submit("a b c d", "", "a>b b>c b>d")
    await engine.submit("x y", "", "x>y", job="other", queue="other")
    claims = await engine.claim(1, ["default"])
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, exchange(2)) == []  # claims b
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, exchange(1)) == [
        "default"
    ]  # claims c, leaves d
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, exchange(0)) == []
    claims = await engine.claim(1, ["other"])
    assert await collect_notifications(engine, second, queue.READY_CHANNEL, exchange(2)) == ["other"]  # claims d
    await engine.check()


async def test_cancel_notifies_worker_of_task(engine: Engine, second: Engine) -> None:
    await engine.submit("a")
    await engine.claim()
    work = user_actions.cancel_job(engine.db, engine.id("job"))
    assert await collect_notifications(engine, second, queue.CANCEL_CHANNEL, work) == [str(engine.id("job"))]
