"""Work beside the main work, which nobody waits for and everybody relies on: heartbeats, time limits, loops, news."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

PAUSE_SECONDS = 1.0

_logger = logging.getLogger(__name__)


async def steadily(
    work: Callable[..., Awaitable[None]], *arguments: Any, until: tuple[type[Exception], ...] = ()
) -> None:
    """Do it until it ends by itself, or by an error that `until` names. What nobody has thought of is written down, and
    the work begins anew: else a worker would go on claiming without heartbeats, or an installation without its reaper.
    """
    while True:
        try:
            return await work(*arguments)
        except until:
            return None
        except Exception:
            _logger.exception("%s: this should not have happened. It goes on.", work.__qualname__)
        await asyncio.sleep(PAUSE_SECONDS)
