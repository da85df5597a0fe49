"""Freshness policies of datasets: when an update is due, as pure functions.

With `max_age`, the next update is due that long after the last one. With `by`, a dataset has to be updated between two
deadlines in a row: an update counts for the first deadline after it, so the next one is due at the second. Deadlines
are nominal times of a cron schedule (`aaiclick.cron`), also across changes of daylight saving time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from aaiclick.cron import Schedule, parse_schedule


@dataclass(frozen=True, slots=True)
class FreshnessPolicy:
    """A maximal age, or a time of day on some days of the week (as in cron) in a time zone."""

    max_age_seconds: int | None = None
    by_time: str | None = None
    timezone: str = "UTC"
    days: str = "*"

    def deadlines(self) -> Schedule:
        assert self.by_time is not None  # noqa: S101
        hour, minute = self.by_time.split(":")
        return parse_schedule(f"{int(minute)} {int(hour)} * * {self.days}", self.timezone)

    def due_after(self, updated_at: datetime) -> datetime:
        """Return when the next update is due after an update."""
        if self.max_age_seconds is not None:
            return updated_at + timedelta(seconds=self.max_age_seconds)
        return self.deadlines().next_runs(updated_at, 2)[-1]

    def first_due(self, since: datetime) -> datetime:
        """Return when the first update is due of a dataset that has none."""
        if self.max_age_seconds is not None:
            return since + timedelta(seconds=self.max_age_seconds)
        return self.deadlines().next_runs(since, 1)[0]
