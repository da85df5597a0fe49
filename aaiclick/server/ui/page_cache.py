"""Cache with single flight; the TTL grows with the cost of the query."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

TTL_FACTOR = 20
"""A value that took 50 ms to load is cached for one second."""

MAX_ENTRIES = 500

_stale_until: ContextVar[float] = ContextVar("served_until", default=float("-inf"))


def stale_seconds() -> float:
    """Seconds until every cached value used by this request has expired; 0 if none came from the cache."""
    return max(0.0, _stale_until.get() - time.monotonic())


@dataclass
class _CacheEntry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Any = None
    expires_at: float = float("-inf")


class PageCache:
    """Query results by key; concurrent requests for one key share one load."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _CacheEntry] = {}
        self._pending: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, key: Hashable, load: Callable[[], Awaitable[T]], *, min_ttl: float = 0.5) -> T:
        """Return the cached value or load it; the TTL is `min_ttl` or TTL_FACTOR times the duration of the load."""
        entry = self._entries.get(key)
        if entry is None:
            self._evict_expired()
            entry = self._entries[key] = _CacheEntry()
        async with entry.lock:
            if time.monotonic() > entry.expires_at:
                started = time.monotonic()
                entry.value = await load()
                entry.expires_at = time.monotonic() + max(min_ttl, TTL_FACTOR * (time.monotonic() - started))
            else:
                _stale_until.set(max(_stale_until.get(), entry.expires_at))
            return entry.value

    def clear(self) -> None:
        """Drop all entries, so that a user sees the effect of an action at once."""
        self._entries = {}

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

    def _finish_pending(self, key: Hashable, pending: asyncio.Future[Any]) -> None:
        self._pending.pop(key, None)
        if not pending.cancelled():
            pending.exception()  # retrieved here to avoid "exception was never retrieved"; waiters receive it

    def _evict_expired(self) -> None:
        if len(self._entries) >= MAX_ENTRIES:
            now = time.monotonic()
            fresh = {key: answer for key, answer in self._entries.items() if answer.expires_at > now}
            self._entries = fresh if len(fresh) < MAX_ENTRIES else {}
