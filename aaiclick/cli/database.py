"""PostgreSQL connection for commands, and formatting of times."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from aaiclick.errors import SettingsError, headline
from aaiclick.local import find_postgres
from aaiclick.settings import get_settings
from aaiclick.store.migrate import prepare_schema
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.orgs import find_org

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

T = TypeVar("T")

MAX_HEADLINE = 300


def with_database(operation: Callable[[Connection], Awaitable[T]]) -> T:
    """Run an operation on a new connection; the schema of the embedded database is upgraded first."""

    async def run_connected() -> T:
        connection = await open_connection()
        try:
            return await operation(connection)
        finally:
            await connection.close()

    return asyncio.run(run_connected())


async def open_connection() -> Connection:
    """Open a connection to the configured database; the schema of the embedded one is upgraded first."""
    settings = get_settings()
    if settings.server is not None:
        raise SettingsError(
            "This command needs direct access to the databases, but AAICLICK_SERVER is set.",
            remedy="Unset AAICLICK_SERVER on a machine with access to the databases, or use the HTTP API.",
        )
    endpoint = await asyncio.to_thread(find_postgres, settings)
    await prepare_schema(endpoint, embedded=settings.postgres is None)
    return await connect(endpoint)


def format_time(value: datetime | None) -> str:
    """Format a time for a table."""
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def format_duration(start: datetime | None, end: datetime | None) -> str:
    """Format the duration so far, or until the end, for a table."""
    elapsed = elapsed_seconds(start, end)
    return "" if elapsed is None else f"{elapsed:.1f} s"


def elapsed_seconds(start: datetime | None, end: datetime | None) -> float | None:
    """Return the duration in seconds; None if not started."""
    return None if start is None else ((end or datetime.now(UTC)) - start).total_seconds()


def error_headline(text: object) -> str:
    """Return the headline of an error; on a terminal a long one is shortened, with a mark."""
    line = headline(str(text or ""))
    return line if len(line) <= MAX_HEADLINE or not sys.stdout.isatty() else f"{line[: MAX_HEADLINE - 1]}…"


async def find_org_id(connection: Connection, slug: str) -> UUID:
    """Return the id of an organisation by its slug or id."""
    return (await find_org(connection, slug)).id
