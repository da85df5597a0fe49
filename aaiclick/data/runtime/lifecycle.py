"""Reference counting of Object tables.

`LocalLifecycleHandler` belongs to one DataContext and drops a table when its count reaches zero. A shared handler, such
as the one of the orchestration, only counts; another process drops.
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

from aaiclick.data.runtime.cluster import DISTRIBUTED_TABLES, find_local_table
from aaiclick.data.types import quote_name, quote_text
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.snowflake import get_snowflake_id

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 300.0
"""Interval of a session's heartbeats in ClickHouse; the first is sent after this time."""


class LifecycleHandler(ABC):
    """Counts the references to Object tables.

    `incref` and `decref` are called from anywhere, also from destructors: they must not block and must not raise.

    ```python
    async with DataContext() as context:
        assert isinstance(context.lifecycle, LifecycleHandler)
    ```
    """

    session: int | None = None
    """Id of the session that drops the tables created here, stored in their comments; None if counts are shared."""

    @abstractmethod
    async def start(self) -> None:
        """Start the handler."""

    @abstractmethod
    async def stop(self) -> None:
        """Process all pending operations and stop."""

    @abstractmethod
    def incref(self, table_name: str) -> None:
        """Count one more reference to a table."""

    @abstractmethod
    def decref(self, table_name: str) -> None:
        """Count one reference less."""

    async def reserve(self, table_name: str) -> None:
        """Count the first reference; called before the table is created.

        A handler with durable counts returns only when the count is stored: a crash then leaves a count without a
        table, never an uncounted table.
        """
        self.incref(table_name)

    async def hold(self, table_name: str) -> None:
        """Count a reference to an existing table; raises if the table may be dropped already."""
        self.incref(table_name)

    # The defaults below suit a handler that counts for one context only.

    async def name_table(self, table_name: str, name: str) -> None:  # noqa: B027
        """Record that a name keeps the table, regardless of references."""

    async def unname_table(self, table_name: str, name: str) -> None:  # noqa: B027
        """Record that the name and its table are about to be dropped."""

    def owns_table(self, table_name: str) -> bool:  # noqa: ARG002
        """Whether this handler will drop the table, unless it is shared."""
        return False

    async def share(self, table_names: Sequence[str]) -> None:  # noqa: B027
        """Do not drop these tables, not even on stop: another handler counts them too."""

    def unshare(self, table_names: Sequence[str]) -> None:  # noqa: B027
        """Undo `share`."""


@dataclass(frozen=True, slots=True)
class _Share:
    names: Sequence[str]
    change: int
    done: Future[None] | None = None


_Message = tuple[str, int] | _Share | None
"""A change of a count, a (un)shared table, or the request to stop."""


class LocalLifecycleHandler(LifecycleHandler):
    """Drops tables in a background thread when their count reaches zero, and all remaining ones on stop.

    These tables are counted nowhere else, so the sweeper must distinguish those of a long-running script from those of
    a dead one. Each table's comment has the handler's `session`. After HEARTBEAT_SECONDS the handler creates a *marker*
    table named by the session and alters it at that interval; a session without a recent marker is dead. Short scripts
    never create one.

    ```python
    async with DataContext() as context:
        assert isinstance(context.lifecycle, LocalLifecycleHandler)
    ```
    """

    def __init__(self, creds: ClickHouseEndpoint) -> None:
        self._creds = creds
        self.session = get_snowflake_id()
        self._queue: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._counts: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._client: _HttpConnection | None = None
        self._failed: list[str] = []
        """Tables that could not be dropped; retried on stop."""
        self._own_tables: set[str] = set()
        self._shared: Counter[str] = Counter()
        self._heartbeats = 0
        self._next_heartbeat = 0.0

    async def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._process_messages, name="aaiclick-lifecycle", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._queue.put(None)
        # The tables must be dropped when this returns, even if the caller is cancelled.
        await asyncio.shield(asyncio.to_thread(thread.join))

    async def reserve(self, table_name: str) -> None:
        self._own_tables.add(table_name)
        self.incref(table_name)

    async def hold(self, table_name: str) -> None:
        """Hold a table; one created elsewhere is not dropped here."""
        if table_name not in self._own_tables:
            self._queue.put(_Share([table_name], 1))
        self.incref(table_name)

    def incref(self, table_name: str) -> None:
        self._queue.put((table_name, 1))

    def decref(self, table_name: str) -> None:
        self._queue.put((table_name, -1))

    def owns_table(self, table_name: str) -> bool:
        return table_name in self._own_tables

    async def share(self, table_names: Sequence[str]) -> None:
        message = _Share(table_names, 1, Future())
        self._queue.put(message)
        assert message.done is not None  # noqa: S101
        await asyncio.wrap_future(message.done)

    def unshare(self, table_names: Sequence[str]) -> None:
        self._queue.put(_Share(table_names, -1))

    def _process_messages(self) -> None:
        self._next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
        while True:
            try:
                message = self._queue.get(timeout=max(0.0, self._next_heartbeat - time.monotonic()))
            except queue.Empty:
                with suppress(Exception):  # the next heartbeat follows
                    self._send_heartbeat()
                continue
            if message is None:
                break
            self._handle_message(message)
        while not self._queue.empty():
            message = self._queue.get()
            if message is not None:
                self._handle_message(message)
        for name in [*self._counts, *self._failed]:
            if not self._shared[name]:
                self._drop_table(name)
        if self._heartbeats:
            self._drop_table(f"t{self.session}")
        if self._client is not None:
            self._client.close()

    def _handle_message(self, message: tuple[str, int] | _Share) -> None:
        if isinstance(message, _Share):
            self._handle_share(message)
            return
        name, change = message
        self._counts[name] += change
        if self._counts[name] <= 0:
            del self._counts[name]
            if not self._shared[name]:
                self._drop_table(name)

    def _handle_share(self, message: _Share) -> None:
        for name in message.names:
            self._shared[name] += message.change
            if not self._shared[name] and name not in self._counts:
                self._drop_table(name)
        if message.done is None:
            return
        try:
            self._send_heartbeat()  # other processes now depend on this session
        except Exception as error:  # noqa: BLE001  (carried over to the caller's thread)
            message.done.set_exception(error)
        else:
            message.done.set_result(None)

    def _send_heartbeat(self) -> None:
        """Update the session's marker table, if any table depends on it."""
        self._next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
        if not self._counts:
            return
        self._heartbeats += 1
        marker = quote_name(f"t{self.session}")
        note = quote_text(json.dumps({"aaiclick": "session", "session": str(self.session), "beat": self._heartbeats}))
        if self._client is None:
            self._client = _open_connection(self._creds)
        try:
            self._client.run(f"CREATE TABLE IF NOT EXISTS {marker} (beat UInt8) ENGINE = Memory")
            self._client.run(f"ALTER TABLE {marker} MODIFY COMMENT {note}")
        except Exception:
            self._client.close()
            self._client = None  # the connection may be broken
            raise

    def _drop_table(self, name: str) -> None:
        self._counts.pop(name, None)
        for last in (False, True):  # an idle connection may be broken: the second attempt opens a new one
            try:
                if self._client is None:
                    self._client = _open_connection(self._creds)
                self._client.drop(name)
            except Exception as error:  # noqa: BLE001  (the thread has no caller; the sweeper drops the table)
                with suppress(Exception):
                    if self._client is not None:
                        self._client.close()
                self._client = None
                if last:
                    self._failed.append(name)
                    log.warning("Table %s of %s was not dropped: %s", name, self._creds, error)
            else:
                return


class _HttpConnection:
    """Blocking HTTP connection to ClickHouse, for use in a thread."""

    def __init__(self, endpoint: ClickHouseEndpoint) -> None:
        connection_class = HTTPSConnection if endpoint.secure else HTTPConnection
        self._http = connection_class(endpoint.host, endpoint.port, timeout=60)
        self._path = f"/{endpoint.path}?{urlencode({'database': endpoint.database})}"
        credential = b64encode(f"{endpoint.user}:{endpoint.password}".encode()).decode()
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


class _ClusterConnection(_HttpConnection):
    """Connections to all nodes of a cluster (see `cluster.ClusterLayout.drop_table`)."""

    def __init__(self, endpoint: ClickHouseEndpoint) -> None:
        super().__init__(endpoint)
        self._nodes = [_HttpConnection(node) for node in endpoint.others]

    def drop(self, name: str) -> None:
        rows = [json.loads(line) for line in self.run(f"{DISTRIBUTED_TABLES} FORMAT JSONCompactEachRow").splitlines()]
        local = find_local_table(name, rows)
        if local is not None:
            for node in self._nodes:
                node.drop(local)
            super().drop(local)
        super().drop(name)

    def close(self) -> None:
        super().close()
        for node in self._nodes:
            node.close()


def _open_connection(endpoint: ClickHouseEndpoint) -> _HttpConnection:
    return _ClusterConnection(endpoint) if endpoint.cluster else _HttpConnection(endpoint)
