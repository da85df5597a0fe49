"""Concurrent calls: order, limit and errors."""

import asyncio

import pytest

from aaiclick.concurrent_map import MAX_CONCURRENT_CALLS, map_concurrently


async def test_results_are_in_order_and_calls_are_limited():
    running, most = 0, 0

    async def square(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (number % 3))
        running -= 1
        return number * number

    assert await map_concurrently(square, range(100)) == [number * number for number in range(100)]
    assert most == MAX_CONCURRENT_CALLS
    assert await map_concurrently(square, []) == []


async def test_first_error_is_raised_and_ends_the_other_calls():
    calls: list[int] = []

    async def fail_at_three(number: int) -> None:
        calls.append(number)
        if number == 3:
            raise KeyError(number)
        await asyncio.sleep(60)

    with pytest.raises(KeyError):
        await map_concurrently(fail_at_three, range(1_000))
    assert len(calls) <= MAX_CONCURRENT_CALLS
