"""Debounced items: one item per burst, with the last payload, whatever claims it meanwhile."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from aaiclick.errors import ScheduleError, SubmitError
from aaiclick.orchestration import OrchContext, enqueue
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.clock import read_clock
from aaiclick.store.engine.claims import claim, promote_due_tasks
from aaiclick.store.engine.enqueue import MAX_DEBOUNCE_INTERVALS, Debounce, enqueue_debounced
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.engine.user_actions import cancel_tasks
from aaiclick.store.engine.workers import register_worker

HOUR = timedelta(hours=1)


@pytest.fixture
async def context(aaiclick_env):
    async with OrchContext() as context:
        yield context


async def claim_due(connection, worker_id: int) -> list[dict]:
    """Claim everything as if an hour had passed; returns the payloads."""
    later = await read_clock(connection) + HOUR
    await promote_due_tasks(connection, now=later)
    claims = await claim(connection, worker_id=worker_id, limit=100, queues=[], lease_seconds=60, now=later)
    return [json.loads(item.kwargs) for item in claims]


async def test_last_payload_replaces_the_waiting_one(context):
    first = await enqueue("mail", {"n": 1, "a": 1}, debounce="30s", debounce_key="ada")
    assert await enqueue("mail", {"n": 2}, debounce="30s", debounce_key="ada") == first
    other = await enqueue("mail", {"n": 3}, debounce="30s", debounce_key="bob")
    assert await enqueue("mail", {"n": 4}, debounce="30s", debounce_key="bob", debounce_merge=True) == other
    async with context.connection() as connection:
        worker = await register_worker(connection, hostname="h", pid=1)
        assert await claim(connection, worker_id=worker.id, limit=9, queues=[], lease_seconds=60) == []
        assert await claim_due(connection, worker.id) == [{"n": 2}, {"n": 4}]
    assert await enqueue("mail", {"n": 5}, debounce="30s", debounce_key="ada") != first


async def test_merge_keeps_other_fields(context):
    await enqueue("mail", {"a": 1, "b": 1}, debounce="30s")
    item_id = await enqueue("mail", {"b": 2}, debounce="30s", debounce_merge=True)
    async with context.connection() as connection:
        assert json.loads(await connection.fetchval("SELECT kwargs FROM tasks WHERE id = $1", item_id)) == {
            "a": 1,
            "b": 2,
        }


async def test_repeated_replacement_does_not_postpone_forever(context):
    async with context.connection() as connection:
        item_id = await enqueue("mail", {"n": 1}, debounce="30s")
        await connection.execute("UPDATE tasks SET created_at = now() - interval '290 s' WHERE id = $1", item_id)
        await enqueue("mail", {"n": 2}, debounce="30s")
        wait = await connection.fetchval("SELECT available_at - created_at FROM tasks WHERE id = $1", item_id)
    assert wait.total_seconds() == MAX_DEBOUNCE_INTERVALS * 30


@pytest.mark.parametrize("ready", [False, True])
async def test_cancelled_or_ready_item(context, ready: bool):
    item_id = await enqueue("mail", {"n": 1}, debounce="30s")
    async with context.connection() as connection:
        if ready:
            await promote_due_tasks(connection, now=await read_clock(connection) + HOUR)
            assert await enqueue("mail", {"n": 2}, debounce="30s") == item_id
            assert await connection.fetchval("SELECT readiness::text FROM tasks") == "READY"
        else:
            await cancel_tasks(connection, [item_id])
            assert await enqueue("mail", {"n": 2}, debounce="30s") != item_id


async def test_concurrent_enqueues_and_claims_never_lose_the_last_payload(context):
    """Writers count up under one key while claimers take what is due; the last number of each writer is processed."""
    writers, rounds = 4, 12
    claimed: list[dict] = []
    is_done = asyncio.Event()

    async def write(writer: int) -> None:
        async with context.connection() as connection:
            for number in range(rounds):
                kwargs = json.dumps({str(writer): number})
                task = NewTask(get_snowflake_id(), "mail", kwargs=kwargs)
                await enqueue_debounced(connection, task, Debounce(1, "k", is_merged=True))

    async def take(worker_id: int) -> None:
        async with context.connection() as connection:
            while not is_done.is_set():
                claimed.extend(await claim_due(connection, worker_id))

    async with context.connection() as connection:
        workers = [await register_worker(connection, hostname="h", pid=pid) for pid in (1, 2)]
    async with asyncio.TaskGroup() as takers:  # a failing writer ends them
        for worker in workers:
            takers.create_task(take(worker.id))
        await asyncio.gather(*(write(writer) for writer in range(writers)))
        is_done.set()
    async with context.connection() as connection:
        claimed.extend(await claim_due(connection, workers[0].id))
        assert await connection.fetchval("SELECT count(*) FROM tasks WHERE readiness IS NOT NULL") == 0
    for writer in range(writers):
        numbers = [payload[str(writer)] for payload in claimed if str(writer) in payload]
        assert max(numbers) == rounds - 1


@pytest.mark.parametrize(
    ("options", "error"),
    [({"debounce": "soon"}, ScheduleError), ({"debounce": "30s", "idempotency_key": "k"}, SubmitError),
     ({"debounce": "30s", "debounce_key": "\x00"}, SubmitError)],
)  # fmt: skip
async def test_invalid_debounce_is_refused(context, options, error):
    with pytest.raises(error):
        await enqueue("mail", {}, **options)
