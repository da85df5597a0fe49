"""Connection of a supervisor to the queue, which reconnects during outages."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from aaiclick.errors import ForbiddenError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.gateway import GatewayConnection, WorkerGateway
from aaiclick.orchestration.gateway.base import backoff_timeout
from aaiclick.store.postgres_connections import CONNECTION_ERRORS

RETRY_SECONDS = 0.25
LOG_OUTAGE_SECONDS = 3.0
GIVE_UP_SECONDS = 5.0
_logger = logging.getLogger(__name__)
T = TypeVar("T")


class OutageTracker:
    """Outage of the queue, shared by all connections of a supervisor; its start and end are logged once."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_logged = False
        self._give_up_at = math.inf

    def record_failure(self, error: BaseException) -> None:
        """Record a failed call; an outage is logged after LOG_OUTAGE_SECONDS."""
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        if not self._is_logged and now - self._since >= LOG_OUTAGE_SECONDS:
            self._is_logged = True
            _logger.warning("%s %s", str(error).partition("\n")[0], _outage_advice(error))

    def limit_wait(self) -> None:
        """Wait for the queue for at most GIVE_UP_SECONDS from now on."""
        self._give_up_at = min(self._give_up_at, time.monotonic() + GIVE_UP_SECONDS)

    @property
    def is_limited(self) -> bool:
        return self._give_up_at < math.inf

    @property
    def is_limit_exceeded(self) -> bool:
        return time.monotonic() > self._give_up_at

    def record_success(self) -> None:
        if self._is_logged:
            _logger.warning("The queue is reachable again.")
        self._since, self._is_logged = None, False


def _outage_advice(error: BaseException) -> str:
    if isinstance(error, UnauthorisedError | ForbiddenError):
        return "No tasks are claimed until then; to use another credential, restart the worker with it."
    return "Reconnecting; running tasks continue."


class RetryingConnection:
    """Connection to the queue that reconnects and retries during an outage; one call at a time.

    Only a stopping worker without processes gives up: its tasks are retried when their leases expire.
    """

    def __init__(
        self, gateway: WorkerGateway, outage: OutageTracker, children: Collection[int], timeout_seconds: float
    ) -> None:
        self._gateway = gateway
        self._timeout_seconds = timeout_seconds
        self._outage = outage
        self._children = children
        self._lock = asyncio.Lock()
        self._connection: GatewayConnection | None = None

    async def run_with_retry(self, work: Callable[[GatewayConnection], Awaitable[T]]) -> T:
        async with self._lock:
            failures = 0
            while True:
                seconds = backoff_timeout(self._timeout_seconds, failures)
                if self._outage.is_limited and not self._children:
                    seconds = min(seconds, GIVE_UP_SECONDS)
                try:
                    if self._connection is None or self._connection.is_closed:
                        async with asyncio.timeout(seconds):
                            self._connection = await self._gateway.connect()
                    with self._connection.response_deadline(seconds):
                        result = await work(self._connection)
                except CONNECTION_ERRORS as error:
                    failures += 1
                    self.close()
                    self._outage.record_failure(error)
                    # A single lost connection is no outage: another one is tried in any case.
                    if self._outage.is_limit_exceeded and not self._children and failures > 1:
                        raise UnreachableError(
                            f"The worker stopped without releasing its tasks: {self._gateway.name} is unreachable.",
                            remedy="Its tasks are retried when their leases have expired.",
                        ) from error
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    self._outage.record_success()
                    return result

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
