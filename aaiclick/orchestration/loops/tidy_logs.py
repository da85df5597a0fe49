"""Logs of tasks that nobody has written to for as long as finished tasks are kept are forgotten with them."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

TIDY_SECONDS = 3600.0


async def run(directory: Path, *, keep_seconds: float) -> None:
    """Logs are where their tasks ran, or at the server that they were sent to: each forgets its own, for ever."""
    while True:
        await asyncio.to_thread(run_once, directory, keep_seconds=keep_seconds)
        await asyncio.sleep(min(TIDY_SECONDS, keep_seconds))


def run_once(directory: Path, *, keep_seconds: float) -> int:
    """One pass over one directory; returns how many logs were deleted. Other files there are somebody else's."""
    oldest, deleted = time.time() - keep_seconds, 0
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            name, _, ending = entry.name.partition(".")
            if ending != "log" or not name.isdecimal():
                continue
            with suppress(OSError):  # another worker of this machine was there first
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    Path(entry.path).unlink()
                    deleted += 1
    return deleted
