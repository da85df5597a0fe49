"""Background coroutines that restart on unexpected errors: heartbeats, time limits, loops, notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

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
