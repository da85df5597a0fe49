"""Background coroutines that restart on unexpected errors: heartbeats, time limits, loops, notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

PAUSE_SECONDS = 1.0

_logger = logging.getLogger(__name__)


async def run_forever(
    function: Callable[..., Awaitable[None]], *arguments: object, stop_on: tuple[type[Exception], ...] = ()
) -> None:
    """Run a coroutine function until it returns or raises one of `stop_on`; other errors are logged, and it restarts.

    Otherwise a worker would keep claiming without heartbeats, or an installation would run without its reaper.
    """
    while True:
        try:
            return await function(*arguments)
        except stop_on:
            return None
        except Exception:
            _logger.exception("%s failed unexpectedly; restarting.", function.__qualname__)
        await asyncio.sleep(PAUSE_SECONDS)


async def wait_for_any(*awaitables: asyncio.Task[int] | Coroutine[object, object, object]) -> None:
    """Wait for the first of several tasks and coroutines; coroutines that have not finished are cancelled."""
    own = [asyncio.create_task(item) for item in awaitables if not isinstance(item, asyncio.Task)]
    tasks = [item for item in awaitables if isinstance(item, asyncio.Task)]
    try:
        await asyncio.wait([*own, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in own:
            task.cancel()
