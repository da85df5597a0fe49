"""Rows of PostgreSQL as dataclasses with one field per column.

A column without a field, or a field without a column, raises TypeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

R = TypeVar("R")


async def fetch_row(connection: Connection, row_type: Callable[..., R], query: str, *args: object) -> R | None:
    """The first row of a query; None if there is none."""
    record = await connection.fetchrow(query, *args)
    return None if record is None else row_type(**record)


async def fetch_rows(connection: Connection, row_type: Callable[..., R], query: str, *args: object) -> list[R]:
    """All rows of a query."""
    return [row_type(**record) for record in await connection.fetch(query, *args)]
