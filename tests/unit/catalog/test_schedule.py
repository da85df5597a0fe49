"""Schedules in time zones with daylight saving time, and after outages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaiclick.cron import (
    DueRuns,
    IntervalTimes,
    decide_start,
    find_due_runs,
    format_interval,
    parse_interval,
    parse_schedule,
)
from aaiclick.errors import ScheduleError

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"]
FIXED = [
    "30 2 * * *", "0,30 2 * * *", "15 1 * * *", "0 3 * * *", "59 1,2,3 * * *", "0 0 * * *", "0-10 2 * * *",
    "5 0 * * SUN",
]  # fmt: skip
ROLLING = ["*/15 * * * *", "0 * * * *", "*/7 1-3 * * *", "* 2 * * *", "20 */2 * * *"]
# A year with two changes of daylight saving time in every zone above.
moments = st.integers(0, 2 * 365 * 86400).map(lambda n: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=n))
schedules = st.builds(parse_schedule, st.sampled_from(FIXED + ROLLING), st.sampled_from(ZONES))


def local(schedule, nominal):
    return nominal.astimezone(schedule.zone).replace(tzinfo=None)


def until(schedule, start, end):
    return list(takewhile(lambda nominal: nominal <= end, schedule.runs_after(start)))


def berlin(expression, start, count):
    schedule = parse_schedule(expression, "Europe/Berlin")
    first = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    return [f"{run_time.astimezone(schedule.zone):%d %H:%M%z}" for run_time in schedule.next_runs(first, count)]


def test_skipped_local_time_runs_once_right_after_the_gap():
    assert berlin("30 2 * * *", "2026-03-28 00:00", 3) == ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]
    assert berlin("0,30 2 * * *", "2026-03-29 00:00", 2) == ["29 03:00+0200", "30 02:00+0200"]


def test_ambiguous_local_time_runs_once_at_first_occurrence():
    assert berlin("30 2 * * *", "2026-10-24 12:00", 2) == ["25 02:30+0200", "26 02:30+0100"]


def test_a_rolling_schedule_follows_real_time_through_both_changes():
    assert berlin("0 * * * *", "2026-03-29 00:30", 3) == ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200"]
    assert berlin("0 * * * *", "2026-10-25 01:30", 4) == [
        "25 02:00+0200", "25 02:00+0100", "25 03:00+0100", "25 04:00+0100",
    ]  # fmt: skip


@given(schedules, moments)
@settings(max_examples=100, deadline=None)
def test_runs_are_ascending_and_in_the_future(schedule, moment):
    runs = schedule.next_runs(moment, 20)
    assert runs[0] > moment
    assert all(before < after for before, after in pairwise(runs))


@given(schedules, moments, st.timedeltas(timedelta(0), timedelta(days=2)))
@settings(max_examples=100, deadline=None)
def test_runs_do_not_depend_on_start_time(schedule, moment, later):
    runs = [run_time for run_time in until(schedule, moment, moment + timedelta(days=3)) if run_time > moment + later]
    assert schedule.next_runs(moment + later, len(runs)) == runs


@given(st.builds(parse_schedule, st.sampled_from(FIXED), st.sampled_from(ZONES)), moments)
@settings(max_examples=100, deadline=None)
def test_no_nominal_local_time_of_a_fixed_schedule_runs_twice(schedule, moment):
    times = [local(schedule, run_time) for run_time in schedule.next_runs(moment, 40)]
    assert len(set(times)) == len(times)


@given(st.builds(parse_schedule, st.just("30 2 * * *"), st.sampled_from(ZONES)), moments)
@settings(max_examples=100, deadline=None)
def test_a_daily_schedule_runs_on_every_day(schedule, moment):
    days = [local(schedule, run_time).date() for run_time in schedule.next_runs(moment, 40)]
    assert [(after - before).days for before, after in pairwise(days)] == [1] * 39


@given(st.builds(parse_schedule, st.sampled_from(["*/15 * * * *", "0 * * * *"]), st.sampled_from(ZONES)), moments)
@settings(max_examples=100, deadline=None)
def test_rolling_schedule_has_no_gap(schedule, moment):
    step = timedelta(minutes=15 if schedule.expression.startswith("*/15") else 60)
    gaps = {after - before for before, after in pairwise(schedule.next_runs(moment, 100))}
    # Lord Howe moves its clocks by half an hour: "on the hour" then means 30 or 90 minutes once.
    assert gaps == {step} or (schedule.zone.key == "Australia/Lord_Howe" and gaps <= {step, step / 2, step * 1.5})


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Australia/Lord_Howe", "2026-04-04"), ("Australia/Lord_Howe", "2026-10-03"), ("Africa/Cairo", "2026-04-23"),
        ("Africa/Cairo", "2026-10-29"), ("America/Havana", "2026-03-07"), ("Antarctica/Troll", "2026-03-28"),
        ("Pacific/Apia", "2011-12-28"), ("America/Scoresbysund", "2026-10-23"), ("Europe/Berlin", "2026-10-24"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("expression", "is_nominal"),
    [
        ("*/15 5 * * *", lambda time: time.hour == 5 and time.minute % 15 == 0),
        ("0 */6 * * *", lambda time: time.hour % 6 == 0 and time.minute == 0),
        ("* 2 * * *", lambda time: time.hour == 2),
        ("*/20 0 * * FRI,SUN", lambda time: time.hour == 0 and time.minute % 20 == 0 and time.weekday() in (4, 6)),
    ],
)
def test_rolling_schedule_runs_at_all_matching_times_of_changed_days(zone, day, expression, is_nominal):
    schedule, start = parse_schedule(expression, zone), datetime.fromisoformat(day).replace(tzinfo=UTC)
    minutes = [start + timedelta(minutes=minute) for minute in range(1, 3 * 24 * 60)]
    assert until(schedule, start, minutes[-1]) == [time for time in minutes if is_nominal(local(schedule, time))]


@given(schedules, moments, st.timedeltas(timedelta(0), timedelta(days=3)), st.sampled_from(["skip", "latest", "all"]))
@settings(max_examples=100, deadline=None)
def test_repeated_checks_lose_and_repeat_no_run(schedule, last, gap, missed):
    now = last + gap
    first = find_due_runs(schedule, last, now, missed=missed, max_missed=10_000)
    everything = until(schedule, last, now)
    assert len(first.runs) + first.skipped == len(everything)
    assert list(first.runs) == everything[len(everything) - len(first.runs) :]
    assert not find_due_runs(schedule, first.handled or last, now, missed=missed).runs
    assert first.next_run == schedule.next_run(now)
    if missed == "all":
        assert list(first.runs) == everything


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("missed", "now", "runs", "given_up"),
    [
        ("skip", "2026-01-01 09:00:30", ["09:00"], 8),
        ("skip", "2026-01-01 09:30", [], 9),
        ("latest", "2026-01-01 09:30", ["09:00"], 8),
        ("all", "2026-01-01 09:30", ["07:00", "08:00", "09:00"], 1),
        ("all", "2026-01-01 00:30", [], 0),
    ],
)
def test_missed_runs_follow_their_policy_within_the_bound(missed, now, runs, given_up):
    answer = find_due_runs(parse_schedule("0 * * * *"), at("2026-01-01 00:00"), at(now), missed=missed, max_missed=3)
    if missed != "all":
        answer = find_due_runs(parse_schedule("0 * * * *"), at("2026-01-01 00:00"), at(now), missed=missed)
    assert [f"{run_time:%H:%M}" for run_time in answer.runs] == runs
    assert answer.skipped == given_up


def test_a_long_outage_of_a_busy_schedule_is_bounded():
    answer = find_due_runs(parse_schedule("* * * * *"), at("2000-01-01"), at("2026-01-01"), missed="all", max_missed=5)
    assert [f"{run_time:%d %H:%M}" for run_time in answer.runs] == [
        "31 23:56",
        "31 23:57",
        "31 23:58",
        "31 23:59",
        "01 00:00",
    ]
    assert answer.skipped == 1
    assert answer.has_older


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0 0 31 2 *", "cannot be read|never fires"),
        ("* * * *", "4 fields"),
        ("0 0 * * * *", "6 fields"),
        ("61 * * * *", "Bad minute"),
        ("a b c d e", "Bad minute"),
        ("*/0 * * * *", "Bad minute"),
        ("@sometimes", "no schedule"),
        ("", "0 fields"),
        ("0 0 * * 1#9", "Bad day-of-week"),
        ("0 0 L/2/2 * *", "cannot be read|never|Bad"),
        ("5-1 * * * *", "Bad minute"),
        ("1" * 300 + " * * * *", "fields"),
    ],
)
def test_invalid_schedule_is_refused(expression, message):
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(expression)


@pytest.mark.parametrize("zone", ["Mars/Phobos", "../../etc/passwd", "", "Europe", "\x00"])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(ScheduleError, match="no time zone"):
        parse_schedule("@daily", zone)


@given(st.text(alphabet="0123456789*/-,L#W SUNMO?@", max_size=30))
@settings(max_examples=300, deadline=None)
def test_arbitrary_text_parses_or_is_refused(text):
    try:
        schedule = parse_schedule(text)
    except ScheduleError:
        return
    assert schedule.next_run(at("2026-01-01")) is not None


RUNS = tuple(at(f"2026-01-01 0{hour}:00") for hour in (1, 2, 3))
NEXT = at("2026-01-01 04:00")


@pytest.mark.parametrize(
    ("overlap", "running", "starting", "next_run", "skipped", "cancels"),
    [
        ("allow", 0, RUNS, NEXT, 0, False),
        ("allow", 2, RUNS, NEXT, 0, False),
        ("queue", 0, RUNS[:1], RUNS[1], 0, False),
        ("queue", 1, (), RUNS[0], 0, False),
        ("skip", 0, RUNS[2:], NEXT, 2, False),
        ("skip", 1, (), NEXT, 3, False),
        ("cancel_running", 0, RUNS[2:], NEXT, 2, False),
        ("cancel_running", 1, RUNS[2:], NEXT, 2, True),
    ],
)
def test_due_runs_follow_the_overlap_policy(overlap, running, starting, next_run, skipped, cancels):
    decision = decide_start(DueRuns(RUNS, 0, False, RUNS[-1], NEXT), overlap, running)
    assert (decision.starting, decision.next_run, decision.skipped) == (starting, next_run, skipped)
    assert decision.cancels is cancels
    assert decision.waits is (overlap == "queue" and running > 0)


@hypothesis.given(
    moments, st.timedeltas(timedelta(seconds=1), timedelta(days=40)), moments, st.timedeltas(timedelta(0), timedelta(1))
)
@settings(max_examples=100, deadline=None)
def test_runs_of_an_interval_do_not_depend_on_start_time(anchor, period, moment, later):
    interval = IntervalTimes(period, anchor, ZoneInfo("UTC"))
    first = interval.next_run(moment)
    assert first > moment
    assert (first - anchor) % period == timedelta(0)
    assert first > anchor
    assert first - period <= max(moment, anchor)
    assert interval.next_run(moment + later) >= first


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), (" 2 H ", 7200), ("1d", 86_400), ("2w", 1_209_600)]
)
def test_intervals_are_a_number_and_a_unit(text, seconds):
    assert parse_interval(text).total_seconds() == seconds


INVALID_INTERVALS = {
    "empty": "", "no unit": "5", "no number": "m", "zero": "0s", "negative": "-1m", "fraction": "1.5h",
    "word": "5 minutes", "too long": "99999999w", "100 kB": "9" * 100_000 + "s", "NUL": "5m\x00",
}  # fmt: skip


@pytest.mark.parametrize("text", INVALID_INTERVALS.values(), ids=INVALID_INTERVALS)
def test_invalid_interval_is_refused(text):
    with pytest.raises(ScheduleError, match=r"cannot be read|is not between") as caught:
        parse_interval(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["1s", "90s", "5m", "61m", "1h", "36h", "1d", "2w"])
def test_interval_is_formatted_as_it_is_written(text):
    assert format_interval(parse_interval(text).total_seconds()) == text
