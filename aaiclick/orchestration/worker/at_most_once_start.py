"""Tasks without retries: the queue records that their code begins before it is called.

An attempt that ends without an outcome, such as by the death of its process, may run again only if its code has not
begun; see `fail_tasks` and `find_exhausted_releases`.
"""

from __future__ import annotations

import asyncio
import contextlib

from aaiclick.orchestration.gateway import GatewayConnection
from aaiclick.orchestration.worker.running_task import RunningTask, StopReason, TaskStopped


class StartBarrier:
    """Tasks that wait for the record; a connection of the process writes it for all of them at once."""

    def __init__(self) -> None:
        self._waiting: list[tuple[RunningTask, asyncio.Future[bool]]] = []
        self._wake = asyncio.Event()

    async def begin_task(self, running: RunningTask) -> None:
        """Return when the queue has recorded the start; raises TaskStopped if the lease is lost."""
        if running.is_reported:
            return
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((running, accepted))
        self._wake.set()
        if not await accepted:
            running.stop_reason = running.stop_reason or StopReason.LOST
            raise TaskStopped
        running.is_reported = True

    async def has_begun(self, running: RunningTask) -> bool:
        """`begin_task` for a task that another process runs; False if it was stopped before."""
        try:
            if running.claim.runs_once:
                await self.begin_task(running)
        except (TaskStopped, asyncio.CancelledError):
            return False
        return True

    async def wait_for_start(self, seconds: float) -> None:
        """Wait for a task to begin, or for a time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    async def send_starts(self, connection: GatewayConnection) -> None:
        """Record the start of waiting tasks; after an error they wait for the next call."""
        self._wake.clear()
        self._waiting = [(running, future) for running, future in self._waiting if not future.done()]
        waiting = list(self._waiting)  # more tasks may begin during the request
        if not waiting:
            return
        started = await connection.mark_running([running.claim.lease for running, _ in waiting])
        for running, future in waiting:
            if not future.done():
                future.set_result(running.claim.lease.task_id in started)
