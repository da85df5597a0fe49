"""How commands reach PostgreSQL: one connection for one piece of work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aaiclick.errors import SettingsError, headline
from aaiclick.local import find_postgres
from aaiclick.settings import get_settings
from aaiclick.store.engine import connect
from aaiclick.store.migrate import prepare
from aaiclick.store.orgs import find_org

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

T = TypeVar("T")


def with_database(work: Callable[[Connection], Awaitable[T]]) -> T:
    """Do something over a connection of its own; the embedded database is brought up to date first."""
    settings = get_settings()
    if settings.server is not None:
        raise SettingsError(
            "This command works on the databases themselves, and AAICLICK_SERVER names a server instead.",
            remedy="Unset AAICLICK_SERVER where the databases are; or use the HTTP API.",
        )
    target = find_postgres(settings)

    async def run() -> T:
        await prepare(target, embedded=settings.postgres is None)
        connection = await connect(target)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


def moment(value: datetime | None) -> str:
    """A time in a table."""
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def seconds(start: datetime | None, end: datetime | None) -> str:
    """How long something took, or has taken so far, in a table."""
    took = took_seconds(start, end)
    return "" if took is None else f"{took:.1f} s"


def took_seconds(start: datetime | None, end: datetime | None) -> float | None:
    """The same in JSON; None if it has not begun."""
    return None if start is None else ((end or datetime.now(UTC)) - start).total_seconds()


def first_line(text: Any) -> str:
    """The headline of an error, as a table has room for it."""
    return headline(str(text or ""))[:160]


async def org_id_of(connection: Connection, slug: str) -> UUID:
    """The id of an organisation by its slug."""
    return (await find_org(connection, slug))["id"]
