"""Cron schedules: which nominal times are due, as pure functions of (expression, zone, last, now).

A run is known by its nominal time, an instant in UTC. Daylight saving follows Debian's cron:

- a schedule that names hours and minutes runs once per nominal time: what falls into the hour that is left out runs
  at the first minute after it (several such times are one run), what falls into the hour that comes twice runs the
  first time only;
- a schedule whose minutes or hours begin with `*` follows real time: every quarter of an hour stays every quarter of an
  hour through both changes.

So the instants of a schedule are a fixed, strictly rising sequence, whatever instant one starts to look from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from aaiclick.errors import ScheduleError

MissedPolicy = Literal["skip", "one", "all"]

NAMED = {
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
_FIELDS = "minute, hour, day of month, month, day of week"
_LEAP = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A checked cron expression (five fields) in a time zone; made by `parse_schedule`."""

    expression: str
    zone: ZoneInfo

    def runs_after(self, moment: datetime) -> Iterator[datetime]:
        """Nominal times after a moment, rising, in UTC; ends when there are none for 50 years."""
        start = moment.astimezone(UTC)
        try:
            for local in CronSim(self.expression, start.astimezone(self.zone)):
                nominal = local.astimezone(UTC)
                # In the second pass of a doubled hour the parser names the first one, which is over.
                if nominal > start:
                    start = nominal
                    yield nominal
        except OverflowError:  # past the year 9999
            return

    def next_run(self, moment: datetime) -> datetime | None:
        return next(self.runs_after(moment), None)

    def next_runs(self, moment: datetime, count: int) -> list[datetime]:
        return list(islice(self.runs_after(moment), count))


@dataclass(frozen=True, slots=True)
class Due:
    """What to do now: runs to start (oldest first), how many are given up (`at_least`: there may be more), what is
    next.

    `handled` is the newest nominal time at or before now: the `last` of the next look.
    """

    runs: tuple[datetime, ...]
    given_up: int
    at_least: bool
    handled: datetime | None
    next_run: datetime | None


def parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ScheduleError(
            f"There is no time zone {name!r:.60}.", remedy="Use a name such as UTC or Europe/Berlin."
        ) from None


def parse_expression(text: str) -> str:
    """The expression in five fields; raises ScheduleError, also for one that never fires."""
    expression = NAMED.get(text.strip().lower(), text.strip())
    remedy = f"Write five fields ({_FIELDS}), for example 0 6 * * MON-FRI."
    if expression.startswith("@"):
        raise ScheduleError(f"There is no schedule {text!r:.40}.", remedy=f"There is: {', '.join(NAMED)}.")
    if len(expression) > MAX_EXPRESSION or len(expression.split()) != 5:
        count = len(expression.split())
        raise ScheduleError(f"The schedule {text!r:.60} has {count} fields instead of five.", remedy=remedy)
    try:
        ever = next(CronSim(expression, _LEAP), None)
    except (CronSimError, ValueError) as error:
        raise ScheduleError(f"The schedule {text!r:.60} cannot be read: {error}.", remedy=remedy) from None
    except (AssertionError, RecursionError, OverflowError):  # nested steps and lists of steps
        raise ScheduleError(f"The schedule {text!r:.60} cannot be read.", remedy=remedy) from None
    if ever is None:
        raise ScheduleError(f"The schedule {text!r:.60} never fires.", remedy="Check day and month.")
    return " ".join(expression.upper().split())


def parse_schedule(expression: str, zone: str = "UTC") -> Schedule:
    return Schedule(parse_expression(expression), parse_zone(zone))


def due(
    schedule: Schedule,
    last: datetime,
    now: datetime,
    *,
    missed: MissedPolicy = "one",
    max_missed: int = 100,
    grace: timedelta = GRACE,
) -> Due:
    """What is due at `now` when everything up to `last` has been handled.

    `skip` gives up what is late by more than `grace`; `one` runs the newest only; `all` runs everything, but no more
    than the newest `max_missed`. Calling it again with `last = handled` starts nothing twice.
    """
    newest, more = _newest(schedule, last, now, max_missed + 1)
    if missed == "all":
        runs = newest[-max_missed:]
    elif missed == "one":
        runs = newest[-1:]
    else:
        runs = [each for each in newest[-1:] if now - each <= grace]
    return Due(
        runs=tuple(runs),
        given_up=len(newest) - len(runs),
        at_least=more,
        handled=newest[-1] if newest else None,
        next_run=schedule.next_run(max(now, last)),
    )


def _newest(schedule: Schedule, last: datetime, now: datetime, count: int) -> tuple[list[datetime], bool]:
    """The newest nominal times in (last, now], and whether older ones were left out.

    Looked for in a window before `now` that doubles, so that a year's outage of an every-minute schedule costs no
    more than an hour's.
    """
    window = timedelta(hours=1)
    while True:
        start = max(last.astimezone(UTC), now.astimezone(UTC) - window)
        found: list[datetime] = []
        for nominal in schedule.runs_after(start):
            if nominal > now:
                break
            found.append(nominal)
        if start <= last or len(found) > count:
            return found[-count:], len(found) > count
        window *= 2


def may_start(running: int, *, overlap: bool) -> bool:
    """Whether a due run may start beside those that have not ended: by default there is one at a time."""
    return overlap or running == 0
