"""Who drops the tables of Objects, and when.

A handler counts references to tables. `LocalLifecycleHandler` belongs to one DataContext and drops a table as soon as
nothing refers to it; a shared handler (as the orchestration injects one) only counts, and someone else drops.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlencode

from aaiclick.data.cluster import REFERRING, local_to_drop
from aaiclick.data.types import quote_name, quote_text
from aaiclick.snowflake import get_snowflake_id
from aaiclick.targets import ClickHouseTarget

log = logging.getLogger(__name__)

BEAT_SECONDS = 300.0
"""How often a context that has lived that long says in ClickHouse that it still does."""


class LifecycleHandler(ABC):
    """Counts the references to Object tables.

    `incref` and `decref` are called from anywhere, also from destructors: they must not block and must not raise.
    """

    session: int | None = None
    """Who drops the tables made here, noted in their comments; None if they are counted where others can see it."""

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

    async def hold(self, table_name: str) -> None:
        """Count a reference to a table that was there before; raises if the table cannot be relied on any more."""
        self.incref(table_name)

    # Who counts for one context alone need not hear of names, and has nobody to share with.

    async def name(self, table_name: str, name: str) -> None:  # noqa: B027
        """The table is kept by a name from now on, whoever refers to it."""

    async def unname(self, table_name: str, name: str) -> None:  # noqa: B027
        """The name is about to go, and its table with it."""

    def made(self, table_name: str) -> bool:  # noqa: ARG002
        """Whether this handler will drop the table, unless it is shared."""
        return False

    async def share(self, table_names: Sequence[str]) -> None:  # noqa: B027
        """Somebody else counts these tables too: do not drop them, also not at the end."""

    def unshare(self, table_names: Sequence[str]) -> None:  # noqa: B027
        """It came to nothing: these tables are ours alone again."""


@dataclass(frozen=True, slots=True)
class _Share:
    names: Sequence[str]
    change: int
    done: Future[None] | None = None


_Message = tuple[str, int] | _Share | None
"""A count, a table shared with others, or the end."""


class LocalLifecycleHandler(LifecycleHandler):
    """Drops tables from a background thread as their count reaches zero, and all that are left when it stops.

    Nobody else knows of these tables, so the sweeper must be able to tell those of a script that runs for hours from
    those of one that died. Each table's comment names the handler's `session`; once a handler is as old as
    BEAT_SECONDS it has a *marker*, a table named by the session, which it changes that often: a marker that was not
    changed for long, or is not there, belongs to nobody. Short scripts never make one.
    """

    def __init__(self, creds: ClickHouseTarget) -> None:
        self._creds = creds
        self.session = get_snowflake_id()
        self._queue: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._counts: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._client: _Connection | None = None
        self._failed: list[str] = []
        """Tables that could not be dropped when their time came; tried again at the end."""
        self._made: set[str] = set()
        self._shared: Counter[str] = Counter()
        self._beats = 0
        self._next_beat = 0.0

    async def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="aaiclick-lifecycle", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._queue.put(None)
        # The tables must be gone when this returns, also while the caller is being cancelled.
        await asyncio.shield(asyncio.to_thread(thread.join))

    async def reserve(self, table_name: str) -> None:
        self._made.add(table_name)
        self.incref(table_name)

    async def hold(self, table_name: str) -> None:
        """A table that was made elsewhere is read here, and left there."""
        if table_name not in self._made:
            self._queue.put(_Share([table_name], 1))
        self.incref(table_name)

    def incref(self, table_name: str) -> None:
        self._queue.put((table_name, 1))

    def decref(self, table_name: str) -> None:
        self._queue.put((table_name, -1))

    def made(self, table_name: str) -> bool:
        return table_name in self._made

    async def share(self, table_names: Sequence[str]) -> None:
        message = _Share(table_names, 1, Future())
        self._queue.put(message)
        assert message.done is not None  # noqa: S101
        await asyncio.wrap_future(message.done)

    def unshare(self, table_names: Sequence[str]) -> None:
        self._queue.put(_Share(table_names, -1))

    def _work(self) -> None:
        self._next_beat = time.monotonic() + BEAT_SECONDS
        while True:
            try:
                message = self._queue.get(timeout=max(0.0, self._next_beat - time.monotonic()))
            except queue.Empty:
                with suppress(Exception):  # the next one comes soon enough
                    self._beat()
                continue
            if message is None:
                break
            self._take(message)
        while not self._queue.empty():
            message = self._queue.get()
            if message is not None:
                self._take(message)
        for name in [*self._counts, *self._failed]:
            if not self._shared[name]:
                self._drop(name)
        if self._beats:
            self._drop(f"t{self.session}")
        if self._client is not None:
            self._client.close()

    def _take(self, message: tuple[str, int] | _Share) -> None:
        if isinstance(message, _Share):
            self._share(message)
            return
        name, change = message
        self._counts[name] += change
        if self._counts[name] <= 0:
            del self._counts[name]
            if not self._shared[name]:
                self._drop(name)

    def _share(self, message: _Share) -> None:
        for name in message.names:
            self._shared[name] += message.change
            if not self._shared[name] and name not in self._counts:
                self._drop(name)
        if message.done is None:
            return
        try:
            self._beat()  # from here on others must see that we live
        except Exception as error:  # noqa: BLE001  (carried over to the caller's thread)
            message.done.set_exception(error)
        else:
            message.done.set_result(None)

    def _beat(self) -> None:
        """Say that this session lives, if there is anything that depends on it."""
        self._next_beat = time.monotonic() + BEAT_SECONDS
        if not self._counts:
            return
        self._beats += 1
        marker = quote_name(f"t{self.session}")
        note = quote_text(json.dumps({"aaiclick": "session", "session": str(self.session), "beat": self._beats}))
        if self._client is None:
            self._client = _open(self._creds)
        try:
            self._client.run(f"CREATE TABLE IF NOT EXISTS {marker} (beat UInt8) ENGINE = Memory")
            self._client.run(f"ALTER TABLE {marker} MODIFY COMMENT {note}")
        except Exception:
            self._client.close()
            self._client = None  # it may have died since it was used
            raise

    def _drop(self, name: str) -> None:
        self._counts.pop(name, None)
        for last in (False, True):  # a connection may have died since it was used: the second one is new
            try:
                if self._client is None:
                    self._client = _open(self._creds)
                self._client.drop(name)
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

    def drop(self, name: str) -> None:
        self.run(f"DROP TABLE IF EXISTS {quote_name(name)} SYNC")

    def run(self, statement: str) -> str:
        self._http.request("POST", self._path, statement.encode(), self._headers)
        answer = self._http.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(body[:300].decode(errors="replace"))
        return body.decode(errors="replace")

    def close(self) -> None:
        self._http.close()


class _Connections(_Connection):
    """The same to all nodes of a cluster (see `cluster.ClusterLayout.drop`)."""

    def __init__(self, target: ClickHouseTarget) -> None:
        super().__init__(target)
        self._others = [_Connection(each) for each in target.others]

    def drop(self, name: str) -> None:
        rows = [json.loads(line) for line in self.run(f"{REFERRING} FORMAT JSONCompactEachRow").splitlines()]
        local = local_to_drop(name, rows)
        if local is not None:
            for node in self._others:
                node.drop(local)
            super().drop(local)
        super().drop(name)

    def close(self) -> None:
        super().close()
        for node in self._others:
            node.close()


def _open(target: ClickHouseTarget) -> _Connection:
    return _Connections(target) if target.cluster else _Connection(target)
