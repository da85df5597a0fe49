"""`health_check()`: checks PostgreSQL, ClickHouse, workers and the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

import asyncpg

from aaiclick.data.runtime.clickhouse_client import ping
from aaiclick.errors import AaiclickError
from aaiclick.local import clickhouse_endpoint
from aaiclick.orchestration.context import current_or_new_context
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.engine.health import HealthCheck, check_health

ANSWER_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Health:
    """Results of all checks; true if all passed.

    ```python
    health = await health_check()
    failed = [check.name for check in health.checks if not check.ok]
    ```
    """

    checks: tuple[HealthCheck, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok


async def health_check() -> Health:
    """Check PostgreSQL, workers, stale tasks, unrouted events and ClickHouse, each by name. Never raises.

    `if await health_check(): …`; `.checks` has the result and detail of each check.

    ```python
    if not await health_check():
        print("aaiclick doctor names the remedies.")
    ```
    """
    settings = get_settings()

    async def check_database() -> list[HealthCheck]:
        async with current_or_new_context() as context, context.connection() as connection:
            return await check_health(connection, worker_timeout_seconds=settings.worker_timeout_seconds)

    clickhouse = await check_clickhouse(lambda: clickhouse_endpoint(settings))
    try:
        checks = await run_with_timeout(ANSWER_SECONDS, check_database())
    except (AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        checks = [HealthCheck("database", False, str(error) or "PostgreSQL does not answer")]
    return Health((*checks, clickhouse))


async def run_with_timeout(seconds: float, work: Coroutine[object, object, T]) -> T:
    """Result of the coroutine; raises TimeoutError.

    Unlike `asyncio.timeout` this does not wait for the cancelled coroutine: a query of a frozen server releases its
    connection only when the server continues.
    """
    task = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
    task.cancel()
    raise TimeoutError


async def check_clickhouse(find: Callable[[], Coroutine[object, object, ClickHouseEndpoint]]) -> HealthCheck:
    """Check whether the ClickHouse that `find` returns answers a query."""
    try:
        endpoint = await run_with_timeout(ANSWER_SECONDS, find())
        await ping(endpoint, seconds=ANSWER_SECONDS)
    except TimeoutError:
        return HealthCheck("clickhouse", False, f"The embedded ClickHouse does not start within {ANSWER_SECONDS:g} s")
    except (AaiclickError, OSError) as error:
        return HealthCheck("clickhouse", False, str(error))
    return HealthCheck("clickhouse", True, "ClickHouse answers")
