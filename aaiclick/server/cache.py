"""Per-org cache of query results; the TTL is a multiple of the time that the query took.

A query therefore runs for at most 1/TTL_FACTOR of the time: its result is milliseconds old for small tables and some
seconds old for a million rows.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from uuid import UUID

T = TypeVar("T")

TTL_FACTOR = 10
MAX_ENTRIES = 10_000


class QueryCache(Generic[T]):
    """Cache with one entry per org and single flight: concurrent callers share one query."""

    def __init__(
        self, *, ttl_factor: float = TTL_FACTOR, min_ttl_seconds: float = 0.0, max_ttl_seconds: float = math.inf
    ) -> None:
        self._ttl_factor = ttl_factor
        self._min_ttl_seconds = min_ttl_seconds
        self._max_ttl_seconds = max_ttl_seconds
        self._entries: dict[UUID, tuple[float, T]] = {}
        self._locks: defaultdict[UUID, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(self, org_id: UUID, load: Callable[[], Awaitable[T]]) -> T:
        """Return the entry of an org; `load` it if it is missing or expired."""
        async with self._locks[org_id]:
            entry = self._entries.get(org_id)
            if entry is not None and time.monotonic() < entry[0]:
                return entry[1]
            started = time.monotonic()
            value = await load()
            if len(self._entries) > MAX_ENTRIES:
                self._entries.clear()
            now = time.monotonic()
            ttl = max(self._min_ttl_seconds, min(self._max_ttl_seconds, self._ttl_factor * (now - started)))
            self._entries[org_id] = now + ttl, value
            return value

    def invalidate(self, org_id: UUID) -> None:
        self._entries.pop(org_id, None)
