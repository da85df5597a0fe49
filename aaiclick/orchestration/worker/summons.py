"""Messages that call a worker to work: it claims when it has heard one, and not otherwise.

A message stands for one task to claim, whichever is first in line: the task that it names may have been taken, may be
there no more, or may come a moment later than another. It is deleted when the claim was made, whatever came of it. If
the process dies before that, the message comes again; if it was the only one and is lost, the task is told of again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from aaiclick.errors import AaiclickError
from aaiclick.orchestration.runtimes.sqs import WAIT_SECONDS, TaskQueue

PAUSE_SECONDS = 1.0
FULL_SECONDS = 0.05
SHORT_SECONDS = 1
"""How long a worker that is to end when its queue is silent waits for a message."""


class Summons:
    """What was heard, and not answered yet."""

    def __init__(self, queue: TaskQueue, *, until_silent: bool = False) -> None:
        self._queue = queue
        self._until_silent = until_silent
        self._wait_seconds = SHORT_SECONDS if until_silent else WAIT_SECONDS
        self._receipts: deque[str] = deque()
        self._deleting: set[asyncio.Task[None]] = set()
        self._silent = False

    @property
    def heard(self) -> int:
        """Messages that no claim was made for."""
        return len(self._receipts)

    @property
    def silent(self) -> bool:
        """Whether the queue had nothing to say when it was last listened to, and all was answered that it said."""
        return self._silent and not self.heard

    async def listen(self, free: Callable[[], int], wake: Callable[[], None]) -> None:
        """Hear as many messages as there are places; `wake` says that there are new ones, or none.

        A poll that nobody waits for any more may yet take a message, which then comes again late: so whoever is to end
        with the messages listens no more after the last.
        """
        while not (self._silent and self._until_silent):
            places = free() - self.heard
            if places <= 0:
                await asyncio.sleep(FULL_SECONDS)
                continue
            try:
                receipts = await self._queue.receive(places, self._wait_seconds)
            except AaiclickError:
                await asyncio.sleep(PAUSE_SECONDS)  # a queue that is away is no reason to end
                continue
            self._receipts.extend(receipts)
            self._silent = not receipts
            wake()

    def answered(self, count: int) -> None:
        """A claim was made for so many messages."""
        receipts = [self._receipts.popleft() for _ in range(min(count, self.heard))]
        if receipts:
            task = asyncio.create_task(self._delete(receipts))
            self._deleting.add(task)
            task.add_done_callback(self._deleting.discard)

    async def close(self) -> None:
        """Messages that were answered are deleted; the others come again to somebody else."""
        await asyncio.gather(*self._deleting)

    async def _delete(self, receipts: list[str]) -> None:
        with contextlib.suppress(AaiclickError):
            await self._queue.delete(receipts)
