"""What clients and tasks saw, appended to files outside of the system: each line is one write, and survives kill -9.

Times are those of the machine's monotonic clock, which all its processes share and nobody can set.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRINTED = "printed"
"""The file of lines that tasks have printed."""

_files: dict[tuple[str, int], int] = {}


@dataclass(frozen=True, slots=True)
class Seen:
    """A moment in the life of an attempt, as its own code saw it."""

    event: str
    task_id: int
    attempt: int
    org_id: str
    pid: int
    at: float


def note_attempt(directory: str, event: str, task_id: int, attempt: int, org_id: str) -> None:
    _append(Path(directory) / f"{os.getpid()}.tasks", f"{event} {task_id} {attempt} {org_id} {time.monotonic():.6f}")


def note(directory: Path, name: str, **what: Any) -> None:
    """What a client, or who strikes, did."""
    _append(directory / name, json.dumps({**what, "at": time.monotonic()}))


def _append(path: Path, line: str) -> None:
    key = str(path), os.getpid()
    if key not in _files:
        _files[key] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_files[key], line.encode() + b"\n")


def attempts(directory: Path) -> Iterator[Seen]:
    """What all tasks saw."""
    for path in sorted(directory.glob("*.tasks")):
        for line in path.read_text().splitlines():
            event, task_id, attempt, org_id, at = line.split(" ")
            yield Seen(event, int(task_id), int(attempt), org_id, int(path.stem), float(at))


def notes(directory: Path, name: str) -> list[dict[str, Any]]:
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
