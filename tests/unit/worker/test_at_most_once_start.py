"""Tasks without retries wait until their start is recorded."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aaiclick.orchestration.worker.at_most_once_start import StartBarrier


def make_running(task_id: int) -> Any:
    return SimpleNamespace(
        is_reported=False, stop_reason=None, claim=SimpleNamespace(lease=SimpleNamespace(task_id=task_id))
    )


class SlowQueue:
    """Records starts, and lets another task begin meanwhile."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.response = asyncio.Event()

    async def mark_running(self, leases: list[Any]) -> list[int]:
        self.requested.set()
        await self.response.wait()
        return [lease.task_id for lease in leases]


async def test_task_that_begins_during_the_request_is_sent_with_the_next():
    barrier, queue = StartBarrier(), SlowQueue()
    connection: Any = queue
    first = asyncio.create_task(barrier.begin_task(make_running(1)))
    await asyncio.sleep(0)
    request = asyncio.create_task(barrier.send_starts(connection))
    await queue.requested.wait()
    second = asyncio.create_task(barrier.begin_task(make_running(2)))
    await asyncio.sleep(0)
    queue.response.set()
    await request
    await first
    assert not second.done()
    await barrier.send_starts(connection)
    await second
