"""Who drops the tables of Objects, and when.

A handler counts references to tables. `LocalLifecycleHandler` belongs to one DataContext and drops a table as soon as
nothing refers to it; a shared handler (as the orchestration injects one) only counts, and someone else drops.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection, HTTPSConnection
from typing import cast
from urllib.parse import urlencode

from aaiclick.data.types import quote_name
from aaiclick.settings import ClickHouseTarget

log = logging.getLogger(__name__)


class LifecycleHandler(ABC):
    """Counts the references to Object tables.

    `incref` and `decref` are called from anywhere, also from destructors: they must not block and must not raise.
    """

    @abstractmethod
    async def start(self) -> None:
        """Begin to work."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish what was asked for and stop."""

    @abstractmethod
    def incref(self, table_name: str) -> None:
        """Count one more reference to a table."""

    @abstractmethod
    def decref(self, table_name: str) -> None:
        """Count one reference less."""

    async def reserve(self, table_name: str) -> None:
        """Count the first reference; returns before the table is created.

        A handler whose counts must survive a crash overrides this to return only when the count is durable: then a
        crash
        leaves a count without a table, never a table that nobody knows.
        """
        self.incref(table_name)


_STOP = object()


class LocalLifecycleHandler(LifecycleHandler):
    """Drops tables from a background thread as their count reaches zero, and all that are left when it stops."""

    def __init__(self, creds: ClickHouseTarget) -> None:
        self._creds = creds
        self._queue: queue.SimpleQueue[tuple[str, int] | object] = queue.SimpleQueue()
        self._counts: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._client: _Connection | None = None
        self._failed: list[str] = []
        """Tables that could not be dropped when their time came; tried again at the end."""

    async def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="aaiclick-lifecycle", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._queue.put(_STOP)
        # The tables must be gone when this returns, also while the caller is being cancelled.
        await asyncio.shield(asyncio.to_thread(thread.join))

    def incref(self, table_name: str) -> None:
        self._queue.put((table_name, 1))

    def decref(self, table_name: str) -> None:
        self._queue.put((table_name, -1))

    def _work(self) -> None:
        while True:
            message = self._queue.get()
            if message is _STOP:
                break
            self._count(*cast("tuple[str, int]", message))
        while not self._queue.empty():
            message = self._queue.get()
            if message is not _STOP:
                self._count(*cast("tuple[str, int]", message))
        for name in [*self._counts, *self._failed]:
            self._drop(name)
        if self._client is not None:
            self._client.close()

    def _count(self, name: str, change: int) -> None:
        self._counts[name] += change
        if self._counts[name] <= 0:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._counts.pop(name, None)
        for last in (False, True):  # a connection may have died since it was used: the second one is new
            try:
                if self._client is None:
                    self._client = _Connection(self._creds)
                self._client.run(f"DROP TABLE IF EXISTS {quote_name(name)} SYNC")
            except Exception as error:  # noqa: BLE001  (a thread has nobody to raise to; the sweeper finds the table)
                with suppress(Exception):
                    if self._client is not None:
                        self._client.close()
                self._client = None
                if last:
                    self._failed.append(name)
                    log.warning("Table %s of %s was not dropped: %s", name, self._creds, error)
            else:
                return


class _Connection:
    """Plain HTTP to ClickHouse: a statement needs no driver, and a thread no event loop."""

    def __init__(self, target: ClickHouseTarget) -> None:
        make = HTTPSConnection if target.secure else HTTPConnection
        self._http = make(target.host, target.port, timeout=60)
        self._path = f"/{target.path}?{urlencode({'database': target.database})}"
        credential = b64encode(f"{target.user}:{target.password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credential}"}

    def run(self, statement: str) -> None:
        self._http.request("POST", self._path, statement.encode(), self._headers)
        answer = self._http.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(body[:300].decode(errors="replace"))

    def close(self) -> None:
        self._http.close()
