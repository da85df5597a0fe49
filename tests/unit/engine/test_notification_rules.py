"""Rules and channels of notifications: which incidents match, and when messages are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from aaiclick.store.engine.notification_deliveries import MAX_MESSAGES, split_messages
from aaiclick.store.engine.notification_rules import Channel, Rule, choose_channels, due_time, escalation_time

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
INCIDENT: dict[str, Any] = {
    "rule": "job_failed", "severity": "error", "dag_name": "shop", "job_name": "shop.fetch", "task_type": "shop.load",
    "tags": ["nightly"],
}  # fmt: skip


def make_channel(**fields: Any) -> Channel:
    return Channel(uuid4(), "ops", "webhook", {}, **fields)


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({}, True),
        ({"rules": ("job_failed", "source_dead")}, True),
        ({"rules": ("source_dead",)}, False),
        ({"min_severity": "error"}, True),
        ({"min_severity": "critical"}, False),
        ({"dag_name": "sho?"}, True),
        ({"dag_name": "s"}, False),
        ({"job_name": "shop.*"}, True),
        ({"job_name": "Shop.*"}, False),
        ({"task_type": "shop.save"}, False),
        ({"tag": "night*"}, True),
        ({"tag": "daily"}, False),
        ({"dag_name": "shop", "tag": "daily"}, False),
    ],
)
def test_rule_matches_all_its_filters(fields: Any, matches: bool) -> None:
    assert Rule("r", ("ops",), **fields).matches(INCIDENT) is matches


def test_name_filter_does_not_match_an_incident_without_the_name() -> None:
    assert not Rule("r", ("ops",), dag_name="*").matches(INCIDENT | {"dag_name": None})


def test_channels_of_all_matching_rules_are_combined() -> None:
    rules = [Rule("a", ("ops", "mail")), Rule("b", ("ops",)), Rule("c", ("boss",), min_severity="critical")]
    assert choose_channels(INCIDENT, rules) == {"ops", "mail"}


def test_failing_channel_does_not_report_itself() -> None:
    failing = INCIDENT | {"rule": "channel_failing", "task_type": "ops"}
    assert choose_channels(failing, [Rule("a", ("ops", "mail"))]) == {"mail"}


def test_earliest_escalation_of_the_matching_rules_counts() -> None:
    rules = [
        Rule("a", ("ops",), escalate_after_seconds=600, escalate_to=("boss",)),
        Rule("b", ("ops",), escalate_after_seconds=60, escalate_to=("phone",)),
        Rule("c", ("ops",), escalate_after_seconds=1, escalate_to=("nobody",), dag_name="x"),
        Rule("d", ("ops",)),
    ]
    assert escalation_time(INCIDENT, rules, NOON) == NOON + timedelta(seconds=60)
    assert escalation_time(INCIDENT, rules[3:], NOON) is None
    assert choose_channels(INCIDENT, rules, escalated=True) == {"boss", "phone"}


def test_messages_are_due_at_once_by_default() -> None:
    assert due_time(make_channel(), "info", NOON) == NOON


def test_digests_are_due_at_multiples_of_the_interval() -> None:
    channel = make_channel(digest_seconds=900.0)
    assert due_time(channel, "error", NOON + timedelta(minutes=7)) == NOON + timedelta(minutes=15)
    assert due_time(channel, "critical", NOON) == NOON


@pytest.mark.parametrize(
    ("quiet", "at", "due"),
    [
        (("22:00", "07:00"), "2026-01-05T21:59:59", "2026-01-05T21:59:59"),
        (("22:00", "07:00"), "2026-01-05T22:00:00", "2026-01-06T07:00:00"),
        (("22:00", "07:00"), "2026-01-06T06:59:00", "2026-01-06T07:00:00"),
        (("22:00", "07:00"), "2026-01-06T07:00:00", "2026-01-06T07:00:00"),
        (("12:00", "13:30"), "2026-01-06T12:15:00", "2026-01-06T13:30:00"),
        (("08:00", "08:00"), "2026-01-06T08:00:00", "2026-01-06T08:00:00"),
    ],
)
def test_messages_wait_for_the_end_of_quiet_hours(quiet: tuple[str, str], at: str, due: str) -> None:
    channel = make_channel(quiet_from=quiet[0], quiet_until=quiet[1])
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert due_time(channel, "error", moment) == datetime.fromisoformat(due).replace(tzinfo=UTC)
    assert due_time(channel, "critical", moment) == moment


@pytest.mark.parametrize(("day", "hour"), [("2026-03-28", 6), ("2026-03-29", 5), ("2026-10-24", 5), ("2026-10-25", 6)])
def test_quiet_hours_follow_daylight_saving_time(day: str, hour: int) -> None:
    channel = make_channel(quiet_from="22:00", quiet_until="07:00", timezone="Europe/Berlin")
    midnight = datetime.fromisoformat(f"{day}T00:30:00").replace(tzinfo=UTC)
    assert due_time(channel, "error", midnight) == midnight.replace(hour=hour, minute=0)


@pytest.mark.parametrize(("hour", "minute"), [(0, 10), (0, 40), (1, 10)])
def test_message_of_a_repeated_hour_waits_for_the_end_of_quiet_hours(hour: int, minute: int) -> None:
    """On 2026-10-25 in Berlin, 02:00 to 03:00 is at 00:00 UTC and again at 01:00 UTC."""
    channel = make_channel(quiet_from="22:00", quiet_until="02:30", timezone="Europe/Berlin")
    moment = datetime(2026, 10, 25, hour, minute, tzinfo=UTC)
    ends = [datetime(2026, 10, 25, hour_, 30, tzinfo=UTC) for hour_ in (0, 1)]
    is_quiet = (hour, minute) != (0, 40)
    assert due_time(channel, "error", moment) == (min(end for end in ends if end > moment) if is_quiet else moment)


@pytest.mark.parametrize(
    ("notifications", "sent", "messages"),
    [
        ([(1, False), (2, False)], 0, [[1], [2]]),
        ([(1, True), (2, False), (3, True)], 0, [[1, 3], [2]]),
        ([(n, False) for n in range(30)], MAX_MESSAGES - 2, [[0], [*range(1, 30)]]),
        ([(n, True) for n in range(30)], 0, [[*range(30)]]),
        ([(1, False)], MAX_MESSAGES, []),
        ([], 0, []),
    ],
)
def test_messages_of_a_channel_are_bounded(notifications: Any, sent: int, messages: list[list[int]]) -> None:
    assert split_messages(notifications, sent) == messages
