"""`health_check()`: whether everything that jobs need is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from aaiclick.data.client import ping
from aaiclick.errors import AaiclickError
from aaiclick.local import clickhouse_target
from aaiclick.orchestration.context import any_context
from aaiclick.settings import get_settings
from aaiclick.store.health import Check, check_work
from aaiclick.targets import ClickHouseTarget

ANSWER_SECONDS = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Health:
    """The results of all checks; true if all of them hold."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def __bool__(self) -> bool:
        return self.ok


async def health_check() -> Health:
    """Check PostgreSQL, workers, stale tasks, unrouted events and ClickHouse, each by name. Never raises.

    `if await health_check(): …`; `.checks` has the result and detail of each check.
    """
    settings = get_settings()

    async def check_database() -> list[Check]:
        async with any_context() as context, context.connection() as connection:
            return await check_work(connection, worker_timeout_seconds=settings.worker_timeout_seconds)

    clickhouse = await check_clickhouse(lambda: clickhouse_target(settings))
    try:
        checks = await answer_within(ANSWER_SECONDS, check_database())
    except (AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        checks = [Check("database", False, str(error) or "PostgreSQL does not answer")]
    return Health((*checks, clickhouse))


async def answer_within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of the coroutine, or TimeoutError in time.

    Unlike `asyncio.timeout` this does not wait for the cancelled coroutine: a query of a frozen server gives its
    connection back only when the server goes on.
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


async def check_clickhouse(find: Callable[[], Coroutine[Any, Any, ClickHouseTarget]]) -> Check:
    """Whether the ClickHouse that `find` returns answers a query."""
    try:
        target = await answer_within(ANSWER_SECONDS, find())
        await ping(target, seconds=ANSWER_SECONDS)
    except TimeoutError:
        return Check("clickhouse", False, f"The embedded ClickHouse does not start within {ANSWER_SECONDS:g} s")
    except (AaiclickError, OSError) as error:
        return Check("clickhouse", False, str(error))
    return Check("clickhouse", True, "ClickHouse answers")
