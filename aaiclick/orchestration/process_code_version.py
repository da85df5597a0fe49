"""Version of the code of this process, to which `@job(pin_version=True)` pins its tasks."""

from __future__ import annotations

from pathlib import Path

from aaiclick.code_version import read_code_version
from aaiclick.settings import get_logs_dir, get_settings

_process_version: list[str] = []


def set_code_version(version: str | None) -> None:
    """Set the version of the code of this process, as its worker has registered it."""
    _process_version[:] = [] if version is None else [version]


def current_code_version() -> str:
    """Version of the code of this process: that of its worker, or of the files below the current directory."""
    if not _process_version:
        settings = get_settings()
        set_code_version(str(read_code_version(Path.cwd(), (settings.home, get_logs_dir(settings)))))
    return _process_version[0]


def known_code_version() -> str | None:
    """The version of the code of this process, if it was set or read."""
    return _process_version[0] if _process_version else None
