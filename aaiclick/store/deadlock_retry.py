"""Retry of transactions that PostgreSQL aborts because of a deadlock.

Statements lock rows in the order of ids where they can; where a query plan does not guarantee that order, deadlocks
remain possible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

T = TypeVar("T")

MAX_TRIES = 5


async def retry_on_deadlock(transaction: Callable[[], Awaitable[T]]) -> T:
    """Run `transaction`, a whole transaction, and repeat it if it is aborted by a deadlock."""
    for _ in range(MAX_TRIES - 1):
        try:
            return await transaction()
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            continue
    return await transaction()
