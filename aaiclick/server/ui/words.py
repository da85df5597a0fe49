"""How values read: numbers, durations, moments, states. Pure functions, used by all templates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from aaiclick.errors import headline
from aaiclick.settings import get_settings
from aaiclick.store import workers
from aaiclick.store.words import Cancellation

TASK_STATES = ("RUNNING", "CLAIMED", "PENDING", "FAILED", "DEAD_LETTER", "CANCELLED", "COMPLETED")
JOB_STATES = ("RUNNING", "PENDING", "FAILED", "CANCELLED", "COMPLETED")

CANCELLATIONS = {
    Cancellation.CANCELLED: "Cancelled.",
    Cancellation.REQUESTED: "Cancellation requested.",
    Cancellation.OVER: "It was over already.",
}

_NAMES = {"DEAD_LETTER": "Dead letter", "RETRYING": "Retrying", "LOST": "Lost", "TIMED_OUT": "Timed out"}
_UNSEEN = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z^_]")
_TASK = re.compile(r"(?<=[Tt]ask )(\d{6,19})\b")
_LOOKS = {
    "PENDING": "pending",
    "CLAIMED": "running",
    "RUNNING": "running",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "DEAD_LETTER": "dead",
    "CANCELLED": "cancelled",
    "RETRYING": "retrying",
    "PAUSED": "paused",
    "ACTIVE": "completed",
    "IDLE": "pending",
    "STOPPED": "cancelled",
    "SILENT": "dead",
    "TIMED_OUT": "failed",
    "LOST": "dead",
    "RELEASED": "pending",
    "Idle": "pending",
    "Pending": "pending",
    "Running": "running",
    "Dead": "dead",
    "Draining": "paused",
}


def state_name(state: str) -> str:
    """A state as people read it."""
    return _NAMES.get(state, state.replace("_", " ").capitalize())


def look(state: str) -> str:
    """The class that gives a state its colour and icon."""
    return _LOOKS.get(state, "pending")


def definition_look(status: str) -> str:
    """The same for a definition, which is no run: unless something is wrong with it, it is just there."""
    return look(status) if status in ("Dead", "Draining") else "definition"


def number(value: float | None) -> str:
    """With separators; short where it is large."""
    if value is None:
        return "–"
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:.1f}M"
    if abs(value) >= 100_000:
        return f"{value / 1_000:.0f}k"
    if abs(value) < 10 and value % 1:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def bounded(value: int, bound: int) -> str:
    """A count that was not followed past a bound."""
    return f"{number(bound)}+" if value >= bound else number(value)


def size(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(value: float | timedelta | None) -> str:
    """Two units at most."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """One unit, in the past or the future."""
    if at is None:
        return "–"
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    words = _rough(abs(seconds))
    if words == "now":
        return "just now"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def _rough(seconds: float) -> str:
    if seconds < 2:
        return "now"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(at: datetime | None) -> str:
    """Exactly, in UTC."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def pretty(value: Any) -> str:
    """A value as indented JSON; text that is JSON already is read first."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def listed(values: Mapping[str, Any]) -> str:
    """Names and values in one line."""
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in values.items()
    )


def plain(text: str) -> str:
    """What a terminal would show: without the codes for colours and the like."""
    return _CODES.sub("", text)


def first_line(text: str | None) -> str:
    """The headline of an error."""
    return headline(plain(text or ""))


def seen(value: Any) -> Any:
    """Text with what Unicode has to turn or hide it written out (`\\u202e`). Every value in a template passes here, but
    markup, of which the parts have.
    """
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isascii():
        return value
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def by_tasks(text: str) -> list[tuple[str, str | None]]:
    """An error in pieces, each with the task that it leads up to, so that a template can make links of them."""
    pieces = _TASK.split(plain(text))
    return list(zip(pieces[::2], [*pieces[1::2], None], strict=True))


def task_name(kind: str) -> str:
    """What a task is called where there is little room: the function, of a path to one."""
    module, _, function = kind.rpartition(".")
    return function if module and function.isidentifier() else kind


def job_state(row: Any) -> str:
    """A job's state as shown: one that is paused says so."""
    return "PAUSED" if row["paused_at"] is not None and row["completed_at"] is None else str(row["status"])


def worker_state(status: str, last_heartbeat: datetime, now: datetime | None = None) -> str:
    """A worker's state as shown: SILENT without a heartbeat in time."""
    return workers.worker_state(status, last_heartbeat, timeout_seconds=get_settings().worker_timeout_seconds, now=now)


def source_state(row: Any) -> str:
    """A source's state as shown: one that nothing runs of now is idle, unless it always runs."""
    if row["paused_at"] is not None:
        return "PAUSED"
    status = str(row["status"])
    if status not in ("Pending", "Running") or json.loads(row["source"]).get("kind") == "always_on":
        return status
    return "Running" if row["run_status"] in ("PENDING", "RUNNING") else "Idle"


def task_state(row: Any) -> str:
    """A task's state as shown: one that failed and is tried again is not lost."""
    return "RETRYING" if row["next_retry_at"] is not None else str(row["status"])


def progress(row: Any) -> dict[str, int]:
    """Parts of a job's bar, in tasks."""
    total, opened = row["total_tasks"], row["open_tasks"]
    failed, cancelled = row["failed_tasks"], row["cancelled_tasks"]
    return {"completed": max(0, total - opened - failed - cancelled), "failed": failed, "cancelled": cancelled}
