"""`health_check()`: whether everything that jobs need is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg

from aaiclick.data.client import ping
from aaiclick.errors import AaiclickError
from aaiclick.local import clickhouse_target
from aaiclick.orchestration.context import any_context
from aaiclick.settings import get_settings
from aaiclick.store.health import Check, check_work
from aaiclick.targets import ClickHouseTarget

ANSWER_SECONDS = 5.0


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
    clickhouse = await check_clickhouse(lambda: clickhouse_target(settings))
    try:
        async with asyncio.timeout(ANSWER_SECONDS), any_context() as context, context.connection() as connection:
            checks = await check_work(connection, worker_timeout_seconds=settings.worker_timeout_seconds)
    except (AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        checks = [Check("database", False, str(error) or "PostgreSQL does not answer")]
    return Health((*checks, clickhouse))


async def check_clickhouse(find: Callable[[], Awaitable[ClickHouseTarget]]) -> Check:
    """Whether the ClickHouse that `find` returns answers a query."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            target = await find()
        await ping(target, seconds=ANSWER_SECONDS)
    except TimeoutError:
        return Check("clickhouse", False, f"The embedded ClickHouse does not start within {ANSWER_SECONDS:g} s")
    except (AaiclickError, OSError) as error:
        return Check("clickhouse", False, str(error))
    return Check("clickhouse", True, "ClickHouse answers")
