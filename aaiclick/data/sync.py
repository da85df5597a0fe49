"""The same without `await`, for notebooks and scripts: an event loop in a background thread does the waiting.

    from aaiclick.data import sync

    with sync.DataContext():
        prices = sync.create_object_from_value({"item": ["pen", "ink"], "price": [2, 7]})
        print(prices.filter(sync.col("price") > 3).data())

Nothing is written twice: whatever is awaited there is waited for here, and Objects come wrapped so that their methods
are too. Code that runs in an event loop of its own uses `aaiclick.data`.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import Context, copy_context
from inspect import isasyncgen, iscoroutine, ismethod
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from aaiclick import data as _async
from aaiclick.data import array, case, coalesce, col, if_else, length, lit, row_index, row_number
from aaiclick.data.grouping import GroupBy
from aaiclick.data.object import Object as _Object

T = TypeVar("T")
SECONDS_TO_END = 20
_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "radd", "rsub",
    "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rand", "ror", "rxor", "rlshift", "rrshift",
    "eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert", "abs", "round", "getitem",
)  # fmt: skip


class _Loop:
    """An event loop in a thread. The work of a thread runs in the context variables of its innermost open context."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def contexts(self) -> list[Context]:
        return self._here.__dict__.setdefault("contexts", [])

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine; Ctrl-C cancels it, which ends its query on the server too."""
        loop, ended = self._started(), threading.Event()
        context = self.contexts[-1] if self.contexts else None

        async def begin() -> T:
            try:
                return await loop.create_task(work, context=context)
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(begin(), loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended.wait(SECONDS_TO_END)
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="aaiclick-sync", daemon=True).start()
            return self._loop


_loop = _Loop()


class Wrapped:
    """An Object, View or grouping whose methods wait. `.inner` is what it wraps."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return _wrap(getattr(self.inner, name))

    def __repr__(self) -> str:
        return repr(self.inner)


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: Wrapped, *args: Any) -> Any:
        return _wrap(getattr(self.inner, name)(*(_bare(arg) for arg in args)))

    return apply


for _name in _OPERATORS:
    setattr(Wrapped, f"__{_name}__", _operator(f"__{_name}__"))


def _bare(value: Any) -> Any:
    if isinstance(value, Wrapped):
        return value.inner
    return [_bare(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _wrap(value: Any) -> Any:
    if iscoroutine(value):
        return _wrap(_loop.run(value))
    if isasyncgen(value):
        return _iterate(value)
    if isinstance(value, _Object | GroupBy) or type(value).__module__ == "aaiclick.data.namespaces":
        return Wrapped(value)
    if isinstance(value, list):
        return [_wrap(each) if isinstance(each, _Object) else each for each in cast("list[Any]", value)]
    return _waiting(value) if ismethod(value) else value


def _waiting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return _wrap(function(*map(_bare, args), **{name: _bare(each) for name, each in named.items()}))

    return call


def _iterate(stream: AsyncIterator[T]) -> Iterator[T]:
    end = object()

    async def following() -> Any:
        return await anext(stream, end)

    try:
        while (value := _loop.run(following())) is not end:
            yield value
    finally:
        _loop.run(cast("Any", stream).aclose())


class DataContext:
    """`with DataContext():`, or `open()` and `close()` in different cells of a notebook. Made like the async one."""

    def __init__(self, *args: Any, **named: Any) -> None:
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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


create_object_from_file = _waiting(_async.create_object_from_file)
create_object_from_query = _waiting(_async.create_object_from_query)
create_object_from_value = _waiting(_async.create_object_from_value)
delete_object = _waiting(_async.delete_object)
insert = _waiting(_async.insert)
list_objects = _waiting(_async.list_objects)
open_object = _waiting(_async.open_object)
open_reference = _waiting(_async.open_reference)

__all__ = [
    "DataContext", "Wrapped", "array", "case", "coalesce", "col", "create_object_from_file", "create_object_from_query",
    "create_object_from_value", "delete_object", "if_else", "insert", "length", "list_objects", "lit", "open_object",
    "open_reference", "row_index", "row_number",
]  # fmt: skip
