"""Intervals of time, written as `15m`, `1d`, `3mo`, or as a timedelta."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.functions.dates_and_times import MICROS, MONTHS
from aaiclick.data.expressions.literals import to_micros

_UNITS = {
    "us": "microsecond", "ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week",
    "mo": "month", "q": "quarter", "y": "year",
}  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A fixed length, or a number of calendar months; one of both is 0."""

    micros: int = 0
    months: int = 0


def parse_interval(text: object) -> Interval:
    """Parse an interval: a number and a unit, the name of a unit (`"hour"`), or a timedelta."""
    if isinstance(text, timedelta):
        interval = Interval(to_micros(text))
    elif isinstance(text, str) and (match := re.fullmatch(r"(\d{0,9})\s*([a-z]+)", text.strip())):
        number, name = int(match.group(1) or 1), match.group(2)
        unit = _UNITS.get(name, name.removesuffix("s") if len(name) > 2 else name)
        if unit not in MICROS and unit not in MONTHS:
            raise _unknown_interval(text)
        interval = Interval(number * MICROS[unit]) if unit in MICROS else Interval(0, number * MONTHS[unit])
    else:
        raise _unknown_interval(text)
    if interval.micros <= 0 and interval.months <= 0:
        raise DataTypeError(f"An interval must be longer than 0, and is {text!r:.60}.")
    return interval


def _unknown_interval(text: object) -> DataTypeError:
    return DataTypeError(
        f"{text!r:.60} is not an interval.",
        remedy=f"Use a timedelta, or a number and a unit: {', '.join(f'1{unit}' for unit in _UNITS)}.",
    )
