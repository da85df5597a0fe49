"""Limit the queries over datasets that run at once, of one organisation and in all.

Each of them holds its result in the memory of the server and its share of ClickHouse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aaiclick.server.problems import BusyError, TooManyRequestsError

ALL_QUERIES = 16
CLIENT_QUERIES = 4


class QuerySlots:
    """Slots of queries; a query beyond the limits is refused, not queued."""

    def __init__(self) -> None:
        self._running = Counter[str]()

    @asynccontextmanager
    async def slot(self, client: str) -> AsyncGenerator[None]:
        if self._running[client] >= CLIENT_QUERIES:
            raise TooManyRequestsError("Too many queries of this organisation are running.", remedy="Wait for them.")
        if self._running.total() >= ALL_QUERIES:
            raise BusyError("The server runs too many queries.", remedy="Send it again later.")
        self._running[client] += 1
        try:
            yield
        finally:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]
