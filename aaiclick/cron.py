"""Cron schedules and intervals: which nominal times are due and may start, as pure functions.

A run is identified by its nominal time, an instant in UTC. Daylight saving time follows Debian's cron:

- a schedule with fixed hours and minutes runs once per nominal time: times in the skipped hour run at the first minute
  after it (several such times are one run), those in the repeated hour run only the first time;
- a schedule with minutes or hours that begin with `*` follows real time: every 15 minutes stays every 15 minutes
  through both changes.

So the instants of a schedule are a fixed, strictly increasing sequence, independent of the starting point. Those of an
interval are multiples of it since its anchor, the time when the schedule was created.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from aaiclick.errors import ScheduleError

MissedPolicy = Literal["skip", "latest", "all"]
OverlapPolicy = Literal["allow", "queue", "skip", "cancel_running"]

NAMED_SCHEDULES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_EXPRESSION = 200
GRACE = timedelta(minutes=1)
MIN_INTERVAL = timedelta(seconds=1)
MAX_INTERVAL = timedelta(days=3660)
_INTERVAL = re.compile(r"([0-9]{1,9}) *([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FIELDS = "minute, hour, day of month, month, day of week"
_LEAP = datetime(2024, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


class NominalTimes(Protocol):
    """A fixed sequence of instants."""

    @property
    def zone(self) -> ZoneInfo: ...

    def runs_after(self, moment: datetime) -> Iterator[datetime]:
        """Nominal times after a moment, ascending, in UTC."""
        ...

    def next_run(self, moment: datetime) -> datetime | None: ...


class _DayTimes(NamedTuple):
    """Times of day of an expression; fixed ones do not follow elapsed time."""

    hours: list[int]
    minutes: list[int]
    is_fixed: bool


@lru_cache(maxsize=1024)
def _parse_times(expression: str) -> tuple[_DayTimes, str]:
    """The times of day of a valid expression, and the expression of the midnights of its days."""
    fields = expression.split()
    parsed = CronSim(expression, _LEAP)
    is_fixed = not (fields[0].startswith("*") or fields[1].startswith("*"))
    return _DayTimes(sorted(parsed.hours), sorted(parsed.minutes), is_fixed), " ".join(["0", "0", *fields[2:]])


@dataclass(frozen=True, slots=True)
class Schedule:
    """A validated cron expression (five fields) in a time zone; created by `parse_schedule`."""

    expression: str
    zone: ZoneInfo

    def runs_after(self, moment: datetime) -> Iterator[datetime]:
        """Nominal times after a moment, ascending, in UTC; ends if there are none for 50 years."""
        last = moment.astimezone(UTC)
        times, days = _parse_times(self.expression)
        try:
            first_day = last.astimezone(self.zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
            for day in CronSim(days, first_day - timedelta(seconds=1)):
                for nominal in self._runs_of_day(day, times, last):
                    if nominal > last:
                        last = nominal
                        yield nominal
        except OverflowError:  # past the year 9999
            return

    def _runs_of_day(self, day: datetime, times: _DayTimes, last: datetime) -> Iterable[datetime]:
        """Nominal times of a local day, at least all those after `last`."""
        midnight = day.replace(tzinfo=self.zone)
        next_midnight = (day + timedelta(days=1)).replace(tzinfo=self.zone, fold=1)
        if midnight.utcoffset() != next_midnight.utcoffset():
            return self._runs_of_changed_day(day, times)
        start = midnight.astimezone(UTC)
        over = (last - start) // _MINUTE
        return (
            start + timedelta(hours=hour, minutes=minute)
            for hour in times.hours
            if hour * 60 + 59 >= over
            for minute in times.minutes
        )

    def _runs_of_changed_day(self, day: datetime, times: _DayTimes) -> list[datetime]:
        """Nominal times of a local day on which the clocks change."""
        runs: set[datetime] = set()
        for local in (day.replace(hour=hour, minute=minute) for hour in times.hours for minute in times.minutes):
            if times.is_fixed:
                while not (instants := self._find_instants(local)):
                    local += _MINUTE
                runs.add(min(instants))
            else:
                runs |= self._find_instants(local)
        return sorted(runs)

    def _find_instants(self, local: datetime) -> set[datetime]:
        """Instants in UTC at which the clock shows a local time: none if it is skipped, two if it is repeated."""
        instants = {local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return {instant for instant in instants if instant.astimezone(self.zone).replace(tzinfo=None) == local}

    def next_run(self, moment: datetime) -> datetime | None:
        return next(self.runs_after(moment), None)

    def next_runs(self, moment: datetime, count: int) -> list[datetime]:
        return list(islice(self.runs_after(moment), count))


@dataclass(frozen=True, slots=True)
class IntervalTimes:
    """Instants at multiples of an interval after an anchor; the zone only formats them."""

    period: timedelta
    anchor: datetime
    zone: ZoneInfo

    def runs_after(self, moment: datetime) -> Iterator[datetime]:
        """Nominal times after a moment, ascending, in UTC."""
        anchor = self.anchor.astimezone(UTC)
        count = max(1, (moment.astimezone(UTC) - anchor) // self.period + 1)
        while True:
            try:
                nominal = anchor + count * self.period
            except OverflowError:  # past the year 9999
                return
            yield nominal
            count += 1

    def next_run(self, moment: datetime) -> datetime | None:
        return next(self.runs_after(moment), None)


@dataclass(frozen=True, slots=True)
class DueRuns:
    """Runs to start (oldest first), the number of skipped runs (`has_older`: there may be more), and the next run.

    `handled` is the newest nominal time at or before now: the `last` of the next call.
    """

    runs: tuple[datetime, ...]
    skipped: int
    has_older: bool
    handled: datetime | None
    next_run: datetime | None


def parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise ScheduleError(
            f"There is no time zone {name!r:.60}.", remedy="Use a name such as UTC or Europe/Berlin."
        ) from None


def parse_expression(text: str) -> str:
    """Validate and normalise an expression; raises ScheduleError, also for one that never fires."""
    remedy = f"Write five fields ({_FIELDS}), for example 0 6 * * MON-FRI."
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  (of untyped code)
        raise ScheduleError(f"The schedule {text!r:.60} is no text.", remedy=remedy)
    expression = NAMED_SCHEDULES.get(text.strip().lower(), text.strip())
    if expression.startswith("@"):
        raise ScheduleError(f"There is no schedule {text!r:.40}.", remedy=f"There is: {', '.join(NAMED_SCHEDULES)}.")
    if len(expression) > MAX_EXPRESSION or len(expression.split()) != 5:
        count = len(expression.split())
        raise ScheduleError(f"The schedule {text!r:.60} has {count} fields instead of five.", remedy=remedy)
    try:
        first_run = next(CronSim(expression, _LEAP), None)
    except (CronSimError, ValueError) as error:
        raise ScheduleError(f"The schedule {text!r:.60} cannot be read: {error}.", remedy=remedy) from None
    except (AssertionError, RecursionError, OverflowError):  # nested steps and lists of steps
        raise ScheduleError(f"The schedule {text!r:.60} cannot be read.", remedy=remedy) from None
    if first_run is None:
        raise ScheduleError(f"The schedule {text!r:.60} never fires.", remedy="Check day and month.")
    return " ".join(expression.upper().split())


def parse_interval(text: str) -> timedelta:
    """Parse a number and a unit, such as 30s, 5m, 2h, 1d or 1w; raises ScheduleError."""
    match = _INTERVAL.fullmatch(text.strip().lower()) if isinstance(text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    remedy = "Write a number and a unit (s, m, h, d or w), for example 30s, 5m or 1d."
    if match is None:
        raise ScheduleError(f"The interval {text!r:.60} cannot be read.", remedy=remedy)
    try:
        interval = timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        interval = timedelta.max
    if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise ScheduleError(f"The interval {text!r:.60} is not between 1s and {MAX_INTERVAL.days}d.", remedy=remedy)
    return interval


def format_interval(seconds: float) -> str:
    """Format an interval as it is written: 90 is 90s, 300 is 5m."""
    for unit, name in reversed(_UNITS.items()):
        length = timedelta(**{name: 1}).total_seconds()
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


def parse_schedule(expression: str, zone: str = "UTC") -> Schedule:
    return Schedule(parse_expression(expression), parse_zone(zone))


def find_due_runs(
    schedule: NominalTimes,
    last: datetime,
    now: datetime,
    *,
    missed: MissedPolicy = "latest",
    max_missed: int = 100,
    grace: timedelta = GRACE,
) -> DueRuns:
    """Runs that are due at `now` when all up to `last` have been handled.

    `skip` skips runs that are late by more than `grace`; `latest` starts only the newest; `all` starts all, up to the
    newest `max_missed`. A call with `last = handled` starts nothing twice.
    """
    newest, has_older = _newest_runs(schedule, last, now, max_missed + 1)
    if missed == "all":
        runs = newest[-max_missed:]
    elif missed == "latest":
        runs = newest[-1:]
    else:
        runs = [run for run in newest[-1:] if now - run <= grace]
    return DueRuns(
        runs=tuple(runs),
        skipped=len(newest) - len(runs),
        has_older=has_older,
        handled=newest[-1] if newest else None,
        next_run=schedule.next_run(max(now, last)),
    )


def _newest_runs(schedule: NominalTimes, last: datetime, now: datetime, count: int) -> tuple[list[datetime], bool]:
    """The newest nominal times in (last, now], and whether older ones were left out.

    Searches a doubling window before `now`, so that a year's outage of an every-minute schedule costs no more than an
    hour's.
    """
    window = timedelta(hours=1)
    while True:
        start = max(last.astimezone(UTC), now.astimezone(UTC) - window)
        runs: list[datetime] = []
        for nominal in schedule.runs_after(start):
            if nominal > now:
                break
            runs.append(nominal)
        if start <= last or len(runs) > count:
            return runs[-count:], len(runs) > count
        window *= 2


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Runs to start now, after unfinished ones are cancelled if `cancels`; and the next run to handle.

    `waits`: nothing starts before an unfinished run has ended, and nothing is handled.
    """

    starting: tuple[datetime, ...]
    next_run: datetime | None
    skipped: int = 0
    cancels: bool = False
    waits: bool = False


def decide_start(due_runs: DueRuns, overlap: OverlapPolicy, running: int) -> StartDecision:
    """Decide which due runs start while `running` others have not ended.

    `queue` starts one at a time, oldest first. With `skip` and `cancel_running` only the newest of several due runs
    starts: the others would overlap with it.
    """
    runs, skipped = due_runs.runs, due_runs.skipped
    if not runs or overlap == "allow":
        return StartDecision(runs, due_runs.next_run, skipped)
    if overlap == "queue":
        if running:
            return StartDecision((), runs[0], waits=True)
        return StartDecision(runs[:1], runs[1] if len(runs) > 1 else due_runs.next_run, skipped)
    if overlap == "skip" and running:
        return StartDecision((), due_runs.next_run, skipped + len(runs))
    return StartDecision(runs[-1:], due_runs.next_run, skipped + len(runs) - 1, cancels=running > 0)
