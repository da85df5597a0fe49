"""Statements lock rows in the order of ids where they can; where a plan cannot promise that, PostgreSQL may have to
pick a victim. The victim has changed nothing and simply goes again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

T = TypeVar("T")

TRIES = 5


async def again(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`, a whole transaction, until it is not the victim of a deadlock."""
    for _ in range(TRIES - 1):
        try:
            return await work()
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            continue
    return await work()
