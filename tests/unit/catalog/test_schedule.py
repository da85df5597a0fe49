"""Schedules through time zones, changes of daylight saving time and outages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaiclick.errors import ScheduleError
from aaiclick.orchestration.schedule import due, may_start, parse_schedule

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"]
FIXED = [
    "30 2 * * *", "0,30 2 * * *", "15 1 * * *", "0 3 * * *", "59 1,2,3 * * *", "0 0 * * *", "0-10 2 * * *",
    "5 0 * * SUN",
]  # fmt: skip
ROLLING = ["*/15 * * * *", "0 * * * *", "*/7 1-3 * * *", "* 2 * * *", "20 */2 * * *"]
# A year that holds two changes in every zone above, and its ends.
moments = st.integers(0, 2 * 365 * 86400).map(lambda n: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=n))
schedules = st.builds(parse_schedule, st.sampled_from(FIXED + ROLLING), st.sampled_from(ZONES))


def local(schedule, nominal):
    return nominal.astimezone(schedule.zone).replace(tzinfo=None)


def until(schedule, start, end):
    return list(takewhile(lambda nominal: nominal <= end, schedule.runs_after(start)))


def berlin(expression, start, count):
    schedule = parse_schedule(expression, "Europe/Berlin")
    first = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    return [f"{each.astimezone(schedule.zone):%d %H:%M%z}" for each in schedule.next_runs(first, count)]


def test_a_time_in_the_hour_that_is_left_out_runs_once_right_after_it():
    assert berlin("30 2 * * *", "2026-03-28 00:00", 3) == ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]
    assert berlin("0,30 2 * * *", "2026-03-29 00:00", 2) == ["29 03:00+0200", "30 02:00+0200"]


def test_a_time_in_the_hour_that_comes_twice_runs_the_first_time():
    assert berlin("30 2 * * *", "2026-10-24 12:00", 2) == ["25 02:30+0200", "26 02:30+0100"]


def test_a_rolling_schedule_follows_real_time_through_both_changes():
    assert berlin("0 * * * *", "2026-03-29 00:30", 3) == ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200"]
    assert berlin("0 * * * *", "2026-10-25 01:30", 4) == [
        "25 02:00+0200", "25 02:00+0100", "25 03:00+0100", "25 04:00+0100",
    ]  # fmt: skip


@given(schedules, moments)
@settings(max_examples=100, deadline=None)
def test_runs_rise_and_are_after_the_moment_one_looks_from(schedule, moment):
    runs = schedule.next_runs(moment, 20)
    assert runs[0] > moment
    assert all(before < after for before, after in pairwise(runs))


@given(schedules, moments, st.timedeltas(timedelta(0), timedelta(days=2)))
@settings(max_examples=100, deadline=None)
def test_the_sequence_does_not_depend_on_where_one_starts_to_look(schedule, moment, later):
    seen = [each for each in until(schedule, moment, moment + timedelta(days=3)) if each > moment + later]
    assert schedule.next_runs(moment + later, len(seen)) == seen


@given(st.builds(parse_schedule, st.sampled_from(FIXED), st.sampled_from(ZONES)), moments)
@settings(max_examples=100, deadline=None)
def test_no_nominal_local_time_of_a_fixed_schedule_runs_twice(schedule, moment):
    times = [local(schedule, each) for each in schedule.next_runs(moment, 40)]
    assert len(set(times)) == len(times)


@given(st.builds(parse_schedule, st.just("30 2 * * *"), st.sampled_from(ZONES)), moments)
@settings(max_examples=100, deadline=None)
def test_a_daily_schedule_runs_on_every_day(schedule, moment):
    days = [local(schedule, each).date() for each in schedule.next_runs(moment, 40)]
    assert [(after - before).days for before, after in pairwise(days)] == [1] * 39


@given(st.builds(parse_schedule, st.sampled_from(["*/15 * * * *", "0 * * * *"]), st.sampled_from(ZONES)), moments)
@settings(max_examples=100, deadline=None)
def test_a_rolling_schedule_has_no_hole(schedule, moment):
    step = timedelta(minutes=15 if schedule.expression.startswith("*/15") else 60)
    gaps = {after - before for before, after in pairwise(schedule.next_runs(moment, 100))}
    # Lord Howe moves its clocks by half an hour: "on the hour" then means 30 or 90 minutes once.
    assert gaps == {step} or (schedule.zone.key == "Australia/Lord_Howe" and gaps <= {step, step / 2, step * 1.5})


@given(schedules, moments, st.timedeltas(timedelta(0), timedelta(days=3)), st.sampled_from(["skip", "one", "all"]))
@settings(max_examples=100, deadline=None)
def test_looking_again_starts_nothing_twice_and_loses_nothing(schedule, last, gap, missed):
    now = last + gap
    first = due(schedule, last, now, missed=missed, max_missed=10_000)
    everything = until(schedule, last, now)
    assert len(first.runs) + first.given_up == len(everything)
    assert list(first.runs) == everything[len(everything) - len(first.runs) :]
    assert not due(schedule, first.handled or last, now, missed=missed).runs
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
        ("one", "2026-01-01 09:30", ["09:00"], 8),
        ("all", "2026-01-01 09:30", ["07:00", "08:00", "09:00"], 1),
        ("all", "2026-01-01 00:30", [], 0),
    ],
)
def test_missed_runs_follow_their_policy_within_the_bound(missed, now, runs, given_up):
    answer = due(parse_schedule("0 * * * *"), at("2026-01-01 00:00"), at(now), missed=missed, max_missed=3)
    if missed != "all":
        answer = due(parse_schedule("0 * * * *"), at("2026-01-01 00:00"), at(now), missed=missed)
    assert [f"{each:%H:%M}" for each in answer.runs] == runs
    assert answer.given_up == given_up


def test_a_long_outage_of_a_busy_schedule_is_bounded():
    answer = due(parse_schedule("* * * * *"), at("2000-01-01"), at("2026-01-01"), missed="all", max_missed=5)
    assert [f"{each:%d %H:%M}" for each in answer.runs] == ["31 23:56", "31 23:57", "31 23:58", "31 23:59", "01 00:00"]
    assert answer.given_up == 1
    assert answer.at_least


@pytest.mark.parametrize(
    ("expression", "said"),
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
def test_what_cannot_be_a_schedule_is_refused(expression, said):
    with pytest.raises(ScheduleError, match=said):
        parse_schedule(expression)


@pytest.mark.parametrize("zone", ["Mars/Phobos", "../../etc/passwd", "", "Europe", "\x00"])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(ScheduleError, match="no time zone"):
        parse_schedule("@daily", zone)


@given(st.text(alphabet="0123456789*/-,L#W SUNMO?@", max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_schedule_or_a_refusal(text):
    try:
        schedule = parse_schedule(text)
    except ScheduleError:
        return
    assert schedule.next_run(at("2026-01-01")) is not None


def test_a_run_waits_for_the_one_before_unless_asked():
    assert may_start(0, overlap=False)
    assert not may_start(1, overlap=False)
    assert may_start(3, overlap=True)
