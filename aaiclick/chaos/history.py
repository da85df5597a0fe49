"""History of what clients and tasks observed: files outside of the system; each line is one write and survives kill -9.

Times are from the machine's monotonic clock, which all processes share and which cannot be set.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRINTED_LINES = "printed"
"""File of the lines that tasks have printed."""
STEPS, UNDONE_STEPS = "steps", "undone"
"""Files of the steps of sagas that ran, and that were undone."""
FINAL_TASKS, DEBOUNCED, BATCHED = "final", "debounced", "batched"
"""Files of final tasks, debounced payloads and calls of the batch handler that ran."""

_files: dict[tuple[str, int], int] = {}


@dataclass(frozen=True, slots=True)
class AttemptEvent:
    """Begin or end of an attempt, as recorded by its own code."""

    event: str
    task_id: int
    attempt: int
    org_id: str
    pid: int
    at: float


def record_attempt(directory: str, event: str, task_id: int, attempt: int, org_id: str) -> None:
    _append_line(
        Path(directory) / f"{os.getpid()}.tasks", f"{event} {task_id} {attempt} {org_id} {time.monotonic():.6f}"
    )


def record_event(directory: Path, name: str, **fields: object) -> None:
    """Record an action of a client or of the fault injector."""
    _append_line(directory / name, json.dumps({**fields, "at": time.monotonic()}))


def _append_line(path: Path, line: str) -> None:
    key = str(path), os.getpid()
    if key not in _files:
        _files[key] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_files[key], line.encode() + b"\n")


def read_attempts(directory: Path) -> Iterator[AttemptEvent]:
    """Yield the events of all attempts."""
    for path in sorted(directory.glob("*.tasks")):
        for line in path.read_text().splitlines():
            event, task_id, attempt, org_id, at = line.split(" ")
            yield AttemptEvent(event, int(task_id), int(attempt), org_id, int(path.stem), float(at))


def read_events(directory: Path, name: str) -> list[dict[str, Any]]:
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
