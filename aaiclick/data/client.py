"""ClickHouse over HTTP: queries that can be cancelled, errors in our words, one connection pool per loop and server.

Every query has an id. When the asyncio task that waits for it is cancelled, the query is killed on the server before
the cancellation goes on: nothing keeps running for nobody.

A query that fails after its answer has begun ends the answer by closing the connection. The words of the error are in
the last bytes, but which of these still arrive is a matter of luck; so the query is asked once more, without its rows,
why it fails.
"""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from clickhouse_connect import get_async_client
from clickhouse_connect.driver.asyncclient import AsyncClient
from clickhouse_connect.driver.exceptions import OperationalError

from aaiclick.data.cluster import ClusterLayout, in_order_of_shards
from aaiclick.data.errors import QueryError
from aaiclick.data.layout import Layout
from aaiclick.data.s3 import keys_of
from aaiclick.data.server_errors import BrokenOffError, translate
from aaiclick.data.statements import Compiled
from aaiclick.data.types import quote_name
from aaiclick.errors import AaiclickError, UnreachableError, UnsupportedServerError
from aaiclick.targets import ClickHouseTarget

OLDEST_MAJOR = 24
KILL_SECONDS = 15
KILL_AGAIN_SECONDS = 0.05
FORM_BYTES = 100_000
"""The server takes 131,072 bytes in one field of a form."""

SETTINGS: dict[str, Any] = {
    "async_insert": 0,  # on by default since 26.x: an acknowledged insert must be there
    "max_query_size": 64 << 20,  # ten thousand columns make a long text
    "join_use_nulls": 1,  # what has no partner is NULL, not 0
    "session_timezone": "UTC",  # a datetime without a zone means the same on every server
    "output_format_arrow_string_as_string": 1,
    "output_format_arrow_low_cardinality_as_dictionary": 0,
    "input_format_null_as_default": 0,  # a NULL for a column without NULLs is an error, not a 0
}

TIMEOUT_EXCEEDED = 159
ASK_AGAIN_SECONDS = 300
MID_STREAM = b"\r\n__exception__\r\n"
TAIL = 32_768


# It would print the traceback of an error that we report.
logging.getLogger("clickhouse_connect.driver.streaming").setLevel(logging.CRITICAL)


class Client:
    """Queries one ClickHouse server; made by `connect`, shared by every context of its event loop."""

    def __init__(self, raw: AsyncClient, target: ClickHouseTarget) -> None:
        self._raw = raw
        self._plain: AsyncClient | None = None
        self.target = target
        self._others: Sequence[Client] = ()
        self.layout = Layout(self)
        self.settings = SETTINGS

    async def spread(self, cluster: str, others: Sequence[Client]) -> None:
        """Keep Objects on all nodes of a cluster from here on; those are closed with this one."""
        self._others = others
        self.layout = ClusterLayout(self, await in_order_of_shards([self, *others], cluster))
        self.settings = {**SETTINGS, **self.layout.settings}

    async def _for(self, text: str) -> AsyncClient:
        """Who sends this: a text too long for a field of a form goes as the body of its request."""
        if len(text) * 4 < FORM_BYTES or len(text.encode()) < FORM_BYTES:
            return self._raw
        if self._plain is None:
            self._plain = await _raw_client(self.target, form=False)
        return self._plain

    async def read(self, query: Compiled, query_id: str = "") -> Any:
        """Run a compiled query and read its whole result."""
        return await self.read_text(query.text, query.parameters, query.settings, query_id)

    async def read_text(
        self,
        text: str,
        parameters: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        query_id: str = "",
    ) -> Any:
        """Run a query and read its whole result as a pyarrow Table."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **(settings or {}), "query_id": query_id}
        raw = await self._for(text)
        work = raw.query_arrow(text, parameters=_bound(text, parameters), settings=merged, use_strings=True)
        started = time.monotonic()
        try:
            return await self._guarded(work, query_id)
        except BrokenOffError as error:
            raise await self._reason(error, text, parameters, merged, started) from None

    async def batches(self, query: Compiled, query_id: str = "") -> AsyncGenerator[pa.RecordBatch, None]:
        """Run a compiled query and read its result piece by piece; leaving the loop early stops the query."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **query.settings, "query_id": query_id}
        raw = await self._for(query.text)
        work = raw.query_arrow_stream(
            query.text, parameters=_bound(query.text, query.parameters), settings=merged, use_strings=True
        )
        stream = await self._guarded(work, query_id)
        finished, started = False, time.monotonic()
        try:
            async with stream:
                try:
                    async for batch in stream:
                        yield batch
                    finished = True
                finally:
                    if not finished:
                        # Closing an abandoned stream would first read it to its end: end the query instead.
                        await asyncio.shield(self.kill(query_id))
        except (asyncio.CancelledError, GeneratorExit, AaiclickError):
            raise
        except Exception as error:
            if not finished:
                why = translate(error, self.target)
                raise await self._reason(why, query.text, query.parameters, merged, started) from error

    async def run(
        self,
        text: str,
        parameters: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        query_id: str = "",
    ) -> None:
        """Run a statement that gives no rows."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **(settings or {}), "query_id": query_id}
        await self._guarded(
            (await self._for(text)).command(text, parameters=_bound(text, parameters), settings=merged), query_id
        )

    async def insert(self, table: str, columns: list[str], body: bytes, query_id: str = "") -> None:
        """Send rows as an Arrow stream, once.

        A connection may break after ClickHouse has taken the rows and before it has said so. clickhouse-connect would
        send them again, and they would be there twice: it cannot do that with what it is given piece by piece.
        """
        names = ", ".join(quote_name(each) for each in columns)

        async def once() -> AsyncIterator[bytes]:
            yield body

        statement = f"INSERT INTO {quote_name(table)} ({names}) FORMAT ArrowStream"
        await self.send(statement, once(), {}, query_id)

    async def send(
        self, statement: str, body: AsyncIterable[bytes], settings: Mapping[str, Any], query_id: str = ""
    ) -> None:
        """Run an INSERT … FORMAT whose data is a stream of bytes: the statement goes first, the data follows it.

        An exception of the stream is raised as it is; the HTTP client would report it as a broken connection.
        """
        head = statement.encode() + b"\n"
        failures: list[Exception] = []

        async def whole() -> AsyncIterator[bytes]:
            yield head
            try:
                async for piece in body:
                    yield piece
            except Exception as error:
                failures.append(error)
                raise

        query_id = query_id or new_query_id()
        # So many bytes the server reads before it begins: it would gather data up to the limit for long statements.
        merged = {**self.settings, **settings, "query_id": query_id, "max_query_size": len(head) + 1024}
        try:
            await self._guarded(self._raw.raw_insert(None, None, whole(), merged), query_id)
        except AaiclickError as error:
            if failures:
                raise failures[0] from error
            raise

    async def stream_bytes(
        self, query: Compiled, format_name: str, settings: Mapping[str, Any], query_id: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """The result of a query in any ClickHouse format, as it is made."""
        query_id = query_id or new_query_id()
        merged = {**self.settings, **query.settings, **settings, "query_id": query_id}
        finished, tail, started = False, b"", time.monotonic()
        raw = await self._for(query.text)
        work = raw.raw_stream(query.text, _bound(query.text, query.parameters), merged, format_name)
        stream = await self._guarded(work, query_id)
        try:
            async with stream:
                async for chunk in stream:
                    piece = cast("bytes", chunk)
                    tail = (tail + piece)[-TAIL:]
                    if MID_STREAM in tail:
                        raise _failed_late(tail, self.target)
                    yield piece
                finished = True
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            why = translate(error, self.target)
            raise await self._reason(why, query.text, query.parameters, merged, started) from error
        finally:
            if not finished:
                await asyncio.shield(self.kill(query_id))

    async def _reason(
        self,
        error: Exception,
        text: str,
        parameters: Mapping[str, Any] | None,
        settings: dict[str, Any],
        started: float,
    ) -> Exception:
        """Why an answer broke off: the query's own error if it has one, else the broken connection."""
        taken = time.monotonic() - started
        if not isinstance(error, BrokenOffError) or taken > ASK_AGAIN_SECONDS:
            return error
        again = {**settings, "max_execution_time": int(2 * taken) + 5}
        try:
            await self.run(f"{text} FORMAT Null", parameters, again, f"{settings['query_id']}-again")
        except QueryError as reason:
            return error if reason.code == TIMEOUT_EXCEEDED else reason
        except AaiclickError as reason:
            return reason
        return error

    async def kill(self, query_id: str) -> bool:
        """End a query that runs, and wait for its end; whether there was one."""
        with suppress(Exception):
            async with asyncio.timeout(KILL_SECONDS):
                rows = await self._raw.query_arrow(
                    "KILL QUERY WHERE query_id = {id:String} AND user = currentUser() SYNC",
                    parameters={"id": query_id},
                )
                return rows.num_rows > 0
        return False

    async def version(self) -> str:
        """The server's version, asked now. A cancelled call ends at once: this query needs no KILL."""
        try:
            rows = await self._raw.query_arrow("SELECT version() AS version")
        except Exception as error:
            raise translate(error, self.target) from error
        return str(rows.to_pylist()[0]["version"])

    async def _guarded(self, work: Any, query_id: str) -> Any:
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(task, query_id))
            raise
        except Exception as error:
            raise translate(error, self.target) from error

    async def _end(self, task: asyncio.Future[Any], query_id: str) -> None:
        """Kill until the query was seen to end, or has answered.

        A request may be on its way while its query has not begun: giving it up then would leave a query that nobody
        knows.
        """
        ended = False
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                while not (ended := await self.kill(query_id)) and not task.done():
                    await asyncio.wait([task], timeout=KILL_AGAIN_SECONDS)
        if not ended and task.done():
            await self.kill(query_id)  # of a stream the answer has begun, not ended
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
        for node in self._others:
            await node.close()


def _failed_late(tail: bytes, target: ClickHouseTarget) -> AaiclickError:
    """An answer that began well and then failed ends with a mark and the words of the error."""
    words = tail.split(MID_STREAM, 1)[1].decode(errors="replace")
    return translate(OperationalError(words), target)


def new_query_id(prefix: str = "aai") -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


def _bound(text: str, parameters: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {**(parameters or {}), **keys_of(text)} or None


# --- the pool ----------------------------------------------------------------------------------------------------

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClickHouseTarget, Client]] = WeakKeyDictionary()
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_closers: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncIterator[None]]] = WeakKeyDictionary()


def is_connected(target: ClickHouseTarget) -> bool:
    """Whether this event loop has a client for a server: then `connect` waits for nothing."""
    return target in _clients.get(asyncio.get_running_loop(), {})


async def connect(target: ClickHouseTarget) -> Client:
    """The client of this event loop for a server; made once, closed with the loop."""
    loop = asyncio.get_running_loop()
    clients = _clients.setdefault(loop, {})
    if target in clients:
        return clients[target]
    async with _locks.setdefault(loop, asyncio.Lock()):
        if target not in clients:
            clients[target] = await _open(target)
            await _close_with_loop(loop, target, clients[target])
        return clients[target]


async def ping(target: ClickHouseTarget, *, seconds: float) -> str:
    """Ask a server for its version; UnreachableError if it does not answer within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await (await connect(target)).version()
    except TimeoutError:
        raise UnreachableError(
            f"{target} does not answer within {seconds:g} s.",
            remedy="Its process hangs, its machine is overloaded, or the network loses packets. Look at its log.",
        ).at(target.endpoint) from None


async def _close_with_loop(loop: asyncio.AbstractEventLoop, target: ClickHouseTarget, client: Client) -> None:
    """asyncio has no hook for the end of a loop, but it closes the async generators that are still open: be one."""

    async def closer() -> AsyncIterator[None]:
        try:
            yield
        finally:
            _clients.get(loop, {}).pop(target, None)
            await client.close()

    waiting = closer()
    await anext(waiting)
    _closers.setdefault(loop, []).append(waiting)


async def _raw_client(target: ClickHouseTarget, *, form: bool) -> AsyncClient:
    local = target.host in ("127.0.0.1", "localhost", "::1")
    try:
        return await get_async_client(
            host=target.host,
            port=target.port,
            username=target.user,
            password=target.password,
            database=target.database,
            secure=target.secure,
            proxy_path=target.path,
            autogenerate_session_id=False,
            compress=not local,
            query_retries=0,
            send_receive_timeout=86_400,
            form_encode_query_params=form,  # a long list in `isin` does not fit a URL
            settings={"async_insert": 0},
        )
    except Exception as error:
        raise translate(error, target) from error


async def _open(target: ClickHouseTarget) -> Client:
    client = await _open_node(target)
    if target.cluster:
        try:
            await client.spread(target.cluster, [await _open_node(each) for each in target.others])
        except BaseException:
            await client.close()
            raise
    return client


async def _open_node(target: ClickHouseTarget) -> Client:
    raw = await _raw_client(target, form=True)
    major = int(str(raw.server_version).split(".")[0])
    if major < OLDEST_MAJOR:
        await raw.close()
        raise UnsupportedServerError(
            f"{target} runs version {raw.server_version}; aaiclick needs {OLDEST_MAJOR} or newer.",
            remedy="Upgrade ClickHouse, or leave AAICLICK_CLICKHOUSE_URL unset to use the embedded one.",
        )
    return Client(raw, target)
