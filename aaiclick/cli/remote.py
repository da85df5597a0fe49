"""The same commands against a server: AAICLICK_SERVER and AAICLICK_API_KEY instead of databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from aaiclick.cli.database import with_database
from aaiclick.settings import get_settings

if TYPE_CHECKING:
    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

T = TypeVar("T")

TIMES = ("first", "last", "last_heartbeat")
Row = dict[str, Any]


def reach(local: Callable[[Connection], Awaitable[T]], remote: Callable[[Client], T]) -> T:
    """Ask the server if one is named, else the database."""
    if get_settings().server is None:
        return with_database(local)
    from aaiclick.client import Client

    with Client() as client:
        return remote(client)


def rows(items: Iterable[Row], limit: int | None = None) -> list[Row]:
    """What the API lists, as the database has it: times are times and ids are numbers."""
    return [row(item) for item in islice(items, limit)]


def row(item: Row) -> Row:
    return {name: _value(name, value) for name, value in item.items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str) and (name.endswith("_at") or name in TIMES):
        return datetime.fromisoformat(value)
    return int(value) if isinstance(value, str) and (name == "id" or name.endswith("_id")) else value
