"""Delete logs of tasks that were last written to longer ago than finished tasks are kept.

A wall clock that jumps forward must not delete logs early. So the time is never taken to be later than the newest log,
nor later than the clock of this process's start plus the monotonic time since. A directory without new logs does not
grow; its logs stay until there is a newer one.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

TIDY_SECONDS = 3600.0
_STARTED = time.time(), time.monotonic()


async def run(directory: Path, *, keep_seconds: float) -> None:
    """Delete old logs for ever. Each machine has the logs of its own tasks, a server those that were sent to it."""
    while True:
        await asyncio.to_thread(run_once, directory, keep_seconds=keep_seconds)
        await asyncio.sleep(min(TIDY_SECONDS, keep_seconds))


def run_once(directory: Path, *, keep_seconds: float) -> int:
    """One pass over one directory; returns how many logs were deleted. Other files are left alone."""
    times = _times_of_logs(directory)
    oldest, deleted = _latest_possible_time(max(times.values(), default=0.0)) - keep_seconds, 0
    for path, changed_at in times.items():
        if changed_at < oldest:
            with suppress(OSError):  # another worker of this machine was first
                path.unlink()
                deleted += 1
    return deleted


def _times_of_logs(directory: Path) -> dict[Path, float]:
    """When each log was last written to."""
    times: dict[Path, float] = {}
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            name, _, ending = entry.name.partition(".")
            if ending != "log" or not name.isdecimal():
                continue
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    times[Path(entry.path)] = entry.stat(follow_symlinks=False).st_mtime
    return times


def _latest_possible_time(newest: float) -> float:
    wall, monotonic = _STARTED
    return min(newest, time.time(), wall + time.monotonic() - monotonic)
