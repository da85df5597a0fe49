"""Synchronous version of `aaiclick.data` for notebooks and scripts, run by an event loop in a background thread.

    from aaiclick.data import sync

    with sync.DataContext():
        prices = sync.create_object_from_value({"item": ["pen", "ink"], "price": [2, 7]})
        print(prices.filter(sync.col("price") > 3).data())

Objects are wrapped: a call of a method blocks until the asynchronous method has finished. Code that runs in an event
loop uses `aaiclick.data` instead.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import Context, copy_context
from inspect import isasyncgen, ismethod
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import pyarrow as pa

from aaiclick import data as _async
from aaiclick.data import (
    all_columns,
    array,
    case,
    coalesce,
    col,
    duration,
    exclude,
    if_else,
    length,
    lit,
    of_type,
    row_index,
    row_number,
)
from aaiclick.data.errors import DataTypeError
from aaiclick.data.grouping import GroupBy
from aaiclick.data.io.from_arrow import column_values
from aaiclick.data.object import Object as _Object
from aaiclick.data.progress import show_progress, shows_progress
from aaiclick.errors import AaiclickError

T = TypeVar("T")
CANCEL_TIMEOUT_SECONDS = 20
MAX_PLOTTED_ROWS = 100_000
_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "radd", "rsub",
    "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rand", "ror", "rxor", "rlshift", "rrshift",
    "eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert", "abs", "round", "getitem",
)  # fmt: skip


class _LoopThread:
    """Event loop in a background thread. Coroutines run in the contextvars of the caller's innermost open context."""

    def __init__(self) -> None:
        self._thread_state = threading.local()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def contexts(self) -> list[Context]:
        return self._thread_state.__dict__.setdefault("contexts", [])

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine and wait for it; Ctrl-C cancels it and its query on the server."""
        loop, finished = self._ensure_started(), threading.Event()
        context = self.contexts[-1] if self.contexts else None

        async def run_in_context() -> T:
            shown = loop.create_task(_show_progress(), context=context) if context and shows_progress() else None
            try:
                return await loop.create_task(coroutine, context=context)
            finally:
                if shown is not None:
                    shown.cancel()
                finished.set()

        future = asyncio.run_coroutine_threadsafe(run_in_context(), loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            finished.wait(CANCEL_TIMEOUT_SECONDS)
            raise

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="aaiclick-sync", daemon=True).start()
            return self._loop


async def _show_progress() -> None:
    await show_progress(_async.get_data_context())


_loop = _LoopThread()


class Wrapped:
    """Blocking wrapper of an Object, View or GroupBy; `.inner` is the wrapped one."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return _wrap_result(getattr(self.inner, name))

    def __dir__(self) -> list[str]:
        return sorted({*dir(self.inner), *super().__dir__()})

    def __repr__(self) -> str:
        return repr(self.inner)


class WrappedObject(Wrapped):
    """Blocking wrapper of an Object or View, with the protocols of notebooks and data frames.

    `len(obj)`, `float(obj)`, iteration, display and `polars.DataFrame(obj)` each run a query.
    """

    inner: _Object

    def __len__(self) -> int:
        return _loop.run(self.inner.count())

    def __bool__(self) -> bool:
        return bool(self.inner)

    def __float__(self) -> float:
        return float(self._read_scalar())

    def __int__(self) -> int:
        return int(self._read_scalar())

    def _read_scalar(self) -> Any:
        if self.inner.shape != "scalar":
            raise TypeError(f"Only a single value is a number, such as obj.sum(); this is a {self.inner.shape}.")
        return _loop.run(self.inner.data())

    def __iter__(self) -> Iterator[Any]:
        """Yield rows as dicts, or the values of a column, in batches as they arrive."""
        columns = list(self.inner.schema.items())
        for batch in _iterate_sync(self.inner.iter_batches()):
            values = [column_values(pa.chunked_array([batch.column(i)]), dtype) for i, (_, dtype) in enumerate(columns)]
            if self.inner.shape in ("column", "scalar"):
                yield from values[0]
            else:
                yield from (dict(zip(self.inner.columns, row, strict=True)) for row in zip(*values, strict=True))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows through Arrow's C interface, by which polars, pandas, pyarrow and DuckDB read them."""
        return cast("Any", _loop.run(self.inner.to_arrow())).__arrow_c_stream__(requested_schema)

    @property
    def plot(self) -> Any:
        """Plot methods of pandas over the rows: `obj.plot(x="day", y="price")`, `obj.plot.bar(…)`; reads all rows."""
        rows = len(self)
        if rows > MAX_PLOTTED_ROWS:
            raise DataTypeError(
                f"{rows:,} rows are too many for a plot; the limit is {MAX_PLOTTED_ROWS:,}.",
                remedy="Aggregate them, or take a sample(…).",
            )
        return cast("Any", _loop.run(self.inner.to_pandas())).plot

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.inner.columns)

    def _repr_html_(self) -> str:
        """Return the first rows as HTML; only the columns if the rows cannot be read."""
        try:
            return _loop.run(self.inner.html())
        except AaiclickError:
            return self.inner._repr_html_()  # pyright: ignore[reportPrivateUsage]


def _make_operator(name: str) -> Callable[..., Any]:
    def apply(self: Wrapped, *args: object) -> Any:
        return _wrap_result(getattr(self.inner, name)(*(_unwrap_value(arg) for arg in args)))

    return apply


for _name in _OPERATORS:
    setattr(Wrapped, f"__{_name}__", _make_operator(f"__{_name}__"))


def _unwrap_value(value: object) -> Any:
    if isinstance(value, Wrapped):
        return value.inner
    return [_unwrap_value(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _wrap_result(value: object) -> Any:
    if isinstance(value, Coroutine):
        return _wrap_result(_loop.run(cast("Coroutine[object, object, object]", value)))
    if isasyncgen(value):
        return _iterate_sync(value)
    if isinstance(value, _Object):
        return WrappedObject(value)
    if isinstance(value, GroupBy) or type(value).__module__ == "aaiclick.data.expressions.method_namespaces":
        return Wrapped(value)
    if isinstance(value, list):
        return [_wrap_result(item) if isinstance(item, _Object) else item for item in cast("list[Any]", value)]
    return _make_sync(value) if ismethod(value) else value


def run(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine and return its value, such as a job and its result.

    handle = sync.run(nightly("2026-11-16"))
    print(sync.run(handle.result()))
    """
    return _loop.run(coroutine)


def _make_sync(function: Callable[..., object]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: object, **named: object) -> Any:
        return _wrap_result(
            function(*map(_unwrap_value, args), **{name: _unwrap_value(value) for name, value in named.items()})
        )

    return call


def _iterate_sync(stream: AsyncIterator[T]) -> Iterator[T]:
    end = object()

    async def next_item() -> Any:
        return await anext(stream, end)

    try:
        while (value := _loop.run(next_item())) is not end:
            yield value
    finally:
        _loop.run(cast("Any", stream).aclose())


class SyncDataContext:
    """Synchronous DataContext: `with DataContext():`, or `open()` and `close()` in different cells of a notebook."""

    def __init__(self, *args: Any, **named: Any) -> None:
        named.setdefault("query_prefix", f"aai-sync-{uuid.uuid4().hex[:12]}")
        self.inner = _async.DataContext(*args, **named)

    def open(self) -> Self:
        _loop.contexts.append(copy_context())
        try:
            _loop.run(self.inner.__aenter__())
        except BaseException:
            _loop.contexts.pop()
            raise
        return self

    def close(self) -> None:
        try:
            _loop.run(self.inner.__aexit__(None, None, None))
        finally:
            _loop.contexts.pop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


DataContext = SyncDataContext
create_object_from_file = _make_sync(_async.create_object_from_file)
create_object_from_query = _make_sync(_async.create_object_from_query)
create_object_from_value = _make_sync(_async.create_object_from_value)
delete_object = _make_sync(_async.delete_object)
insert = _make_sync(_async.insert)
list_objects = _make_sync(_async.list_objects)
open_object = _make_sync(_async.open_object)
open_reference = _make_sync(_async.open_reference)
preview_file = _make_sync(_async.preview_file)

__all__ = [
    "DataContext", "Wrapped", "WrappedObject", "all_columns", "array", "case", "coalesce", "col",
    "create_object_from_file", "create_object_from_query", "create_object_from_value", "delete_object", "duration",
    "exclude", "if_else", "insert", "length", "list_objects", "lit", "of_type", "open_object", "open_reference",
    "preview_file", "row_index", "row_number", "run",
]  # fmt: skip
