"""The tables that tasks make: dropped when nothing refers to them, unless they are a task's result."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

from aaiclick.data.client import connect
from aaiclick.data.lifecycle import LifecycleHandler
from aaiclick.data.types import quote_name
from aaiclick.errors import AaiclickError
from aaiclick.settings import ClickHouseTarget


class TaskTables(LifecycleHandler):
    """Counts the references of all tasks of this process; a count that reaches zero drops the table."""

    def __init__(self, target: ClickHouseTarget) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._made: set[str] = set()
        self._unused: list[str] = []
        self._wake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dropper: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._dropper = asyncio.create_task(self._drop_unused())

    async def stop(self) -> None:
        if self._dropper is not None and self._wake is not None:
            self._stopping = True
            self._wake.set()
            await self._dropper
            self._dropper = None

    def keep(self, table_name: str) -> None:
        """The table is a result: it stays when this process has no use for it any more."""
        with self._lock:
            self._made.discard(table_name)

    async def reserve(self, table_name: str) -> None:
        with self._lock:
            self._made.add(table_name)
        self.incref(table_name)

    def incref(self, table_name: str) -> None:
        with self._lock:
            self._counts[table_name] += 1

    def decref(self, table_name: str) -> None:
        with self._lock:
            self._counts[table_name] -= 1
            if self._counts[table_name] > 0:
                return
            del self._counts[table_name]
            if table_name not in self._made:
                return  # somebody else's, or a result
            self._made.discard(table_name)
            self._unused.append(table_name)
        if self._loop is not None and self._wake is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _drop_unused(self) -> None:
        assert self._wake is not None  # noqa: S101
        while True:
            await self._wake.wait()
            self._wake.clear()
            with self._lock:
                names, self._unused = self._unused, []
            for name in names:
                try:
                    client = await connect(self._target)
                    await client.run(f"DROP TABLE IF EXISTS {quote_name(name)} SYNC")
                except AaiclickError:
                    continue  # the server is gone for now; the sweeper finds what is left
            if self._stopping:
                return
