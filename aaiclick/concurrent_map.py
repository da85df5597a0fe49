"""Concurrent calls of an asynchronous function for many items, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_CONCURRENT_CALLS = 16


async def map_concurrently(function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The results of `function` in the order of the items; the first error cancels the other calls."""
    results: dict[int, R] = {}
    waiting = iter(enumerate(items))

    async def call_next() -> None:
        for index, item in waiting:
            results[index] = await function(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(MAX_CONCURRENT_CALLS, len(items))):
                group.create_task(call_next())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [results[index] for index in range(len(items))]
