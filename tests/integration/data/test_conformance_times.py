"""Functions of dates and datetimes from 1900 to 2299, before 1970, on leap days and where clocks change."""

# ruff: noqa: DTZ001  (datetimes without a time zone are tested too)

from __future__ import annotations

import calendar
import math
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from aaiclick.data import col, create_object_from_value
from tests.integration.data.test_conformance import report

MOMENTS = [
    datetime(1900, 1, 1), datetime(1900, 2, 28, 23, 59, 59, 999999), datetime(1900, 3, 1), datetime(1901, 1, 6),
    datetime(1968, 2, 29), datetime(1969, 12, 31, 23, 59, 59, 500000), datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1), datetime(1999, 12, 31, 23, 59, 59),
    datetime(2000, 2, 29, 12, 0, 0, 1), datetime(2016, 1, 1), datetime(2021, 1, 3),
    datetime(2024, 2, 29, 13, 14, 15, 678901), datetime(2024, 12, 30), datetime(2100, 2, 28),
    datetime(2106, 2, 7, 6, 28, 16), datetime(2149, 6, 7), datetime(2200, 7, 1, 1, 2, 3, 4),
    datetime(2262, 4, 11, 23, 47, 16, 854775), datetime(2296, 12, 31), datetime(2299, 12, 31, 23, 59, 59, 999999),
]  # fmt: skip
CHANGES = [
    datetime(2024, 3, 31, 0, 59, 59), datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 0, 30),
    datetime(2024, 10, 27, 1, 30), datetime(2024, 3, 10, 6, 59, 59), datetime(2024, 3, 10, 7),
    datetime(2024, 11, 3, 5, 30), datetime(2024, 11, 3, 6, 30), datetime(2018, 11, 4, 2, 59), datetime(2018, 11, 4, 3),
    datetime(1980, 4, 6, 1), datetime(1945, 5, 24, 1), datetime(2011, 12, 30, 9, 59), datetime(2011, 12, 30, 10),
    datetime(1916, 6, 1), datetime(2038, 7, 1),
]  # fmt: skip
"""Instants near changes of the clock, in UTC."""

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Sao_Paulo", "Pacific/Apia")


def start_of(unit):
    def reference(p):
        midnight = p.replace(hour=0, minute=0, second=0, microsecond=0)
        return {
            "year": lambda: midnight.replace(month=1, day=1),
            "quarter": lambda: midnight.replace(month=(p.month - 1) // 3 * 3 + 1, day=1),
            "month": lambda: midnight.replace(day=1),
            "week": lambda: midnight - timedelta(days=p.weekday()),
            "day": lambda: midnight,
            "12h": lambda: midnight.replace(hour=p.hour // 12 * 12),
            "hour": lambda: p.replace(minute=0, second=0, microsecond=0),
            "minute": lambda: p.replace(second=0, microsecond=0),
            "second": lambda: p.replace(microsecond=0),
        }[unit]()

    return reference


def micros(p):
    return ((p if p.tzinfo else p.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def months_later(count):
    def reference(p):
        year, month = divmod(p.year * 12 + p.month - 1 + count, 12)
        if not 1900 <= year <= 2299:
            return OUTSIDE
        return p.replace(year=year, month=month + 1, day=min(p.day, calendar.monthrange(year, month + 1)[1]))

    return reference


OUTSIDE = object()
"""The result is outside of 1900 to 2299, which is an error."""

PARTS = {
    "year": (lambda x: x.dt.year(), lambda p: p.year),
    "quarter": (lambda x: x.dt.quarter(), lambda p: (p.month + 2) // 3),
    "month": (lambda x: x.dt.month(), lambda p: p.month),
    "week": (lambda x: x.dt.week(), lambda p: p.isocalendar().week),
    "iso_year": (lambda x: x.dt.iso_year(), lambda p: p.isocalendar().year),
    "day": (lambda x: x.dt.day(), lambda p: p.day),
    "weekday": (lambda x: x.dt.weekday(), lambda p: p.isoweekday()),
    "ordinal_day": (lambda x: x.dt.ordinal_day(), lambda p: p.timetuple().tm_yday),
    "days": (lambda x: x.dt.strftime("%Y-%m-%d %y %j %U %W %w %u %G %V %e %a %A %b %B|%D|%F"),
             lambda p: p.strftime("%Y-%m-%d %y %j %U %W %w %u %G %V %e %a %A %b %B|%D|%F")),
    "epoch us": (lambda x: x.dt.epoch("us"), micros),
    "epoch ms": (lambda x: x.dt.epoch("ms"), lambda p: micros(p) // 1000),
    "epoch s": (lambda x: x.dt.epoch(), lambda p: micros(p) / 1_000_000),
    **{f"start of {unit}": (lambda x, u=unit: x.dt.truncate(u), start_of(unit))
       for unit in ("year", "quarter", "month", "week", "day")},
    "a month later": (lambda x: x.dt.add(months=1), months_later(1)),
    "a year earlier": (lambda x: x.dt.add(years=-1), months_later(-12)),
    "quarters later": (lambda x: x.dt.add(quarters=3), months_later(9)),
}  # fmt: skip
CLOCK = {
    "hour": (lambda x: x.dt.hour(), lambda p: p.hour),
    "minute": (lambda x: x.dt.minute(), lambda p: p.minute),
    "second": (lambda x: x.dt.second(), lambda p: p.second),
    "millisecond": (lambda x: x.dt.millisecond(), lambda p: p.microsecond // 1000),
    "microsecond": (lambda x: x.dt.microsecond(), lambda p: p.microsecond),
    "date": (lambda x: x.dt.date(), lambda p: p.date()),
    "clock": (lambda x: x.dt.strftime("%H:%M:%S.%f %p %I|%c|%x|%X|%T|%R|%z"),
              lambda p: p.strftime("%H:%M:%S.%f %p %I|%c|%x|%X|%T|%R|%z")),
    **{f"start of {unit}": (lambda x, u=unit: x.dt.truncate(u), start_of(unit))
       for unit in ("12h", "hour", "minute", "second")},
}  # fmt: skip


def same(actual, expected):
    if isinstance(actual, datetime) and isinstance(expected, datetime):
        return bool(actual.tzinfo) is bool(expected.tzinfo) and micros(actual) == micros(expected)
    if isinstance(expected, float):
        return math.isclose(actual, expected, rel_tol=1e-15)
    return type(actual) is type(expected) and actual == expected


def as_date(reference):
    """Return the reference of a function of dates; a datetime becomes a date."""

    def of_date(p):
        value = reference(datetime(p.year, p.month, p.day))
        return value.date() if isinstance(value, datetime) else value

    return of_date


async def differences(dtype, values, functions):
    obj = await create_object_from_value({"row": range(len(values) + 1), "t": [*values, None]},
                                         schema={"row": "Int64", "t": f"Nullable({dtype})"})  # fmt: skip
    problems = []
    for name, (expression, reference) in functions.items():
        expected = [*map(reference, values), None]
        rows = [row for row, value in enumerate(expected) if value is not OUTSIDE]
        some = obj.filter(col("row").isin(rows)) if len(rows) < len(expected) else obj
        actual = (await some.select(x=expression(col("t"))).data())["x"]
        problems += [
            f"{name} of {dtype} {[*values, None][row]}: {value!r} is not {expected[row]!r}"
            for row, value in zip(rows, actual, strict=True)
            if not same(value, expected[row])
        ]
    return problems


def rounded(moments, unit):
    return [p.replace(microsecond=p.microsecond // unit * unit) for p in moments]


@pytest.mark.usefixtures("data")
async def test_functions_of_dates_and_datetimes_without_a_zone():
    both = PARTS | CLOCK
    problems = await differences("DateTime64(6)", MOMENTS, both)
    problems += await differences("DateTime64(3)", rounded(MOMENTS, 1000), both)
    problems += await differences("DateTime64(9)", [p for p in MOMENTS if p.year < 2262], both)
    problems += await differences("DateTime", rounded([p for p in MOMENTS if 1970 <= p.year < 2106], 10**6), both)
    days = {name: (expression, as_date(reference)) for name, (expression, reference) in PARTS.items()}
    problems += await differences("Date32", [p.date() for p in MOMENTS], days)
    problems += await differences("Date", [p.date() for p in MOMENTS if 1970 <= p.year < 2149], days)
    report(problems)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("zone", ZONES)
async def test_functions_of_datetimes_with_a_zone(zone):
    instants = [p for p in MOMENTS if 1901 < p.year < 2299] + CHANGES
    local = [p.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)) for p in instants]
    problems = await differences(f"DateTime64(6, '{zone}')", local, PARTS | CLOCK)
    nanoseconds = [p for p in local if p.year < 2262]
    starts = {name: functions for name, functions in (PARTS | CLOCK).items() if name.startswith("start of")}
    problems += await differences(f"DateTime64(9, '{zone}')", nanoseconds, starts)
    report(problems)


def months_between(p, q):
    months = (p.year - q.year) * 12 + p.month - q.month
    earlier, later = (p.day, p.time()) < (q.day, q.time()), (p.day, p.time()) > (q.day, q.time())
    return months - (months > 0 and earlier) + (months < 0 and later)


def whole_units(p, q, unit):
    if unit in ("year", "quarter", "month"):
        count, size = months_between(p, q), {"year": 12, "quarter": 3, "month": 1}[unit]
    else:
        count, size = (p - q) // timedelta(microseconds=1), timedelta(**{f"{unit}s": 1}) // timedelta(microseconds=1)
    return abs(count) // size * (1 if count > 0 else -1)


@pytest.mark.usefixtures("data")
async def test_whole_units_between_dates_and_datetimes():
    units, problems = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"), []
    days = [datetime(p.year, p.month, p.day) for p in MOMENTS]
    for values, stored in ((MOMENTS, MOMENTS), (days, [p.date() for p in days])):
        pairs = list(product(range(len(values)), repeat=2))
        obj = await create_object_from_value({"a": [stored[i] for i, _ in pairs], "b": [stored[j] for _, j in pairs]})
        actual = await obj.select(**{unit: col("a").dt.diff(col("b"), unit) for unit in units}).data()
        for unit in units:
            expected = [whole_units(values[i], values[j], unit) for i, j in pairs]
            problems += [
                f"{unit} from {stored[j]} to {stored[i]}: {a} is not {e}"
                for (i, j), a, e in zip(pairs, actual[unit], expected, strict=True)
                if a != e
            ]
    report(problems)


@pytest.mark.usefixtures("data")
async def test_nanoseconds_before_1970_are_not_rounded_up():
    texts = ["1969-12-31 23:59:59.999999999", "1970-01-01 00:00:00.000000001", "1950-05-05 00:00:00.000000500"]
    moments = pd.to_datetime(texts).astype("datetime64[ns]")
    obj, t = await create_object_from_value(pd.DataFrame({"t": moments})), col("t")
    result = await obj.select(
        us=t.dt.epoch("us"), within=t.dt.microsecond(), text=t.dt.strftime("%F %T.%f"), hour=t.dt.truncate("hour"),
        micros=t.cast("DateTime64(6)", truncate=True), seconds=t.cast("DateTime64(0)", truncate=True),
        whole=t.try_cast("DateTime64(6)"), number=t.try_cast(int), later=t.dt.add(months=1),
        second=t.dt.diff(datetime(1970, 1, 1), "second"),
    ).data()  # fmt: skip
    assert result["us"] == [-1, 0, -620438400000000]
    assert result["within"] == [999999, 0, 0]
    assert result["text"] == ["1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.000000", "1950-05-05 00:00:00.000000"]
    assert result["hour"] == [datetime(1969, 12, 31, 23), datetime(1970, 1, 1), datetime(1950, 5, 5)]
    assert result["micros"] == [moment.floor("us") for moment in moments]
    assert result["seconds"] == [moment.floor("s") for moment in moments]
    assert result["whole"] == result["number"] == [None] * 3
    assert result["later"] == [moment + pd.DateOffset(months=1) for moment in moments]
    assert result["second"] == [0, 0, -620438399]
