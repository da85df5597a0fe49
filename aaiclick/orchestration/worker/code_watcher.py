"""Watches the files of the user's code for `worker start --reload`, by polling.

Bytecode of a changed file is deleted: Python compares the time of change in whole seconds, so it would run the old
bytecode after an edit in the same second that keeps the size.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path

from aaiclick.code_version import list_source_files
from aaiclick.orchestration.worker.own_code_detection import find_files

POLL_SECONDS = 0.2
SETTLE_SECONDS = 0.05
"""Pause before a change counts: editors write several files, or one in several steps."""
MAX_LOAD = 0.1
"""Share of a core that polling may use; large directories are polled less often."""

FileStates = dict[Path, tuple[int, int]]


class CodeWatcher:
    """Finds changes of Python files below a directory and in the packages of imported modules."""

    def __init__(self, directory: Path, imports: Sequence[str], ignored: Sequence[Path]) -> None:
        self._directory = directory
        self._directories = [directory, *_find_packages(imports, directory)]
        self._ignored = list(ignored)
        self._states = self._scan()

    async def wait_for_change(self) -> list[str]:
        """Wait until files have changed, were added or removed; returns their names."""
        pause = POLL_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.perf_counter()
            if await asyncio.to_thread(self._scan) != self._states:
                return await self._settle()
            pause = max(POLL_SECONDS, (time.perf_counter() - began) / MAX_LOAD)

    async def _settle(self) -> list[str]:
        """Wait until two scans are equal, and return the changed files."""
        before, states = self._states, await asyncio.to_thread(self._scan)
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            again = await asyncio.to_thread(self._scan)
            if again == states:
                break
            states = again
        self._states = states
        changed = sorted(path for path in before | states if before.get(path) != states.get(path))
        await asyncio.to_thread(_delete_bytecode, changed)
        below = self._directory
        return [str(path.relative_to(below) if path.is_relative_to(below) else path) for path in changed]

    def _scan(self) -> FileStates:
        files = (file for directory in self._directories for file in list_source_files(directory, self._ignored))
        return {file.path: (file.size, file.changed_ns) for file in files}


def _find_packages(imports: Sequence[str], directory: Path) -> list[Path]:
    """Directories of packages that were named and are not below the directory."""
    files = (file for name in imports for file in find_files(name.partition(".")[0])[:1] if file is not None)
    parents = {Path(file).parent for file in files if Path(file).name == "__init__.py"}
    return sorted(path for path in parents if not path.is_relative_to(directory))


def _delete_bytecode(paths: Sequence[Path]) -> None:
    for path in paths:
        Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)
