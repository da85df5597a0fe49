"""Locked pid file, so that only one process of a command runs at a time.

The kernel releases the lock when the process ends, so a stale file has no effect.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil

STOP_SECONDS = 60.0


class PidFile:
    """Lock file with the pid and facts of the process that holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def hold(self) -> Generator[int | None]:
        """Take the lock and yield None, or yield the pid of the process that holds it."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _try_lock(handle):
                yield self.read_pid() or -1
                return
            self.write_facts()
            yield None
        finally:
            os.close(handle)

    def write_facts(self, **facts: object) -> None:
        """Write the pid and facts in place, since the file itself is locked."""
        with self._path.open("r+") as file:
            file.write(json.dumps({"pid": os.getpid(), **facts}))
            file.truncate()

    def read_pid(self) -> int | None:
        """Return the pid of the running process, if any."""
        return self.read_facts().get("pid")

    def read_facts(self) -> dict[str, Any]:
        """Return the facts of the running process; empty if none runs."""
        try:
            with self._path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return json.load(file)
        except (OSError, ValueError):
            pass
        return {}

    def stop_process(self) -> bool:
        """Terminate the running process, and kill it after STOP_SECONDS; False if none runs."""
        pid = self.read_pid()
        if pid is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.terminate()
            deadline = time.monotonic() + STOP_SECONDS
            while self.read_pid() == pid:  # the lock, not the process: its parent may leave a zombie
                if time.monotonic() > deadline:
                    process.kill()
                    break
                time.sleep(0.02)
        return True


def _try_lock(handle: int) -> bool:
    """Try to lock for a second, since readers of the pid hold a shared lock for a moment."""
    deadline = time.monotonic() + 1
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True
