"""Tables of Objects that are passed to tasks: they must exist while a task may need them.

A table that is registered in PostgreSQL gets one more reference, in the transaction of the submit. A table of a plain
DataContext is not registered, and the context would drop it at its end: the context is asked to share it before the
submit, which registers the table with references of the job and of the context's session.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

from aaiclick.orchestration.argument_serialisation import REFERENCES

_TABLE = re.compile(r"t\d{1,19}")
TABLE_ID_KEY = '"table_id"'
"""Text that occurs in every JSON text with an Object or View."""


class _TableOwner(Protocol):
    """Part of LifecycleHandler that is used here; importing the data layer would slow down every submit."""

    session: int | None

    def owns_table(self, table_name: str) -> bool: ...
    async def share(self, table_names: Sequence[str]) -> None: ...
    def unshare(self, table_names: Sequence[str]) -> None: ...


class _StorableObject(Protocol):
    """Part of Object that is used here."""

    async def store_literal(self) -> None: ...


class SharedTables:
    """Tables among the arguments of the tasks of a submit."""

    def __init__(self, arguments: Iterable[tuple[int, object]]) -> None:
        self.tables: list[tuple[int, str]] = []
        self.adopted: dict[str, int] = {}
        self._shared: list[tuple[_TableOwner, str]] = []
        self._objects: list[_StorableObject] = []
        for task_id, value in arguments:
            for name, handler, obj in _iter_references(value):
                self.tables.append((task_id, name))
                if obj is not None:
                    self._objects.append(obj)
                if handler is not None and name not in self.adopted and handler.session and handler.owns_table(name):
                    self.adopted[name] = handler.session
                    self._shared.append((handler, name))

    async def share_tables(self) -> None:
        """Store literals, and make the contexts of the Objects keep their tables."""
        for obj in self._objects:
            await obj.store_literal()
        tables, self._shared = self._shared, []
        for handler, name in tables:
            await handler.share([name])
            self._shared.append((handler, name))

    def unshare_tables(self) -> None:
        """Return the tables to their contexts, since nothing was submitted."""
        for handler, name in self._shared:
            handler.unshare([name])
        self._shared.clear()


@asynccontextmanager
async def share_argument_tables(arguments: Iterable[tuple[int, object]]) -> AsyncGenerator[SharedTables]:
    """Share tables for a submit, and unshare them if it fails."""
    shared = SharedTables(arguments)
    try:
        await shared.share_tables()
        yield shared
    except BaseException:
        shared.unshare_tables()
        raise


def _current_handler() -> _TableOwner | None:
    """The handler of the current DataContext, which may own a table that is passed as a serialised reference."""
    data = sys.modules.get("aaiclick.data.context")  # not loaded: there are no Objects
    context = None if data is None else data.find_data_context()
    return context.lifecycle if context is not None and context.is_open else None


def _iter_references(value: Any) -> Iterator[tuple[str, _TableOwner | None, _StorableObject | None]]:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        name = fields.get("table_id")
        if fields.get("object_type") in REFERENCES and isinstance(name, str):
            if _TABLE.fullmatch(name):
                yield name, _current_handler(), None
            return
        for item in fields.values():
            yield from _iter_references(item)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            yield from _iter_references(item)
    else:
        to_dict: Callable[[], dict[str, Any]] | None = getattr(value, "to_dict", None)
        if callable(to_dict) and hasattr(value, "table_id") and _TABLE.fullmatch(name := value.table_id):
            yield name, value.context.lifecycle, value
