"""Template filters: format numbers, durations, times and states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aaiclick.errors import headline
from aaiclick.settings import get_settings
from aaiclick.store.engine import workers
from aaiclick.store.enums import Cancellation

if TYPE_CHECKING:
    from aaiclick.api.schedules import Schedule
    from aaiclick.operations.row_conversion import Row

TASK_STATES = ("RUNNING", "CLAIMED", "PENDING", "FAILED", "DEAD_LETTER", "CANCELLED", "SKIPPED", "COMPLETED")
JOB_STATES = ("RUNNING", "PENDING", "FAILED", "CANCELLED", "COMPLETED")

CANCELLATIONS = {
    Cancellation.CANCELLED: "Cancelled.",
    Cancellation.REQUESTED: "Cancellation requested.",
    Cancellation.OVER: "It has already finished.",
}

_STATE_NAMES = {"DEAD_LETTER": "Dead letter", "RETRYING": "Retrying", "LOST": "Lost", "TIMED_OUT": "Timed out"}
_INVISIBLE = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_ANSI_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z^_]")
_TASK_ID = re.compile(r"(?<=[Tt]ask )(\d{6,19})\b")
_CSS_CLASSES = {
    "PENDING": "pending",
    "CLAIMED": "running",
    "RUNNING": "running",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "DEAD_LETTER": "dead",
    "CANCELLED": "cancelled",
    "SKIPPED": "skipped",
    "RETRYING": "retrying",
    "PAUSED": "paused",
    "ACTIVE": "completed",
    "IDLE": "pending",
    "STOPPED": "cancelled",
    "SILENT": "dead",
    "TIMED_OUT": "failed",
    "LOST": "dead",
    "RELEASED": "pending",
    "MISSING": "dead",
    "WAITING": "pending",
    "APPROVED": "completed",
    "REJECTED": "failed",
    "EXPIRED": "dead",
    "Idle": "pending",
    "Pending": "pending",
    "Running": "running",
    "Dead": "dead",
    "Draining": "paused",
    "info": "pending",
    "warning": "retrying",
    "error": "failed",
    "critical": "dead",
}


def state_name(state: str) -> str:
    """Return the display name of a state."""
    return _STATE_NAMES.get(state, state.replace("_", " ").capitalize())


def css_class(state: str) -> str:
    """Return the CSS class of a state's colour and icon."""
    return _CSS_CLASSES.get(state, "pending")


def definition_class(status: str) -> str:
    """Return the CSS class of a definition: neutral unless it is Dead or Draining."""
    return css_class(status) if status in ("Dead", "Draining") else "definition"


def format_number(value: float | None) -> str:
    """Format with thousands separators; abbreviate large numbers."""
    if value is None:
        return "–"
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:.1f}M"
    if abs(value) >= 100_000:
        return f"{value / 1_000:.0f}k"
    if abs(value) < 10 and value % 1:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def format_capped_count(value: int, cap: int) -> str:
    """Format a count that stopped at a cap."""
    return f"{format_number(cap)}+" if value >= cap else format_number(value)


def format_bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def format_duration(value: float | timedelta | None) -> str:
    """Format with at most two units."""
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


def format_relative_time(at: datetime | None, now: datetime | None = None) -> str:
    """Format a time relative to now, with one unit."""
    if at is None:
        return "–"
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    rounded = _round_to_unit(abs(seconds))
    if rounded == "now":
        return "just now"
    return f"{rounded} ago" if seconds > 0 else f"in {rounded}"


def _round_to_unit(seconds: float) -> str:
    if seconds < 2:
        return "now"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_utc_time(at: datetime | None) -> str:
    """Format a time exactly, in UTC."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_json(value: object) -> str:
    """Format a value, or text that contains JSON, as indented JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def format_pairs(values: Mapping[str, object]) -> str:
    """Format names and values in one line."""
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in values.items()
    )


def strip_ansi_codes(text: str) -> str:
    """Remove ANSI escape codes."""
    return _ANSI_CODES.sub("", text)


def error_headline(text: str | None) -> str:
    """Return the headline of an error."""
    return headline(strip_ansi_codes(text or ""))


def escape_invisible(value: object) -> Any:
    """Write invisible and bidirectional Unicode characters as escapes (`\\u202e`).

    Jinja applies this to every value in a template; markup is exempt since its parts have been escaped.
    """
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isascii():
        return value
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", value)


def split_at_task_ids(text: str) -> list[tuple[str, str | None]]:
    """Split an error into (text, task id) pairs, so that a template can link the tasks."""
    pieces = _TASK_ID.split(strip_ansi_codes(text))
    return list(zip(pieces[::2], [*pieces[1::2], None], strict=True))


def task_name(task_type: str) -> str:
    """Return the short name of a task type: the function name of a dotted path."""
    module, _, function = task_type.rpartition(".")
    return function if module and function.isidentifier() else task_type


def job_state(row: Row) -> str:
    """Return the displayed state of a job: PAUSED if it is paused and unfinished."""
    return "PAUSED" if row["paused_at"] is not None and row["completed_at"] is None else str(row["status"])


def worker_state(status: str, last_heartbeat: datetime, now: datetime | None = None) -> str:
    """Return the displayed state of a worker: SILENT if its heartbeat is overdue."""
    return workers.worker_state(status, last_heartbeat, timeout_seconds=get_settings().worker_timeout_seconds, now=now)


def source_state(row: Row) -> str:
    """Return the displayed state of a source: Idle if none of its runs is active, unless it is always on."""
    if row["paused_at"] is not None:
        return "PAUSED"
    status = str(row["status"])
    if status not in ("Pending", "Running") or json.loads(row["source"]).get("kind") == "always_on":
        return status
    return "Running" if row["run_status"] in ("PENDING", "RUNNING") else "Idle"


def schedule_state(schedule: Schedule) -> str:
    """Return the displayed state of a schedule."""
    return str(schedule.state).upper()


def task_state(row: Row) -> str:
    """Return the displayed state of a task: RETRYING if a retry is scheduled."""
    return "RETRYING" if row["next_retry_at"] is not None else str(row["status"])


def count_progress(row: Row) -> dict[str, int]:
    """Count a job's finished tasks by outcome, for the progress bar."""
    total, opened = row["total_tasks"], row["open_tasks"]
    failed, cancelled = row["failed_tasks"], row["cancelled_tasks"]
    return {"completed": max(0, total - opened - failed - cancelled), "failed": failed, "cancelled": cancelled}
