"""Fencing: every write of a worker that has lost its lease is rejected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from aaiclick.errors import LeaseLost
from aaiclick.store.engine import queue
from aaiclick.store.engine.leases_and_outcomes import Failure, Lease
from tests.integration.engine.conftest import Engine


async def start(engine: Engine, lease: Lease) -> bool:
    return await queue.start(engine.db, [lease]) != set()


async def beat(engine: Engine, lease: Lease) -> bool:
    answer = await queue.heartbeat(engine.db, worker_id=engine.worker_id, leases=[lease], lease_seconds=600)
    return not answer.lost


async def fail(engine: Engine, lease: Lease) -> bool:
    failure = Failure(lease, "late", "late")
    return await queue.acknowledge(engine.db, worker_id=engine.worker_id, failures=[failure]) != set()


async def release(engine: Engine, lease: Lease) -> bool:
    return await queue.acknowledge(engine.db, worker_id=engine.worker_id, releases=[lease]) != set()


async def add(engine: Engine, lease: Lease) -> bool:
    try:
        await engine.add("job", "more", lease=lease)
    except LeaseLost:
        return False
    return True


WORDS: dict[str, Callable[[Engine, Lease], Awaitable[bool]]] = {
    "start": start, "heartbeat": beat, "fail": fail, "release": release, "add": add,
}  # fmt: skip


@pytest.mark.parametrize("lost", ["the attempt", "the token"])
@pytest.mark.parametrize("word", WORDS)
async def test_writes_without_lease_are_rejected(engine: Engine, word: str, lost: str) -> None:
    await engine.submit("a b", edges="a>b")
    (claim,) = await engine.claim()
    before = await engine.db.fetchrow("SELECT * FROM tasks WHERE id = $1", engine.id("a"))
    old = replace(claim.lease, attempt=0) if lost == "the attempt" else replace(claim.lease, token=uuid4())
    assert not await WORDS[word](engine, old)
    assert await engine.db.fetchrow("SELECT * FROM tasks WHERE id = $1", engine.id("a")) == before
    assert await engine.db.fetchval("SELECT count(*) FROM tasks") == 2
    assert await WORDS[word](engine, claim.lease)
    await engine.check()
