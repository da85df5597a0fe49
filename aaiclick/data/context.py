"""DataContext: a ClickHouse connection that owns the Objects created in it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from copy import copy
from types import TracebackType
from typing import Protocol, Self, TypeVar
from weakref import WeakSet

from aaiclick.data.compile.relation_nodes import Relation, iter_scans
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.errors import (
    DataError,
    NoContextError,
    ObjectNotFoundError,
    ProtectedError,
    QueryError,
    StaleObjectError,
)
from aaiclick.data.io.literal_result_codec import EncodedLiteral
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient, connect, new_query_id
from aaiclick.data.runtime.lifecycle import LifecycleHandler, LocalLifecycleHandler
from aaiclick.data.runtime.literal_result_rows import LiteralRows, encode_numbered_rows
from aaiclick.data.runtime.tables import (
    ENGINES,
    Columns,
    Shape,
    Table,
    check_columns,
    is_temporary,
    new_table_name,
    read_definition,
)
from aaiclick.data.types import quote_name
from aaiclick.errors import AaiclickError, SettingsError
from aaiclick.literal_result_registry import LiteralStore, find_literal_store
from aaiclick.local import clickhouse_endpoint
from aaiclick.server_addresses import ClickHouseEndpoint

T = TypeVar("T")
_current: ContextVar[DataContext | ContextProvider | None] = ContextVar("aaiclick_data_context", default=None)
_unavailable_reason: ContextVar[AaiclickError | None] = ContextVar("aaiclick_data_unavailable", default=None)
_context_numbers = itertools.count(1)

TABLE_ALREADY_EXISTS = 57
"""Error code of ClickHouse."""
MAX_CACHED_DEFINITIONS = 1_000
_definition_cache: dict[tuple[ClickHouseEndpoint, str], tuple[Columns, Shape]] = {}
"""Cache of temporary tables' definitions, which never change; tasks of one process often read the same tables."""

_DESCRIBE_TABLE = (
    "SELECT name, type,"
    " (SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = {t:String}) AS note"
    " FROM system.columns WHERE database = currentDatabase() AND table = {t:String} ORDER BY position"
)


class DataContext:
    """Connection to ClickHouse for all work with Objects: `async with DataContext() as data:`.

    `creds` is the server (default: the settings, or the embedded server), `engine` the table engine, `lifecycle` the
    reference counter. Without `lifecycle` the context owns a `LocalLifecycleHandler`, which drops tables that are no
    longer referenced, and all its tables on exit. Contexts may be nested and used concurrently. `query_prefix` starts
    every query id, so that all queries of a task can be found and killed. Objects of at most `max_literal_bytes` are
    literals: they become tables only when something needs one.

    ```python
    async with DataContext():
        print(await (await create_object_from_value([1, 2])).data())
    ```
    """

    def __init__(
        self,
        creds: ClickHouseEndpoint | None = None,
        engine: str | None = None,
        lifecycle: LifecycleHandler | None = None,
        *,
        name: str = "",
        query_prefix: str = "aai",
        max_literal_bytes: int = -1,
        protects_stored: bool = False,
    ) -> None:
        if engine is not None and engine not in ENGINES:
            raise SettingsError(f"Unsupported table engine {engine!r}.", remedy=f"Use one of {', '.join(ENGINES)}.")
        self.name = name or f"DataContext #{next(_context_numbers)}"
        self.engine = engine or "MergeTree"
        self.query_prefix = query_prefix
        self.max_literal_bytes = max_literal_bytes
        self.protects_stored = protects_stored
        """Whether only tables of this context may be changed: no named Objects, and no inputs of a repeated task."""
        self._created: set[str] = set()
        self._creds = creds
        self._given_lifecycle = lifecycle
        self._lifecycle: LifecycleHandler | None = None
        self._client: ClickHouseClient | None = None
        self._tables: WeakSet[Table] | None = None  # created with the first table: most tasks have none
        self._token: Token[DataContext | ContextProvider | None] | None = None
        self._closed = False
        self.chunk_index: dict[tuple[str, str], list[int]] = {}
        self.append_locks: dict[str, asyncio.Lock] = {}
        self._literal_locks: dict[str, asyncio.Lock] = {}

    # --- enter and exit ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._client is not None or self._closed:
            raise DataError(f"{self.name} cannot be entered twice.", remedy="Make a new DataContext each time.")
        self._creds = self._creds or await clickhouse_endpoint()
        client = await connect(self._creds)
        lifecycle = self._given_lifecycle
        if lifecycle is None:
            lifecycle = LocalLifecycleHandler(self._creds)
            await lifecycle.start()
        return self.enter_connected(client, lifecycle)

    def enter_connected(self, client: ClickHouseClient, lifecycle: LifecycleHandler) -> Self:
        """Enter with an open client and a running handler of references."""
        self._token = _current.set(self.open_connected(client, lifecycle))
        return self

    def open_connected(self, client: ClickHouseClient, lifecycle: LifecycleHandler) -> Self:
        """Open without becoming the current context: a `ContextProvider` returns it."""
        self._client, self._lifecycle = client, lifecycle
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._token is not None:
            _current.reset(self._token)
            self._token = None
        for table in list(self._tables or ()):
            table.release()
        if self._given_lifecycle is None and self._lifecycle is not None:
            await self._lifecycle.stop()
        self._client = None

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self._closed

    @property
    def endpoint(self) -> ClickHouseEndpoint:
        if self._creds is None:
            raise NoContextError(f"{self.name} is not open yet.", remedy="Use it as `async with DataContext():`.")
        return self._creds

    @property
    def client(self) -> ClickHouseClient:
        if self._client is None or self._closed:
            raise StaleObjectError(f"{self.name} is closed.", remedy="Do the work inside `async with DataContext():`.")
        return self._client

    @property
    def lifecycle(self) -> LifecycleHandler:
        if self._lifecycle is None:
            raise NoContextError(f"{self.name} is not open yet.", remedy="Use it as `async with DataContext():`.")
        return self._lifecycle

    # --- tables --------------------------------------------------------------------------------------------------

    async def create_table(
        self, columns: Columns, shape: Shape, fill: Callable[[str], Awaitable[T]], counted: bool = True
    ) -> tuple[Table, T]:
        """Create a table and fill it; drop it again if that fails or is cancelled."""
        name = new_table_name()
        if self.protects_stored:
            self._created.add(name)
        check_columns(columns)
        client = self.client
        await self.lifecycle.reserve(name)
        filled = await self._fill_new_table(client, name, columns, shape, fill)
        if not counted:
            # Named tables are not reference-counted: the handler would drop them at zero.
            return Table(name, columns, shape, self, counted=False), filled
        return self._track_table(Table(name, columns, shape, self, counted=True)), filled

    def check_writable(self, description: str, table: str | None = None) -> None:
        """Raise ProtectedError unless a table may be changed; named Objects have no `table`."""
        if self.protects_stored and table not in self._created:
            raise ProtectedError(
                f"A repeated task changes nothing, so it cannot change {description}.",
                remedy="Set a breakpoint before this line, or comment it out.",
            )

    async def _fill_new_table(
        self, client: ClickHouseClient, name: str, columns: Columns, shape: Shape, fill: Callable[[str], Awaitable[T]]
    ) -> T:
        try:
            session = self.lifecycle.session
            await client.layout.create_table(name, columns, shape, self.engine, session, self.query_id())
            return await fill(name)
        except BaseException:
            await asyncio.shield(self._drop_table(client, name))
            raise

    def open_literal(self, literal: EncodedLiteral) -> Table:
        """Open a literal that is stored with the task that returned it."""
        rows = literal.rows()
        content = LiteralRows(rows.table, rows.columns, is_result=True)
        return self.add_literal(rows.columns, rows.shape, content, literal.table_id)

    def add_literal(self, columns: Columns, shape: Shape, literal: LiteralRows, table_name: str | None = None) -> Table:
        """Add a literal under the name that its table would have."""
        return self._track_table(
            Table(table_name or new_table_name(), columns, shape, self, counted=False, literal=literal)
        )

    async def store_literal(self, table: Table) -> None:
        """Create the table of a literal, once for all its users; no-op for a table."""
        async with self._literal_locks.setdefault(table.name, asyncio.Lock()):
            if table.literal is None:
                return
            store = find_literal_store()
            if table.literal.is_result and store is not None:
                if await store.reserve_literal(table.name):
                    await self._store_result(store, table, table.literal)
                await self.lifecycle.hold(table.name)
            else:
                await self.lifecycle.reserve(table.name)
                await self._fill_literal_table(table, table.literal)
            table.literal, table.counted = None, True

    async def _store_result(self, store: LiteralStore, table: Table, literal: LiteralRows) -> None:
        try:
            await self._fill_literal_table(table, literal)
            await store.replace_literal(table.name)
        except BaseException:
            await asyncio.shield(store.abandon_literal(table.name))
            raise

    async def _fill_literal_table(self, table: Table, literal: LiteralRows) -> None:
        """Create the table under a temporary name and rename it.

        Another caller may do the same after this one has lost its lease: a statement of this one that arrives late must
        neither drop nor change the table. If the table exists, it is complete.
        """
        client, names = self.client, [KEY, *(name for name, _ in table.columns)]

        async def fill(name: str) -> None:
            body = encode_numbered_rows(literal.rows, 0)
            await client.insert_arrow(name, names, body, query_id=self.query_id())
            try:
                await client.run(
                    f"RENAME TABLE {quote_name(name)} TO {quote_name(table.name)}", query_id=self.query_id()
                )
            except QueryError as error:
                if error.code != TABLE_ALREADY_EXISTS:
                    raise
                await client.layout.drop_table(name, self.query_id())

        new_table, _ = await self.create_table(table.columns, table.shape, fill)
        new_table.release()

    async def _drop_table(self, client: ClickHouseClient, name: str) -> None:
        try:
            await client.layout.drop_table(name, self.query_id())
        finally:
            self.lifecycle.decref(name)

    async def open_table(self, name: str) -> Table:
        """Open an existing table and count a reference to it."""
        table = next((open_table for open_table in self._tables or () if open_table.name == name), None)
        if table is not None and (table.counted or table.literal is not None):
            return table
        try:
            columns, shape = await self.describe_table(name)
        except ObjectNotFoundError as error:
            text = await self._find_literal(name, error)
            if text is not None:
                return self.open_literal(EncodedLiteral(name, text))
            columns, shape = await self.describe_table(name)  # it may have become a table between the two lookups
        counted = is_temporary(name)
        if counted:
            await self.lifecycle.hold(name)
        return self._track_table(Table(name, columns, shape, self, counted=counted))

    async def _find_literal(self, name: str, not_found: ObjectNotFoundError) -> str | None:
        """Encoded value of the small result with this table id; None if there is none."""
        store = find_literal_store()
        try:
            return None if store is None else (await store.load_literals([name])).get(name)
        except AaiclickError as error:
            raise ObjectNotFoundError(
                f"{not_found.what} It may be a small result, but these are not accessible: {error.what}",
                remedy=error.remedy,
            ) from error

    def _track_table(self, table: Table) -> Table:
        if self._tables is None:
            self._tables = WeakSet()
        self._tables.add(table)
        return table

    async def describe_table(self, name: str) -> tuple[Columns, Shape]:
        """Return the columns and shape of an Object's table; definitions of temporary tables are cached."""
        cached = _definition_cache.get((self.endpoint, name))
        if cached is not None:
            return cached
        result = await self.client.read_text(_DESCRIBE_TABLE, {"t": name}, query_id=self.query_id())
        rows: list[dict[str, str]] = result.to_pylist()
        if not rows or not any(row["name"] == "aai_id" for row in rows):
            raise ObjectNotFoundError(
                f"There is no Object {name!r} in {self.endpoint}.", remedy="It was dropped, or is on another server."
            )
        definition = read_definition(rows[0]["note"] or "", ((row["name"], row["type"]) for row in rows))
        if is_temporary(name) and definition[0]:
            while len(_definition_cache) >= MAX_CACHED_DEFINITIONS:
                del _definition_cache[next(iter(_definition_cache))]
            _definition_cache[self.endpoint, name] = definition
        return definition

    # --- queries -------------------------------------------------------------------------------------------------

    def query_id(self) -> str:
        return new_query_id(self.query_prefix)

    def check_relation(self, relation: Relation) -> None:
        """Raise if the relation reads Objects of a closed context or of another server."""
        for scan in iter_scans(relation):
            context = scan.table.context
            if not context.is_open:
                raise StaleObjectError(
                    f"This Object belongs to {context.name}, which is closed; its table {scan.table.name} was dropped.",
                    remedy="Use it inside that context, or create the Object with name= to keep it.",
                )
            if context.endpoint != self.endpoint:
                raise DataError(
                    f"This Object is stored in {context.endpoint}, not in {self.endpoint}.",
                    remedy="Read it there and create it here.",
                )


class ContextProvider(Protocol):
    """Opens the DataContext of an attempt at its first use: most tasks use none."""

    def find_context(self) -> DataContext | None: ...


def provide_context(provider: ContextProvider) -> None:
    """Make the context of the provider the current one."""
    _current.set(provider)


def find_data_context() -> DataContext | None:
    """Return the current DataContext, or None."""
    current = _current.get()
    return current if current is None or isinstance(current, DataContext) else current.find_context()


def get_data_context() -> DataContext:
    """Return the current DataContext; raise NoContextError if none is open.

    ```python
    async with DataContext() as context:
        assert get_data_context() is context
    ```
    """
    context = find_data_context()
    if context is None or not context.is_open:
        if (reason := _unavailable_reason.get()) is not None:
            raise copy(reason)  # each raise gets its own traceback
        raise NoContextError("No DataContext is open here.", remedy="Do the work inside `async with DataContext():`.")
    return context


def set_unavailable(reason: AaiclickError | None) -> None:
    """Set the error that `get_data_context` raises when no context is open."""
    _unavailable_reason.set(reason)


def current_context_or(context: DataContext | None) -> DataContext:
    """Return the current context, or else the context of an Object."""
    running = find_data_context()
    if running is not None and running.is_open:
        return running
    if context is not None and context.is_open:
        return context
    if context is not None:
        raise StaleObjectError(
            f"This Object belongs to {context.name}, which is closed.", remedy="Use it inside that context."
        )
    return get_data_context()
