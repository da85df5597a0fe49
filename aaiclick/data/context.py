"""DataContext: the connection to ClickHouse, and the life of the Objects made inside it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from copy import copy
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet

from aaiclick.data.client import Client, connect, new_query_id
from aaiclick.data.errors import DataError, NoContextError, ObjectNotFoundError, StaleObjectError
from aaiclick.data.lifecycle import LifecycleHandler, LocalLifecycleHandler
from aaiclick.data.relations import Relation, scans
from aaiclick.data.tables import (
    ENGINES,
    Columns,
    Shape,
    Table,
    check_columns,
    is_temporary,
    new_table_name,
    read_definition,
)
from aaiclick.errors import AaiclickError, SettingsError
from aaiclick.local import clickhouse_target
from aaiclick.targets import ClickHouseTarget

T = TypeVar("T")
_current: ContextVar[DataContext | None] = ContextVar("aaiclick_data_context", default=None)
_unavailable: ContextVar[AaiclickError | None] = ContextVar("aaiclick_data_unavailable", default=None)
_numbers = itertools.count(1)

DEFINITIONS = 1_000
_definitions: dict[tuple[ClickHouseTarget, str], tuple[Columns, Shape]] = {}
"""What temporary tables look like: the tasks of one process read the same ones again and again."""

_DEFINITION = (
    "SELECT name, type,"
    " (SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = {t:String}) AS note"
    " FROM system.columns WHERE database = currentDatabase() AND table = {t:String} ORDER BY position"
)


class DataContext:
    """Everything done with Objects happens inside one: `async with DataContext() as data:`.

    `creds` says which ClickHouse (by default the one of the settings, or the embedded one), `engine` the table engine,
    `lifecycle` who counts references; without one the context owns a `LocalLifecycleHandler`, which drops every table
    nothing refers to any more, and all of them at the end. Contexts nest and run concurrently. `query_prefix` begins
    the id of
    every query, so that all queries of one piece of work can be found and killed.
    """

    def __init__(
        self,
        creds: ClickHouseTarget | None = None,
        engine: str | None = None,
        lifecycle: LifecycleHandler | None = None,
        *,
        name: str = "",
        query_prefix: str = "aai",
    ) -> None:
        if engine is not None and engine not in ENGINES:
            raise SettingsError(
                f"Objects cannot live in the engine {engine!r}.", remedy=f"Use one of {', '.join(ENGINES)}."
            )
        self.name = name or f"DataContext #{next(_numbers)}"
        self.engine = engine or "MergeTree"
        self.query_prefix = query_prefix
        self._creds = creds
        self._injected = lifecycle
        self._lifecycle: LifecycleHandler | None = None
        self._client: Client | None = None
        self._tables: WeakSet[Table] | None = None  # made with the first table: most tasks have none
        self._token: Token[DataContext | None] | None = None
        self._closed = False
        self.fences: dict[tuple[str, str], list[int]] = {}
        self.append_locks: dict[str, asyncio.Lock] = {}

    # --- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._client is not None or self._closed:
            raise DataError(f"{self.name} was entered twice.", remedy="Make a new DataContext each time.")
        self._creds = self._creds or await clickhouse_target()
        client = await connect(self._creds)
        if self._injected is None:
            self._lifecycle = LocalLifecycleHandler(self._creds)
            await self._lifecycle.start()
        else:
            self._lifecycle = self._injected
        self._client = client
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._token is not None:
            _current.reset(self._token)
            self._token = None
        for table in list(self._tables or ()):
            table.release()
        if self._injected is None and self._lifecycle is not None:
            await self._lifecycle.stop()
        self._client = None

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self._closed

    @property
    def target(self) -> ClickHouseTarget:
        if self._creds is None:
            raise NoContextError(f"{self.name} is not open yet.", remedy="Use it as `async with DataContext():`.")
        return self._creds

    @property
    def client(self) -> Client:
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
        """Create a table and fill it; if that fails or is cancelled, nothing of it stays."""
        name = new_table_name()
        check_columns(columns)
        client, session = self.client, self.lifecycle.session
        await self.lifecycle.reserve(name)
        try:
            await client.layout.create(name, columns, shape, self.engine, session, self.query_id())
            filled = await fill(name)
        except BaseException:
            await asyncio.shield(self._discard(client, name))
            raise
        if not counted:
            # The handler would drop the table at zero: from here on its name, not a reference, keeps it.
            return Table(name, columns, shape, self, counted=False), filled
        return self._add(Table(name, columns, shape, self, counted=True)), filled

    async def _discard(self, client: Client, name: str) -> None:
        try:
            await client.layout.drop(name, self.query_id())
        finally:
            self.lifecycle.decref(name)

    async def open_table(self, name: str) -> Table:
        """A reference to a table that exists already, made here or elsewhere."""
        known = next((each for each in self._tables or () if each.name == name), None)
        if known is not None and known.counted:
            return known
        columns, shape = await self.describe_table(name)
        counted = is_temporary(name)
        if counted:
            await self.lifecycle.hold(name)
        return self._add(Table(name, columns, shape, self, counted=counted))

    def _add(self, table: Table) -> Table:
        if self._tables is None:
            self._tables = WeakSet()
        self._tables.add(table)
        return table

    async def describe_table(self, name: str) -> tuple[Columns, Shape]:
        """Columns and shape of an Object's table. Those of a temporary one never change: this process asks once."""
        known = _definitions.get((self.target, name))
        if known is not None:
            return known
        found = await self.client.read_text(_DEFINITION, {"t": name}, query_id=self.query_id())
        rows: list[dict[str, str]] = found.to_pylist()
        if not rows or not any(row["name"] == "aai_id" for row in rows):
            raise ObjectNotFoundError(
                f"There is no Object {name!r} in {self.target}.", remedy="It was dropped, or lives on another server."
            )
        definition = read_definition(rows[0]["note"] or "", ((row["name"], row["type"]) for row in rows))
        if is_temporary(name) and definition[0]:
            while len(_definitions) >= DEFINITIONS:
                del _definitions[next(iter(_definitions))]
            _definitions[self.target, name] = definition
        return definition

    # --- queries -------------------------------------------------------------------------------------------------

    def query_id(self) -> str:
        return new_query_id(self.query_prefix)

    def check(self, relation: Relation) -> None:
        """Refuse Objects whose context is closed, and Objects of another server."""
        for scan in scans(relation):
            context = scan.table.context
            if not context.is_open:
                raise StaleObjectError(
                    f"This Object came from {context.name}, which is closed; its table {scan.table.name} is gone.",
                    remedy="Use it inside that context, or give the Object a name= to keep it.",
                )
            if context.target != self.target:
                raise DataError(
                    f"This Object lives in {context.target}, not in {self.target}.",
                    remedy="Read it there and create it here.",
                )


def find_data_context() -> DataContext | None:
    """The context that this code runs in, if there is one."""
    return _current.get()


def get_data_context() -> DataContext:
    """The DataContext this code runs in."""
    context = _current.get()
    if context is None or not context.is_open:
        if (reason := _unavailable.get()) is not None:
            raise copy(reason)  # a traceback of its own
        raise NoContextError("No DataContext is open here.", remedy="Do the work inside `async with DataContext():`.")
    return context


def set_unavailable(reason: AaiclickError | None) -> None:
    """Why there is no DataContext here; `get_data_context` raises it."""
    _unavailable.set(reason)


def current_or(context: DataContext | None) -> DataContext:
    """The context this code runs in, or else the one an Object came from."""
    running = _current.get()
    if running is not None and running.is_open:
        return running
    if context is not None and context.is_open:
        return context
    if context is not None:
        raise StaleObjectError(
            f"This Object came from {context.name}, which is closed.", remedy="Use it inside that context."
        )
    return get_data_context()
