"""Files of the user's code that a process has loaded, and which of them have changed since."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages")


class LoadedCode:
    """Remembers size and time of each loaded file. A file is reported once per change."""

    def __init__(self, directory: Path, imports: Sequence[str] = ()) -> None:
        """Watch modules below `directory`, except installed packages, and the packages of `imports`."""
        self._prefix = f"{directory}{os.sep}"
        self._named = frozenset(name.partition(".")[0] for name in imports)
        self._files: dict[str, tuple[int, int] | None] = {}

    def record_files(self) -> None:
        """Remember files that were loaded since the last call; called after each import of an entrypoint."""
        for file in self._list_files():
            if file not in self._files:
                self._files[file] = _read_state(file)

    def list_changed(self) -> list[Path]:
        """Files that changed since the last call; a file that was loaded since then counts as unchanged."""
        changed: list[Path] = []
        for file in self._list_files():
            state = _read_state(file)
            if self._files.setdefault(file, state) != state:
                self._files[file] = state
                changed.append(Path(file))
        return changed

    def _list_files(self) -> list[str]:
        files = ((name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
        return [file for name, file in files if file is not None and self._is_own(name, file)]

    def _is_own(self, module_name: str, file: str) -> bool:
        package = module_name.partition(".")[0]
        if package == "aaiclick":
            return False
        return package in self._named or (
            file.startswith(self._prefix) and not any(f"{os.sep}{name}{os.sep}" in file for name in INSTALLED)
        )


def _read_state(file: str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)  # noqa: PTH116  (a thousand files a second)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
