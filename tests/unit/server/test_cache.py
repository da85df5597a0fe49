"""Query cache: single flight, timeouts and stale values."""

from __future__ import annotations

import asyncio

import pytest

from aaiclick.server.cache import QueryCache, stale_seconds


async def test_slow_load_times_out_and_continues() -> None:
    cache, gate, loads = QueryCache(min_ttl_seconds=60), asyncio.Event(), []

    async def load() -> int:
        loads.append(1)
        await gate.wait()
        return 7

    assert await cache.get_within("key", load, timeout_seconds=0) is None
    assert await cache.get_within("key", load, timeout_seconds=0) is None
    assert len(loads) == 1  # waiters share one load
    gate.set()
    assert await cache.get_within("key", load, timeout_seconds=10) == 7
    assert len(loads) == 1
    assert await cache.get_within("key", load, timeout_seconds=10) == 7  # from the cache
    assert len(loads) == 1


async def test_stale_value_is_returned_during_a_load() -> None:
    cache, gate = QueryCache(), asyncio.Event()

    async def first() -> int:
        return 1

    async def second() -> int:
        await gate.wait()
        return 2

    assert await cache.get_within("key", first, timeout_seconds=10) == 1
    cache._entries["key"].expires_at = 0.0
    assert await cache.get_within("key", second, timeout_seconds=0) == 1
    gate.set()
    assert await cache.get_within("key", second, timeout_seconds=10) == 2


async def test_waiters_receive_the_exception() -> None:
    cache, gate = QueryCache(), asyncio.Event()

    async def load() -> int:
        await gate.wait()
        raise LookupError("gone")

    assert await cache.get_within("key", load, timeout_seconds=0) is None
    gate.set()
    with pytest.raises(LookupError):
        await cache.get_within("key", load, timeout_seconds=10)


async def test_cached_value_sets_stale_seconds_until_cleared() -> None:
    cache, values = QueryCache(), iter(range(10))

    async def load() -> int:
        return next(values)

    async def read_value() -> tuple[int, bool]:
        return await cache.get("key", load, min_ttl_seconds=60), stale_seconds() > 0

    assert [await asyncio.create_task(read_value()) for _ in range(2)] == [(0, False), (0, True)]
    cache.clear()
    assert await asyncio.create_task(read_value()) == (1, False)


async def test_concurrent_requests_share_one_load() -> None:
    cache, loads = QueryCache(max_entries=500), []

    async def load() -> int:
        loads.append(1)
        await asyncio.sleep(0)
        return len(loads)

    assert await asyncio.gather(*(cache.get("a", load, min_ttl_seconds=60) for _ in range(5))) == [1] * 5
    assert await cache.get("b", load, min_ttl_seconds=60) == 2
    assert await cache.get("a", load, min_ttl_seconds=60) == 1
    for key in range(1_000):
        await cache.get(key, load, min_ttl_seconds=-1)
    assert len(cache._entries) <= 500
