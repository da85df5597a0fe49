"""Times and partitions of a backfill range."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aaiclick.catalog.backfill import MAX_RUNS, filter_partitions, list_times_between
from aaiclick.cron import parse_schedule
from aaiclick.errors import LimitError, RequestError

NOW = datetime(2026, 4, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [
        ("2026-03-27", "2026-03-30", ["27T05", "28T05", "29T04", "30T04"]),  # daylight saving time begins in Berlin
        ("2026-03-27T06:00", "2026-03-27T06:00", ["27T05"]),
        ("2026-03-27T05:00Z", "2026-03-27T05:00Z", ["27T05"]),
        ("2026-03-27T06:01", "2026-03-28T05:59", []),
        ("2026-03-31", "2026-04-09", ["31T04"]),  # future runs are left to the schedule
        ("2026-03-31", "9999-12-31", ["31T04"]),
    ],
)
def test_times_of_schedule_include_both_bounds(first, last, days):
    times = list_times_between(parse_schedule("0 6 * * *", "Europe/Berlin"), first, last, NOW)
    assert [time_.isoformat() for time_ in times] == [f"2026-03-{day}:00:00+00:00" for day in days]


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30", "2026-01-01T25:00", "9" * 500])
def test_invalid_time_is_refused(text):
    with pytest.raises(RequestError, match="neither a day nor a time"):
        list_times_between(parse_schedule("0 6 * * *"), text, "2026-01-01", NOW)


@pytest.mark.parametrize("first", ["0001-01-01", "0001-01-01T00:00", "0001-01-01T00:00+14:00"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_range_start_out_of_bounds_is_refused(first, zone):
    with pytest.raises(RequestError, match=r"too early|out of range"):
        list_times_between(parse_schedule("0 6 * * *", zone), first, "2026-01-01", NOW)


def test_a_range_that_ends_before_it_begins_is_refused():
    with pytest.raises(RequestError, match=r"ends \('2026-03-30'\) before it begins \('2026-03-31'\)"):
        list_times_between(parse_schedule("0 6 * * *"), "2026-03-31", "2026-03-30", NOW)
    for first, last in (("b", "a"), ("10", "9")):
        with pytest.raises(RequestError, match="before it begins"):
            filter_partitions({"1"}, first, last)


def test_backfill_range_is_limited():
    schedule = parse_schedule("* * * * *")
    assert len(list_times_between(schedule, "2026-01-01T00:01", "2026-01-01T16:40", NOW)) == MAX_RUNS
    with pytest.raises(LimitError, match="more than 1000 runs"):
        list_times_between(schedule, "2026-01-01T00:00", "2026-01-01T16:40", NOW)
    with pytest.raises(LimitError):
        filter_partitions({str(n) for n in range(MAX_RUNS + 1)}, "0", str(MAX_RUNS))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("2026-01-02", "2026-01-03", ["2026-01-02", "2026-01-03"]),
        ("2026-01", "2026-01-02", ["2026-01-01", "2026-01-02"]),
        ("2", "10", ["2", "9", "10"]),
        ("-5", "2", ["-1", "2"]),
    ],
)
def test_integer_partitions_are_compared_as_numbers(first, last, expected):
    keys = {"2026-01-01", "2026-01-02", "2026-01-03", "-1", "2", "9", "10", "100", "\\N"}
    assert filter_partitions(keys, first, last) == expected
