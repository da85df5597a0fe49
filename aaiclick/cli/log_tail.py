"""New lines of task logs and of the server's log, as one stream with the source of each line."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Generator
from pathlib import Path

from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import escape_control_characters, print_message
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.errors import AaiclickError

POLL_SECONDS = 0.2
MAX_LOAD = 0.1
"""Share of a core that polling may use; a directory with many logs is polled less often."""
CHUNK_BYTES = 1_000_000
QUIET_LEVELS = ("debug", "info")


class LogTail:
    """Prints what is appended to logs: `NAME | line`. Whatever was there before is not printed."""

    def __init__(self, task_logs: Path, server_log: Path) -> None:
        self._task_logs = task_logs
        self._server_log = server_log
        self._offsets = dict(self._list_sizes())
        self._labels: dict[Path, str] = {}
        self._stopping = threading.Event()

    @contextlib.contextmanager
    def run_in_background(self) -> Generator[None]:
        """Print in a thread until the end of the block, then once more."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _run(self) -> None:
        with open_operations() as operations:
            is_last = False
            while not is_last:
                is_last = self._stopping.is_set()
                began = time.perf_counter()
                self._print_new(operations)
                self._stopping.wait(max(POLL_SECONDS, (time.perf_counter() - began) / MAX_LOAD))

    def _print_new(self, operations: SyncEndpoints) -> None:
        for path, size in self._list_sizes():
            offset = self._offsets.get(path, 0)
            if size == offset:
                continue
            text, self._offsets[path] = _read_lines(path, offset if size > offset else 0)
            for line in text.splitlines():
                self._print_line(operations, path, line)

    def _print_line(self, operations: SyncEndpoints, path: Path, line: str) -> None:
        if path == self._server_log:
            line = _describe_server_line(line)
        elif line.startswith("=== attempt 1,"):
            return
        if line:
            print_message(f"{self._find_label(operations, path)} | {escape_control_characters(line)}")

    def _find_label(self, operations: SyncEndpoints, path: Path) -> str:
        """Name of the task, or `server`."""
        if path == self._server_log:
            return "server"
        if path not in self._labels:
            self._labels[path] = path.stem
            with contextlib.suppress(AaiclickError, ValueError):
                self._labels[path] = operations.get_task(int(path.stem)).type.rpartition(".")[2]
        return self._labels[path]

    def _list_sizes(self) -> list[tuple[Path, int]]:
        """Sizes of all logs, the oldest first."""
        entries: list[tuple[float, Path, int]] = []
        with contextlib.suppress(OSError), os.scandir(self._task_logs) as scan:
            for entry in scan:
                if entry.name.endswith(".log"):
                    status = entry.stat()
                    entries.append((status.st_mtime, Path(entry.path), status.st_size))
        with contextlib.suppress(OSError):
            status = self._server_log.stat()
            entries.append((status.st_mtime, self._server_log, status.st_size))
        return [(path, size) for _, path, size in sorted(entries)]


def _read_lines(path: Path, offset: int) -> tuple[str, int]:
    """Read whole lines from an offset; returns the text and the offset of the rest."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(CHUNK_BYTES)
    except OSError:
        return "", offset
    end = data.rfind(b"\n") + 1 or (len(data) if len(data) == CHUNK_BYTES else 0)
    return data[:end].decode(errors="replace"), offset + end


def _describe_server_line(line: str) -> str:
    """The message of a warning or an error in the server's log; empty for other lines."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    if not isinstance(fields, dict) or fields.get("level") in QUIET_LEVELS:  # pyright: ignore[reportUnknownMemberType]
        return ""
    return str(fields.get("message", line))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
