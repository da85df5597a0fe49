"""A job as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from aaiclick.api.jobs import GroupProgress

COLOURS = {"COMPLETED": "#2e7d32", "FAILED": "#c62828", "CANCELLED": "#6d6d6d", "RUNNING": "#1565c0"}
MAX_ERROR_CHARACTERS = 2_000


def render_job(
    name: str,
    job_id: int,
    status: str,
    error: str | None,
    progress: Sequence[GroupProgress],
    started_at: datetime | None,
    completed_at: datetime | None,
) -> str:
    """Name, state, duration, a progress bar per group, and the error of a job."""
    seconds = None if started_at is None else ((completed_at or datetime.now(UTC)) - started_at).total_seconds()
    duration = "" if seconds is None else f", {seconds:.1f} s"
    colour = COLOURS.get(status, "#6d6d6d")
    heading = (
        f'<b>{escape(name)}</b> <span style="color:{colour}">{escape(status)}</span>'
        f'<span style="color:#6d6d6d"> job {job_id}{duration}</span>'
    )
    bars = "".join(_render_bar(group) for group in progress)
    text = "" if not error else f'<pre style="color:#c62828">{escape(error[:MAX_ERROR_CHARACTERS])}</pre>'
    return f'<div class="aaiclick-job">{heading}{bars}{text}</div>'


def _render_bar(group: GroupProgress) -> str:
    rate = f", {group.rows / group.seconds:,.0f} rows/s" if group.rows is not None and group.seconds else ""
    failed = f", {group.failed} failed" if group.failed else ""
    label = escape(group.group or "tasks")
    return (
        f'<div><progress value="{group.completed}" max="{max(group.total, 1)}"></progress> '
        f"{label}: {group.completed:,} of {group.total:,}{failed}{rate}</div>"
    )
