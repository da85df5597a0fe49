"""Starts worker processes; for reloads, in advance.

Starting Python and importing what tasks need takes a second or more. A spare process has done that, knows none of the
user's code, and waits for its configuration on standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process


class ProcessStarter:
    """Starts processes, with a number of spare ones."""

    def __init__(self, spares: int = 0) -> None:
        self._count = spares
        self._spares: list[Process] = []
        self._filling: asyncio.Task[None] | None = None

    async def start_process(self) -> Process:
        """Return a process that waits for its configuration."""
        while self._spares:
            process = self._spares.pop(0)
            if process.returncode is None:
                break
        else:
            process = await _spawn()
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill())
        return process

    async def close_spares(self) -> None:
        """End the spare processes."""
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        for process in self._spares:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _fill(self) -> None:
        while len(self._spares) < self._count:
            self._spares.append(await _spawn())


async def _spawn() -> Process:
    # -P: files of the current directory, such as random.py or types.py, do not replace modules of Python
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "aaiclick.orchestration.worker.main", stdin=PIPE, start_new_session=True
    )
