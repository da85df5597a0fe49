"""Temporary directories that are removed even after a kill, by the next process that creates one with the same prefix.

The owner holds a lock on its directory, which the kernel releases however the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

MIN_AGE_SECONDS = 60.0
"""A younger directory may not be locked yet by its owner."""


@contextlib.contextmanager
def temporary_directory(prefix: str) -> Generator[Path]:
    """Create a private directory with this prefix; removed at the end."""
    _remove_abandoned(prefix)
    path = Path(tempfile.mkdtemp(prefix=prefix))
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # without support for locks, no other process removes it either
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _remove_abandoned(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # in use, another user's, or removed by another process
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            if time.time() - status.st_mtime > MIN_AGE_SECONDS:
                _remove_unless_locked(path)


def _remove_unless_locked(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(handle)
