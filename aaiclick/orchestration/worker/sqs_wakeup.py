"""SQS wake-ups: the worker claims one task per received message.

The claimed task need not be the one that the message names, which may have been claimed or deleted meanwhile. A message
is deleted after its claim, also if that found no task. If the process dies before, SQS delivers the message again; a
lost message is sent again by the dispatcher.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from aaiclick.errors import AaiclickError
from aaiclick.orchestration.runtimes.sqs_queue import WAIT_SECONDS, SqsTaskQueue

RETRY_SECONDS = 1.0
BUSY_SECONDS = 0.05
IDLE_WAIT_SECONDS = 1
"""How long a worker that stops when its queue is idle waits for a message."""


class SqsWakeup:
    """Received messages that no claim was made for."""

    def __init__(self, queue: SqsTaskQueue, *, stop_when_idle: bool = False) -> None:
        self._queue = queue
        self._stop_when_idle = stop_when_idle
        self._wait_seconds = IDLE_WAIT_SECONDS if stop_when_idle else WAIT_SECONDS
        self._receipts: deque[str] = deque()
        self._deleting: set[asyncio.Task[None]] = set()
        self._is_empty = False

    @property
    def pending(self) -> int:
        """Number of received messages without a claim."""
        return len(self._receipts)

    @property
    def is_idle(self) -> bool:
        """Whether the last poll returned no message and all earlier ones were acknowledged."""
        return self._is_empty and not self.pending

    async def receive_messages(self, free_slots: Callable[[], int], wake: Callable[[], None]) -> None:
        """Receive as many messages as there are free slots; calls `wake` after each poll.

        With `stop_when_idle` polling ends after the first empty response: an abandoned poll could still receive a
        message, which SQS would deliver again only after its visibility timeout.
        """
        while not (self._is_empty and self._stop_when_idle):
            slots = free_slots() - self.pending
            if slots <= 0:
                await asyncio.sleep(BUSY_SECONDS)
                continue
            try:
                receipts = await self._queue.receive(slots, self._wait_seconds)
            except AaiclickError:
                await asyncio.sleep(RETRY_SECONDS)  # SQS is unreachable: retry
                continue
            self._receipts.extend(receipts)
            self._is_empty = not receipts
            wake()

    def acknowledge(self, count: int) -> None:
        """Delete the oldest `count` messages: claims were made for them."""
        receipts = [self._receipts.popleft() for _ in range(min(count, self.pending))]
        if receipts:
            task = asyncio.create_task(self._delete_messages(receipts))
            self._deleting.add(task)
            task.add_done_callback(self._deleting.discard)

    async def close(self) -> None:
        """Finish deleting acknowledged messages; SQS delivers the others again."""
        await asyncio.gather(*self._deleting)

    async def _delete_messages(self, receipts: list[str]) -> None:
        with contextlib.suppress(AaiclickError):
            await self._queue.delete(receipts)
