"""Temporary directories that do not stay: what a killed process left is removed by the next that makes one of its kind.

Whoever makes one holds a lock on it, which the kernel releases however that process ends.
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

YOUNG_SECONDS = 60.0
"""A directory that is younger may be one whose maker has not locked it yet."""


@contextlib.contextmanager
def scratch_directory(prefix: str) -> Generator[Path]:
    """A private directory with a name of that kind, removed at the end."""
    _remove_left(prefix)
    path = Path(tempfile.mkdtemp(prefix=prefix))
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # where nothing can be locked, nobody removes what another has left
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _remove_left(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # somebody else removes it, it is another's, or it is in use
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if time.time() - found.st_mtime > YOUNG_SECONDS:
                _remove_unless_held(path)


def _remove_unless_held(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(handle)
