"""Limits of concurrent queries over datasets, per organisation and in total.

Each query holds its result in the memory of the server and uses a share of ClickHouse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aaiclick.server.problem_responses import BusyError, TooManyRequestsError

MAX_QUERIES = 16
MAX_ORG_QUERIES = 4


class QueryLimiter:
    """Counts running queries; one beyond the limits is refused, not queued."""

    def __init__(self) -> None:
        self._running = Counter[str]()

    @asynccontextmanager
    async def acquire_slot(self, org_id: str) -> AsyncGenerator[None]:
        if self._running[org_id] >= MAX_ORG_QUERIES:
            raise TooManyRequestsError("Too many queries of this organisation are running.", remedy="Wait for them.")
        if self._running.total() >= MAX_QUERIES:
            raise BusyError("The server runs too many queries.", remedy="Try again later.")
        self._running[org_id] += 1
        try:
            yield
        finally:
            self._running[org_id] -= 1
            if not self._running[org_id]:
                del self._running[org_id]
