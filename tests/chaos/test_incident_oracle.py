"""The checks of incidents and messages detect each violation, and accept a run without one."""

from __future__ import annotations

import pytest

from aaiclick.chaos import incident_oracle
from aaiclick.chaos.result import CheckResult

KEY = {"org_id": "o", "job": None, "type": "poison", "fingerprint": "E: 1"}


def failure(**fields):
    return {**KEY, "recovered": False} | fields


def incident(id_=1, **fields):
    return {**KEY, "id": id_, "is_open": True, "of_task": True, "title": "t", "cause": "c"} | fields


@pytest.mark.parametrize(
    ("incidents", "recovered", "finding"),
    [
        ([incident()], False, None),
        ([], False, "lost"),
        ([incident(is_open=False)], False, "lost"),
        ([incident(is_open=False)], True, None),
        ([incident(fingerprint="E: 2")], False, "lost"),
        ([incident(), incident(2)], False, "duplicated"),
        ([incident(), incident(2, is_open=False)], False, None),
        ([incident(), incident(2, of_task=False)], False, "unexpected"),
    ],
)
def test_each_failure_has_one_open_incident(incidents, recovered, finding):
    result = CheckResult()
    incident_oracle.check_incidents(result, [failure(recovered=recovered)] * 2, incidents)
    assert [name for name, findings in result.findings_by_kind.items() if findings] == ([finding] if finding else [])


@pytest.mark.parametrize(("count", "finding"), [(0, "lost"), (1, None), (2, "duplicated")])
def test_each_job_that_failed_without_a_task_has_one_open_incident(count, finding):
    result = CheckResult()
    incidents = [incident(number, job="late", of_task=False, type=None) for number in range(count)]
    incident_oracle.check_incidents(result, [], incidents, [("o", "late")])
    assert [name for name, findings in result.findings_by_kind.items() if findings] == ([finding] if finding else [])


def planned(task_id=7, event="opened", **fields):
    return {"incident_id": 1, "channel": "web", "event": event, "task_id": task_id, "delivered": True} | fields


def received(*deliveries, channel="web"):
    return [{"channel": channel, "delivery": delivery, "incidents": [1]} for delivery in deliveries]


@pytest.mark.parametrize(
    ("notifications", "messages", "finding"),
    [
        ([planned()], received(7), None),
        ([planned()], received(7, 7), None),
        ([planned(), planned(8, "closed")], received(7, 8), None),
        ([planned(), planned(7, "closed")], received(7), None),
        ([], [], "lost"),
        ([planned(), planned(8)], received(7, 8), "duplicated"),
        ([planned()], received(7, 9), "duplicated"),
        ([planned()], [], "lost"),
        ([planned()], received(7, channel="mail"), "lost"),
        ([planned()], [{"channel": "web", "delivery": 7, "incidents": [*range(2, 102)]}], None),
        ([planned(delivered=False)], received(7), "lost"),
    ],
)
def test_incident_is_announced_once_and_received(notifications, messages, finding):
    result = CheckResult()
    incident_oracle.check_messages(result, [incident()], notifications, messages, ["web"])
    assert [name for name, findings in result.findings_by_kind.items() if findings] == ([finding] if finding else [])
