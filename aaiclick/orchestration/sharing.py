"""Objects given to tasks: while a task may need a table, nobody drops it, neither we nor the context it comes from.

A table that PostgreSQL knows gets one more reference, in the transaction of the submit. One that was made in a plain
DataContext is known to that context alone, which would drop it at its end: it is told to share the table before the
submit, and the submit makes the table known, held by the job and by the context's session.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

from aaiclick.orchestration.arguments import REFERENCES

_TABLE = re.compile(r"t\d{1,19}")
MARK = '"table_id"'
"""What JSON text with an Object or View in it contains."""


class _Handler(Protocol):
    """What we need of a LifecycleHandler; importing the data layer would make every submit pay for it."""

    session: int | None

    def made(self, table_name: str) -> bool: ...
    async def share(self, table_names: Sequence[str]) -> None: ...
    def unshare(self, table_names: Sequence[str]) -> None: ...


class Sharing:
    """The tables that a submit gives to tasks."""

    def __init__(self, arguments: Iterable[tuple[int, Any]]) -> None:
        self.tables: list[tuple[int, str]] = []
        self.adopted: dict[str, int] = {}
        self._lent: list[tuple[_Handler, str]] = []
        for task_id, value in arguments:
            for name, handler in _references(value):
                self.tables.append((task_id, name))
                if handler is not None and name not in self.adopted and handler.session and handler.made(name):
                    self.adopted[name] = handler.session
                    self._lent.append((handler, name))

    async def begin(self) -> None:
        """Have the contexts of these Objects leave them alone."""
        lent, self._lent = self._lent, []
        for handler, name in lent:
            await handler.share([name])
            self._lent.append((handler, name))

    def undo(self) -> None:
        """Nothing was submitted: the contexts have their Objects for themselves."""
        for handler, name in self._lent:
            handler.unshare([name])
        self._lent.clear()


@asynccontextmanager
async def sharing(arguments: Iterable[tuple[int, Any]]) -> AsyncGenerator[Sharing]:
    """For the time of a submit; if it fails, everything is as before."""
    made = Sharing(arguments)
    try:
        await made.begin()
        yield made
    except BaseException:
        made.undo()
        raise


def _current_handler() -> _Handler | None:
    """The handler of the current DataContext, which may own a table that is given by its serialised form."""
    data = sys.modules.get("aaiclick.data.context")  # not loaded: nothing was made here
    context = None if data is None else data.find_data_context()
    return context.lifecycle if context is not None and context.is_open else None


def _references(value: Any) -> Iterator[tuple[str, _Handler | None]]:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        name = fields.get("table_id")
        if fields.get("object_type") in REFERENCES and isinstance(name, str):
            if _TABLE.fullmatch(name):
                yield name, _current_handler()
            return
        for item in fields.values():
            yield from _references(item)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            yield from _references(item)
    else:
        to_dict: Callable[[], dict[str, Any]] | None = getattr(value, "to_dict", None)
        if callable(to_dict) and hasattr(value, "table_id") and _TABLE.fullmatch(name := value.table_id):
            yield name, value.context.lifecycle
