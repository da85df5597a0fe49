"""Cache of query results with single flight; the TTL is a multiple of the time that the query took.

A query therefore runs for at most 1/`ttl_factor` of the time: its result is milliseconds old for small tables and some
seconds old for a million rows.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

TTL_FACTOR = 10
MAX_ENTRIES = 10_000

_stale_until: ContextVar[float] = ContextVar("stale_until", default=-math.inf)


def stale_seconds() -> float:
    """Seconds until every cached value used by this request has expired; 0 if none came from the cache."""
    return max(0.0, _stale_until.get() - time.monotonic())


@dataclass
class _CacheEntry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Any = None
    expires_at: float = -math.inf


class QueryCache:
    """Query results by key, for example by org; concurrent requests for one key share one load."""

    def __init__(
        self,
        *,
        ttl_factor: float = TTL_FACTOR,
        min_ttl_seconds: float = 0.0,
        max_ttl_seconds: float = math.inf,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._ttl_factor = ttl_factor
        self._min_ttl_seconds = min_ttl_seconds
        self._max_ttl_seconds = max_ttl_seconds
        self._max_entries = max_entries
        self._entries: dict[Hashable, _CacheEntry] = {}
        self._pending: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, key: Hashable, load: Callable[[], Awaitable[T]], *, min_ttl_seconds: float | None = None) -> T:
        """Return the value of a key; `load` it if it is missing or expired."""
        entry = self._entries.get(key)
        if entry is None:
            self._evict_expired()
            entry = self._entries[key] = _CacheEntry()
        async with entry.lock:
            started = time.monotonic()
            if started < entry.expires_at:
                _stale_until.set(max(_stale_until.get(), entry.expires_at))
                return entry.value
            value = entry.value = await load()
            now = time.monotonic()
            shortest = self._min_ttl_seconds if min_ttl_seconds is None else min_ttl_seconds
            entry.expires_at = now + max(shortest, min(self._max_ttl_seconds, self._ttl_factor * (now - started)))
            return value

    async def get_within(self, key: Hashable, load: Callable[[], Awaitable[T]], *, timeout_seconds: float) -> T | None:
        """Like `get`, but return the previous value or None after `timeout`; the load continues in the background."""
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = asyncio.ensure_future(self.get(key, load))
            pending.add_done_callback(lambda done: self._finish_pending(key, done))
        await asyncio.wait({pending}, timeout=timeout_seconds)
        if pending.done():
            return pending.result()
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def invalidate(self, key: Hashable) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Drop all entries, so that a user sees the effect of an action at once."""
        self._entries = {}

    def _finish_pending(self, key: Hashable, pending: asyncio.Future[Any]) -> None:
        self._pending.pop(key, None)
        if not pending.cancelled():
            pending.exception()  # retrieved here to avoid "exception was never retrieved"; waiters receive it

    def _evict_expired(self) -> None:
        if len(self._entries) >= self._max_entries:
            now = time.monotonic()
            fresh = {key: entry for key, entry in self._entries.items() if entry.expires_at > now}
            self._entries = fresh if len(fresh) < self._max_entries else {}
