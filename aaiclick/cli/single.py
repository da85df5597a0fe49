"""A command of which one runs at a time, known to others by a lock file that holds its pid.

The kernel gives the lock back however the process ends, so a stale file means nothing.
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


class Single:
    """The process that holds the lock in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def be(self) -> Generator[int | None]:
        """Be the one; yields the pid of the other one where there is one."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _take(handle):
                yield self.pid() or -1
                return
            self.write()
            yield None
        finally:
            os.close(handle)

    def write(self, **facts: Any) -> None:
        """What others can know of us besides our pid; in place, since the file itself is locked."""
        with self._path.open("r+") as file:
            file.write(json.dumps({"pid": os.getpid(), **facts}))
            file.truncate()

    def pid(self) -> int | None:
        """The pid of the one that runs, if any."""
        return self.facts().get("pid")

    def facts(self) -> dict[str, Any]:
        """What the one that runs has written; nothing if none does."""
        try:
            with self._path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return json.load(file)
        except (OSError, ValueError):
            pass
        return {}

    def end(self) -> bool:
        """Have it stop, by force if it does not; False if none runs."""
        pid = self.pid()
        if pid is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.terminate()
            deadline = time.monotonic() + STOP_SECONDS
            while self.pid() == pid:  # not until it is gone: its parent may leave it a zombie
                if time.monotonic() > deadline:
                    process.kill()
                    break
                time.sleep(0.02)
        return True


def _take(handle: int) -> bool:
    """Lock it; whoever asks for the pid holds the lock for a moment too, which is no reason to give up."""
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
