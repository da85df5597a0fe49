"""The embedded stack: PostgreSQL and ClickHouse servers that need no setup.

`postgres_endpoint()` and `clickhouse_endpoint()` return the servers that the settings name, or else the embedded ones,
started if they do not run. All processes with the same AAICLICK_HOME share one stack.

- `stack_connection`: connection of a process to the keeper; starts the keeper if none runs
- `home`: layout of AAICLICK_HOME, and the checks before use
- `stack_keeper`: background process that owns the servers
- `supervised_server`: starts, restarts and stops one server
- `drop_privileges`: drops root privileges before PostgreSQL starts
- `postgres_cluster`: the PostgreSQL cluster: creation, start command, readiness check
- `clickhouse_config`: configuration and readiness check of ClickHouse
- `clickhouse_server`: the ClickHouse child process

Next: aaiclick.store.postgres_connections and aaiclick.data.runtime.clickhouse_client, which connect to the servers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aaiclick.errors import StackError
from aaiclick.local.home import Home
from aaiclick.local.stack_connection import (
    ask_keeper,
    close_stack_connections,
    get_stack_connection,
    kill_unresponsive_keeper,
)
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.settings import Settings, get_settings

__all__ = [
    "clickhouse_endpoint",
    "close_stack_connections",
    "find_both",
    "find_clickhouse",
    "find_postgres",
    "postgres_endpoint",
    "stack_status",
    "stop_stack",
]


def find_postgres(settings: Settings | None = None) -> PostgresEndpoint:
    """Return the PostgreSQL endpoint; start the embedded server if the settings name none.

    ```python
    find_postgres().database
    ```
    """
    settings = settings or get_settings()
    return (
        settings.postgres
        or get_stack_connection(Home(settings.home), settings.local_linger_seconds).postgres_endpoint()
    )


def find_clickhouse(settings: Settings | None = None) -> ClickHouseEndpoint:
    """Return the ClickHouse endpoint; start the embedded server if the settings name none.

    ```python
    find_clickhouse().database
    ```
    """
    settings = settings or get_settings()
    return (
        settings.clickhouse
        or get_stack_connection(Home(settings.home), settings.local_linger_seconds).clickhouse_endpoint()
    )


def find_both(settings: Settings | None = None) -> tuple[PostgresEndpoint, ClickHouseEndpoint]:
    """Return both endpoints; embedded servers start in parallel.

    ```python
    postgres, clickhouse = find_both()
    ```
    """
    settings = settings or get_settings()
    embedded = [name for name in ("postgres", "clickhouse") if getattr(settings, name) is None]
    if embedded:
        get_stack_connection(Home(settings.home), settings.local_linger_seconds).require_servers(*embedded)
    return find_postgres(settings), find_clickhouse(settings)


async def postgres_endpoint(settings: Settings | None = None) -> PostgresEndpoint:
    """`find_postgres` for asynchronous code.

    ```python
    dsn = (await postgres_endpoint()).dsn
    ```
    """
    return await asyncio.to_thread(find_postgres, settings)


async def clickhouse_endpoint(settings: Settings | None = None) -> ClickHouseEndpoint:
    """`find_clickhouse` for asynchronous code.

    ```python
    url = (await clickhouse_endpoint()).url
    ```
    """
    return await asyncio.to_thread(find_clickhouse, settings)


def stack_status(settings: Settings | None = None) -> dict[str, Any] | None:
    """Return the keeper's status report, or None if no keeper runs. Starts nothing.

    ```python
    is_running = stack_status() is not None
    ```
    """
    settings = settings or get_settings()
    answer = ask_keeper(Home(settings.home), {"op": "status"})
    return answer["status"] if answer else None


def stop_stack(settings: Settings | None = None, *, unless_used: bool = False) -> bool:
    """Stop the embedded servers and their keeper; False if none ran, or if `unless_used` and one is in use.

    ```python
    stop_stack(unless_used=True)
    ```
    """
    settings = settings or get_settings()
    home = Home(settings.home)
    try:
        answer = ask_keeper(home, {"op": "stop", "unless_used": unless_used})
    except StackError:
        return not unless_used and kill_unresponsive_keeper(home)
    return answer is not None and answer["event"] == "stopped"
