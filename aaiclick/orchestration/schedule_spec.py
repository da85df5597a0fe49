"""Times and policies of a schedule, and the parameter of a job that receives the nominal time.

    @job(schedule="0 3 * * *", timezone="Europe/Berlin")
    def nightly(day: NominalDate) -> None: ...

`NominalDate` is a date and `NominalTime` a datetime, both in the time zone of the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_args

from aaiclick.cron import (
    IntervalTimes,
    MissedPolicy,
    NominalTimes,
    OverlapPolicy,
    Schedule,
    parse_expression,
    parse_interval,
    parse_zone,
)
from aaiclick.errors import ScheduleError

if TYPE_CHECKING:
    import asyncpg

NominalType = Literal["date", "datetime"]
MAX_MISSED = 10_000


@dataclass(frozen=True, slots=True)
class NominalMarker:
    """Marks the parameter that receives the nominal time of a scheduled run."""

    nominal_type: NominalType


NominalTime = Annotated[datetime, NominalMarker("datetime")]
"""Type of a parameter that receives the nominal time, with the time zone of the schedule."""

NominalDate = Annotated[date, NominalMarker("date")]
"""Type of a parameter that receives the date of the nominal time, in the time zone of the schedule."""


class ScheduleKeywords(TypedDict, total=False):
    """Policies of a schedule as keyword arguments."""

    timezone: str
    missed: MissedPolicy
    max_missed: int
    overlap: OverlapPolicy


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """Times and policies of a schedule; created by `parse`, which validates them."""

    cron: str | None
    every: timedelta | None
    timezone: str = "UTC"
    missed: MissedPolicy = "latest"
    max_missed: int = 100
    overlap: OverlapPolicy = "queue"

    @classmethod
    def parse(
        cls,
        cron: str | None,
        every: str | None,
        *,
        timezone: str = "UTC",
        missed: str = "latest",
        max_missed: int = 100,
        overlap: str = "queue",
    ) -> ScheduleSpec:
        """Validate; raises ScheduleError."""
        if (cron is None) == (every is None):
            raise ScheduleError(
                "A schedule has both a cron expression and an interval." if cron else "A schedule has no times.",
                remedy='Give a cron expression, such as "0 3 * * *", or an interval, such as every="5m".',
            )
        parse_zone(timezone)
        if not isinstance(max_missed, int) or not 1 <= max_missed <= MAX_MISSED:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(f"max_missed is {max_missed!r:.30}.", remedy=f"It lies between 1 and {MAX_MISSED}.")
        return cls(
            None if cron is None else parse_expression(cron),
            None if every is None else parse_interval(every),
            timezone,
            _check_choice("missed", missed, get_args(MissedPolicy)),
            max_missed,
            _check_choice("overlap", overlap, get_args(OverlapPolicy)),
        )

    def nominal_times(self, anchor: datetime) -> NominalTimes:
        """The nominal times of a schedule that was created at `anchor`."""
        return _make_times(self.cron, self.every, self.timezone, anchor)


def nominal_times_of(row: asyncpg.Record) -> NominalTimes:
    """The nominal times of a row of `schedules`."""
    every = None if row["every_seconds"] is None else timedelta(seconds=row["every_seconds"])
    return _make_times(row["cron"], every, row["timezone"], row["anchor_at"])


def _make_times(cron: str | None, every: timedelta | None, timezone: str, anchor: datetime) -> NominalTimes:
    zone = parse_zone(timezone)
    if cron is not None:
        return Schedule(cron, zone)
    assert every is not None  # noqa: S101  (a schedule has one of them)
    return IntervalTimes(every, anchor, zone)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise ScheduleError(f"{name} is {value!r:.40}.", remedy=f"It is one of: {', '.join(choices)}.")
    return value


def format_nominal(nominal: datetime, nominal_type: NominalType, times: NominalTimes) -> str:
    """The nominal time as the text of an argument, in the time zone of the schedule."""
    local = nominal.astimezone(times.zone)
    return local.date().isoformat() if nominal_type == "date" else local.isoformat()
