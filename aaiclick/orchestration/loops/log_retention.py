"""Log retention: deletes logs of tasks that were last written before the retention time.

A wall clock that jumps forward must not delete logs early. So "now" is at most the time of the newest log, and at most
the wall clock at process start plus the monotonic time since. A directory without new logs keeps its logs, but does
not grow.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

PASS_INTERVAL_SECONDS = 3600.0
_STARTED = time.time(), time.monotonic()


async def run(directory: Path, *, keep_seconds: float) -> None:
    """Delete old logs periodically. A machine has the logs of its own tasks, a server those sent by its workers."""
    while True:
        await asyncio.to_thread(run_once, directory, keep_seconds=keep_seconds)
        await asyncio.sleep(min(PASS_INTERVAL_SECONDS, keep_seconds))


def run_once(directory: Path, *, keep_seconds: float) -> int:
    """Run one pass over a directory; returns how many logs were deleted. Other files are not touched."""
    times = _log_times(directory)
    cutoff, deleted = _latest_possible_time(max(times.values(), default=0.0)) - keep_seconds, 0
    for path, changed_at in times.items():
        if changed_at < cutoff:
            with suppress(OSError):  # another worker of this machine deleted it
                path.unlink()
                deleted += 1
    return deleted


def _log_times(directory: Path) -> dict[Path, float]:
    """Modification times of the logs in a directory."""
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
