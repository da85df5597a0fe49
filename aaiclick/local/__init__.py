"""The embedded stack: a real PostgreSQL and a real ClickHouse, with nothing to set up.

`postgres_target()` and `clickhouse_target()` say where to connect: to the servers that the settings name, or to
embedded ones, which are started if they do not run. Any number of processes share one stack per AAICLICK_HOME.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aaiclick.errors import StackError
from aaiclick.local.home import Home
from aaiclick.local.lease import ask, close_leases, end_silent_keeper, lease_of
from aaiclick.settings import Settings, get_settings
from aaiclick.targets import ClickHouseTarget, PostgresTarget

__all__ = [
    "clickhouse_target",
    "close_leases",
    "find_both",
    "find_clickhouse",
    "find_postgres",
    "postgres_target",
    "stack_status",
    "stop_stack",
]


def find_postgres(settings: Settings | None = None) -> PostgresTarget:
    """Where PostgreSQL is; starts the embedded one if the settings name no server."""
    settings = settings or get_settings()
    return settings.postgres or lease_of(Home(settings.home), settings.local_linger_seconds).postgres()


def find_clickhouse(settings: Settings | None = None) -> ClickHouseTarget:
    """Where ClickHouse is; starts the embedded one if the settings name no server."""
    settings = settings or get_settings()
    return settings.clickhouse or lease_of(Home(settings.home), settings.local_linger_seconds).clickhouse()


def find_both(settings: Settings | None = None) -> tuple[PostgresTarget, ClickHouseTarget]:
    """Both of the above; embedded servers start side by side."""
    settings = settings or get_settings()
    embedded = [name for name in ("postgres", "clickhouse") if getattr(settings, name) is None]
    if embedded:
        lease_of(Home(settings.home), settings.local_linger_seconds).require(*embedded)
    return find_postgres(settings), find_clickhouse(settings)


async def postgres_target(settings: Settings | None = None) -> PostgresTarget:
    """`find_postgres` for asynchronous code."""
    return await asyncio.to_thread(find_postgres, settings)


async def clickhouse_target(settings: Settings | None = None) -> ClickHouseTarget:
    """`find_clickhouse` for asynchronous code."""
    return await asyncio.to_thread(find_clickhouse, settings)


def stack_status(settings: Settings | None = None) -> dict[str, Any] | None:
    """What the keeper says of the embedded servers, or None if none runs. Starts nothing."""
    settings = settings or get_settings()
    answer = ask(Home(settings.home), {"op": "status"})
    return answer["status"] if answer else None


def stop_stack(settings: Settings | None = None, *, unless_used: bool = False) -> bool:
    """Stop the embedded servers and their keeper; False if they did not run, or are used and that was to be spared."""
    settings = settings or get_settings()
    home = Home(settings.home)
    try:
        answer = ask(home, {"op": "stop", "unless_used": unless_used})
    except StackError:
        return not unless_used and end_silent_keeper(home)
    return answer is not None and answer["event"] == "stopped"
