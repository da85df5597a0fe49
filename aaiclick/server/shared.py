"""An answer that is dear to find, found once for all who ask: at most a SHARE-th of the time is spent on it.

It is as old as SHARE times what it took: of small tables a few milliseconds, of a million rows some seconds.
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

SHARE = 10
MOST = 10_000
"""Organisations remembered."""


class Shared(Generic[T]):
    """One answer for each org."""

    def __init__(self, *, max_age_seconds: float = math.inf) -> None:
        self._max_age = max_age_seconds
        self._known: dict[UUID, tuple[float, T]] = {}
        self._finding: defaultdict[UUID, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(self, org_id: UUID, find: Callable[[], Awaitable[T]]) -> T:
        async with self._finding[org_id]:
            known = self._known.get(org_id)
            if known is not None and time.monotonic() < known[0]:
                return known[1]
            started = time.monotonic()
            found = await find()
            if len(self._known) > MOST:
                self._known.clear()
            now = time.monotonic()
            self._known[org_id] = now + min(self._max_age, SHARE * (now - started)), found
            return found

    def forget(self, org_id: UUID) -> None:
        """It has changed."""
        self._known.pop(org_id, None)
