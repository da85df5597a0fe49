"""ClickHouse HTTP client: cancellable queries, translated errors, one connection pool per event loop and server.

Every query has an id. When the asyncio task that awaits it is cancelled, the query is killed on the server before the
cancellation is raised.

If a query fails after its response has begun, ClickHouse closes the connection. The error message is in the last bytes,
which may not arrive; the query is then run again without its rows, to get the error.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from clickhouse_connect import get_async_client
from clickhouse_connect.driver.asyncclient import AsyncClient
from clickhouse_connect.driver.exceptions import OperationalError

from aaiclick.data.compile.statements import CompiledQuery
from aaiclick.data.errors import QueryError
from aaiclick.data.io.s3_client import key_parameters
from aaiclick.data.runtime.cluster import ClusterLayout, sort_by_shard
from aaiclick.data.runtime.server_errors import IncompleteResponseError, translate_error
from aaiclick.data.runtime.table_layout import Layout
from aaiclick.data.types import quote_name
from aaiclick.errors import AaiclickError, UnreachableError, UnsupportedServerError
from aaiclick.server_addresses import ClickHouseEndpoint

T = TypeVar("T")

OLDEST_MAJOR = 24
KILL_SECONDS = 15
KILL_RETRY_SECONDS = 0.05
FORM_BYTES = 100_000
"""Longest query sent as a form field; the server accepts 131,072 bytes."""

SETTINGS: dict[str, Any] = {
    "async_insert": 0,  # on by default since 26.x: an acknowledged insert must be stored
    "max_query_size": 64 << 20,  # for queries with ten thousand columns
    "join_use_nulls": 1,  # rows without a match get NULL, not 0
    "session_timezone": "UTC",  # a datetime without a time zone means the same on every server
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
    "input_format_null_as_default": 0,  # NULL in a column that is not nullable is an error, not a 0
}

RECENT_SETTINGS: dict[str, Any] = {
    # Without statistics of columns ClickHouse reorders joins badly (TPC-H q5: 12 × the CPU time); it still chooses the
    # side of which a hash table is built.
    "query_plan_optimize_join_order_limit": 2,
}
"""Settings that servers since version 24 do not all have."""

TIMEOUT_EXCEEDED = 159
RERUN_SECONDS = 300
ERROR_MARKER = b"\r\n__exception__\r\n"
TAIL_BYTES = 32_768


# It logs tracebacks of errors that are raised here anyway.
logging.getLogger("clickhouse_connect.driver.streaming").setLevel(logging.CRITICAL)


class ClickHouseClient:
    """Client of one ClickHouse server; created by `connect` and shared by all contexts of an event loop."""

    def __init__(self, raw: AsyncClient, endpoint: ClickHouseEndpoint) -> None:
        self._raw = raw
        self._plain: AsyncClient | None = None
        self.endpoint = endpoint
        self._nodes: Sequence[ClickHouseClient] = ()
        self.layout = Layout(self)
        self.settings = SETTINGS | {
            name: value for name, value in RECENT_SETTINGS.items() if name in raw.server_settings
        }

    async def use_cluster(self, cluster: str, others: Sequence[ClickHouseClient]) -> None:
        """Store Objects on all nodes of a cluster; closes the other nodes' clients with this one."""
        self._nodes = others
        self.layout = ClusterLayout(self, await sort_by_shard([self, *others], cluster))
        self.settings = {**self.settings, **self.layout.settings}

    async def _choose_client(self, text: str) -> AsyncClient:
        """Return the client for a query: one too long for a form field is sent as the request body."""
        if len(text) * 4 < FORM_BYTES or len(text.encode()) < FORM_BYTES:
            return self._raw
        if self._plain is None:
            self._plain = await _create_raw_client(self.endpoint, form=False)
        return self._plain

    async def read_query(self, query: CompiledQuery, query_id: str = "") -> pa.Table:
        """Run a compiled query and read its whole result."""
        return await self.read_text(query.text, query.parameters, query.settings, query_id)

    async def read_text(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        query_id: str = "",
    ) -> pa.Table:
        """Run a query and read its whole result as a pyarrow Table."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **(settings or {}), "query_id": query_id}
        raw = await self._choose_client(text)
        work = raw.query_arrow(text, parameters=_bind_parameters(text, parameters), settings=merged, use_strings=True)
        started = time.monotonic()
        try:
            return await self._run_cancellable(work, query_id)
        except IncompleteResponseError as error:
            raise await self._find_failure_reason(error, text, parameters, merged, started) from None

    async def read_batches(self, query: CompiledQuery, query_id: str = "") -> AsyncGenerator[pa.RecordBatch, None]:
        """Run a compiled query and stream its result; leaving the loop early kills the query."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **query.settings, "query_id": query_id}
        raw = await self._choose_client(query.text)
        work = raw.query_arrow_stream(
            query.text, parameters=_bind_parameters(query.text, query.parameters), settings=merged, use_strings=True
        )
        stream = await self._run_cancellable(work, query_id)
        finished, started = False, time.monotonic()
        try:
            async with stream:
                try:
                    async for batch in stream:
                        yield batch
                    finished = True
                finally:
                    if not finished:
                        # Closing an unfinished stream would read it to its end: kill the query instead.
                        await asyncio.shield(self.kill_query(query_id))
        except (asyncio.CancelledError, GeneratorExit, AaiclickError):
            raise
        except Exception as error:
            if not finished:
                translated = translate_error(error, self.endpoint)
                raise await self._find_failure_reason(
                    translated, query.text, query.parameters, merged, started
                ) from error

    async def run(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        query_id: str = "",
    ) -> None:
        """Run a statement that returns no rows."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **(settings or {}), "query_id": query_id}
        await self._run_cancellable(
            (await self._choose_client(text)).command(
                text, parameters=_bind_parameters(text, parameters), settings=merged
            ),
            query_id,
        )

    async def insert_arrow(self, table: str, columns: list[str], body: bytes, query_id: str = "") -> None:
        """Send rows as an Arrow stream, without retries.

        If the connection breaks before ClickHouse acknowledges the rows, clickhouse-connect would send them again and
        duplicate them; it cannot do so with a stream.
        """
        names = ", ".join(quote_name(column) for column in columns)

        async def single_piece() -> AsyncIterator[bytes]:
            yield body

        statement = f"INSERT INTO {quote_name(table)} ({names}) FORMAT ArrowStream"
        await self.send_stream(statement, single_piece(), {}, query_id)

    async def send_stream(
        self, statement: str, body: AsyncIterable[bytes], settings: Mapping[str, object], query_id: str = ""
    ) -> None:
        """Run an INSERT … FORMAT with a stream of bytes as data.

        An exception of the stream is raised unchanged; the HTTP client would report a broken connection.
        """
        head = statement.encode() + b"\n"
        failures: list[Exception] = []

        async def statement_and_body() -> AsyncIterator[bytes]:
            yield head
            try:
                async for piece in body:
                    yield piece
            except Exception as error:
                failures.append(error)
                raise

        query_id = query_id or new_query_id()
        # The server reads this many bytes before it starts: with the usual limit it would buffer the data.
        merged = {**self.settings, **settings, "query_id": query_id, "max_query_size": len(head) + 1024}
        try:
            await self._run_cancellable(self._raw.raw_insert(None, None, statement_and_body(), merged), query_id)
        except AaiclickError as error:
            if failures:
                raise failures[0] from error
            raise

    async def stream_bytes(
        self, query: CompiledQuery, format_name: str, settings: Mapping[str, object], query_id: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """Stream the result of a query in a ClickHouse format."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **query.settings, **settings, "query_id": query_id}
        finished, tail, started = False, b"", time.monotonic()
        raw = await self._choose_client(query.text)
        work = raw.raw_stream(query.text, _bind_parameters(query.text, query.parameters), merged, format_name)
        stream = await self._run_cancellable(work, query_id)
        try:
            async with stream:
                async for piece in stream:
                    tail = (tail + piece)[-TAIL_BYTES:]
                    if ERROR_MARKER in tail:
                        raise _late_error(tail, self.endpoint)
                    yield piece
                finished = True
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            translated = translate_error(error, self.endpoint)
            raise await self._find_failure_reason(translated, query.text, query.parameters, merged, started) from error
        finally:
            if not finished:
                await asyncio.shield(self.kill_query(query_id))

    async def _find_failure_reason(
        self,
        error: Exception,
        text: str,
        parameters: Mapping[str, object] | None,
        settings: dict[str, Any],
        started: float,
    ) -> Exception:
        """Return why a response was incomplete: the query's error if it fails again, else the broken connection."""
        elapsed_seconds = time.monotonic() - started
        if not isinstance(error, IncompleteResponseError) or elapsed_seconds > RERUN_SECONDS:
            return error
        rerun_settings = {**settings, "max_execution_time": int(2 * elapsed_seconds) + 5}
        try:
            await self.run(f"{text} FORMAT Null", parameters, rerun_settings, f"{settings['query_id']}-again")
        except QueryError as reason:
            return error if reason.code == TIMEOUT_EXCEEDED else reason
        except AaiclickError as reason:
            return reason
        return error

    async def kill_query(self, query_id: str) -> bool:
        """Kill a running query and wait for its end; returns whether one ran."""
        with suppress(Exception):
            async with asyncio.timeout(KILL_SECONDS):
                rows = await self._raw.query_arrow(
                    "KILL QUERY WHERE query_id = {id:String} AND user = currentUser() SYNC",
                    parameters={"id": query_id},
                )
                return rows.num_rows > 0
        return False

    async def fetch_version(self) -> str:
        """Query the server's version. A cancelled call ends at once, without a KILL."""
        try:
            rows = await self._raw.query_arrow("SELECT version() AS version")
        except Exception as error:
            raise translate_error(error, self.endpoint) from error
        return str(rows.to_pylist()[0]["version"])

    async def _run_cancellable(self, work: Coroutine[object, object, T], query_id: str) -> T:
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.shield(self._kill_and_wait(task, query_id))
            raise
        except Exception as error:
            raise translate_error(error, self.endpoint) from error

    async def _kill_and_wait(self, task: asyncio.Future[Any], query_id: str) -> None:
        """Send KILL until the query has ended or responded.

        A request may have been sent although its query has not started yet; giving up then would leave the query
        running.
        """
        ended = False
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                while not (ended := await self.kill_query(query_id)) and not task.done():
                    await asyncio.wait([task], timeout=KILL_RETRY_SECONDS)
        if not ended and task.done():
            await self.kill_query(query_id)  # the response of a stream has begun, but not ended
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            answer = await task
            if hasattr(answer, "__aexit__"):
                async with answer:
                    pass

    async def close(self) -> None:
        await self._raw.close()
        if self._plain is not None:
            await self._plain.close()
        for node in self._nodes:
            await node.close()


def _late_error(tail: bytes, endpoint: ClickHouseEndpoint) -> AaiclickError:
    """Parse the error at the end of a response that failed after it had begun."""
    message = tail.split(ERROR_MARKER, 1)[1].decode(errors="replace")
    return translate_error(OperationalError(message), endpoint)


def new_query_id(prefix: str = "aai") -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


def _bind_parameters(text: str, parameters: Mapping[str, object] | None) -> dict[str, object] | None:
    return {**(parameters or {}), **key_parameters(text)} or None


# --- the pool ----------------------------------------------------------------------------------------------------

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClickHouseEndpoint, ClickHouseClient]] = WeakKeyDictionary()
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_closers: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncIterator[None]]] = WeakKeyDictionary()


async def connect(endpoint: ClickHouseEndpoint) -> ClickHouseClient:
    """Return this event loop's client for a server; created once, closed with the loop."""
    loop = asyncio.get_running_loop()
    clients = _clients.setdefault(loop, {})
    if endpoint in clients:
        return clients[endpoint]
    async with _locks.setdefault(loop, asyncio.Lock()):
        if endpoint not in clients:
            clients[endpoint] = await _open_client(endpoint)
            await _close_with_loop(loop, endpoint, clients[endpoint])
        return clients[endpoint]


async def ping(endpoint: ClickHouseEndpoint, *, seconds: float) -> str:
    """Return a server's version; raises UnreachableError if it does not answer within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await (await connect(endpoint)).fetch_version()
    except TimeoutError:
        raise UnreachableError(
            f"{endpoint} does not answer within {seconds:g} s.",
            remedy="The process hangs, the machine is overloaded, or the network drops packets. See the server's log.",
        ).at(endpoint.address) from None


async def _close_with_loop(
    loop: asyncio.AbstractEventLoop, endpoint: ClickHouseEndpoint, client: ClickHouseClient
) -> None:
    """Close the client when its event loop ends: asyncio has no hook for that, but closes open async generators."""

    async def close_at_end() -> AsyncIterator[None]:
        try:
            yield
        finally:
            _clients.get(loop, {}).pop(endpoint, None)
            await client.close()

    generator = close_at_end()
    await anext(generator)
    _closers.setdefault(loop, []).append(generator)


async def _create_raw_client(endpoint: ClickHouseEndpoint, *, form: bool) -> AsyncClient:
    local = endpoint.host in ("127.0.0.1", "localhost", "::1")
    try:
        return await get_async_client(
            host=endpoint.host,
            port=endpoint.port,
            username=endpoint.user,
            password=endpoint.password,
            database=endpoint.database,
            secure=endpoint.secure,
            proxy_path=endpoint.path,
            autogenerate_session_id=False,
            compress=not local,
            query_retries=0,
            send_receive_timeout=86_400,
            form_encode_query_params=form,  # a long list in `isin` does not fit a URL
            settings={"async_insert": 0},
        )
    except Exception as error:
        raise translate_error(error, endpoint) from error


async def _open_client(endpoint: ClickHouseEndpoint) -> ClickHouseClient:
    client = await _open_node(endpoint)
    if endpoint.cluster:
        try:
            await client.use_cluster(endpoint.cluster, [await _open_node(node) for node in endpoint.others])
        except BaseException:
            await client.close()
            raise
    return client


async def _open_node(endpoint: ClickHouseEndpoint) -> ClickHouseClient:
    raw = await _create_raw_client(endpoint, form=True)
    major = int(str(raw.server_version).split(".")[0])
    if major < OLDEST_MAJOR:
        await raw.close()
        raise UnsupportedServerError(
            f"{endpoint} runs version {raw.server_version}; aaiclick needs {OLDEST_MAJOR} or newer.",
            remedy="Upgrade ClickHouse, or leave AAICLICK_CLICKHOUSE_URL unset to use the embedded one.",
        )
    return ClickHouseClient(raw, endpoint)
