"""SQL statement files, and explanations of waiting tasks."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import aaiclick
from aaiclick.orchestration.retry_policy import RetryPolicy
from aaiclick.store.engine.explain_task import TaskFacts, explain_facts
from aaiclick.store.engine.invariants import INVARIANTS
from aaiclick.store.models import metadata
from aaiclick.store.statements import load_columns, load_statements

PACKAGE = Path(aaiclick.__file__).parent
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS: dict[str, Any] = {
    "id": 1, "readiness": "READY", "status": "PENDING", "queue": "q", "type": "t", "job_id": 2, "org_name": "o",
    "org_paused_at": None, "queue_paused_at": None, "type_paused_at": None, "job_paused_at": None, "org_max": None,
    "queue_max": None, "org_running": 0, "queue_running": 0, "org_rate": None, "queue_rate": None, "ahead": 3,
    "org_tokens": None, "queue_tokens": None,
    "worker_last_heartbeat": NOW, "now": NOW, "available_at": NOW + timedelta(seconds=5), "failures": 1,
    "max_attempts": 4,
    "lease_expires_at": NOW + timedelta(seconds=9), "cancel_requested_at": None, "worker_id": 7, "attempt": 2,
    "cause_id": None, "concurrency_key": "k", "slots": 1, "key_holders": [5],
    "holder_last_heartbeat": NOW,
}  # fmt: skip


INTERNAL_COLUMNS = {"literal", "last_count_report", "opened_routed_at", "closed_routed_at", "escalate_at"}
"""Read by the results of tasks, by reports of workers and by the routing of messages only."""


def make_facts(changes: dict[str, Any]) -> TaskFacts:
    return TaskFacts(**dict.fromkeys(TaskFacts.__slots__) | FACTS | changes)


UDF = {"queue": "runtime:ecs_udf", "dispatch_count": None, "dispatched_at": None, "dispatch_error": None}


def test_every_statement_is_used_and_every_used_one_exists() -> None:
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    used = set(re.findall(r'(?<![\w.])statement\(\s*"([a-z0-9_]+)"', source))
    used |= {invariant.statement_name for invariant in INVARIANTS.values()}
    assert set(load_statements()) == used
    assert [name for name, text in load_statements().items() if text.endswith(";")] == []


def test_statements_return_only_explicit_columns() -> None:
    for name, text in load_statements().items():
        returned = re.findall(r"^SELECT \* FROM (\w+)|^RETURNING (\*)", text, re.MULTILINE)
        assert not {"*", *metadata.tables} & {word for columns in returned for word in columns}, name


def test_every_update_of_tasks_sets_updated_at() -> None:
    """A trigger would lock each row before it is updated."""
    for name, text in load_statements().items():
        updates = re.split(r"UPDATE tasks\b(?= SET| t SET)", text)[1:]
        assert all("updated_at = " in update for update in updates), name


def test_column_lists_equal_the_models() -> None:
    for name, columns in load_columns().items():
        if name not in ("task_options", "schedule_fields", "job_function_fields"):
            stored = {column.name for column in metadata.tables[name].columns} - INTERNAL_COLUMNS
            computed = {"tasks.log_path"} if name == "tasks" else set[str]()
            assert sorted(columns) == sorted(stored | computed), name


@pytest.mark.parametrize(
    ("facts", "code", "message"),
    [
        ({}, "ready", "3 tasks of queue 'q' come first"),
        ({"worker_last_heartbeat": None}, "no_worker", "no worker serves queue 'q'"),
        ({"worker_last_heartbeat": NOW - timedelta(minutes=5)}, "no_worker", "has sent a heartbeat for 300 s"),
        ({"queue": "runtime:dispatcher", "worker_last_heartbeat": None}, "no_worker", "with a database connection"),
        (UDF, "runtime", "'ecs_udf'; not dispatched yet"),
        (UDF | {"dispatch_count": 2, "dispatched_at": NOW}, "runtime", "dispatched 2 times, last at 2026-01-01"),
        (
            UDF | {"dispatch_count": 1, "dispatched_at": NOW, "worker_last_heartbeat": None},
            "runtime", "worker start --runtime ecs_udf",
        ),
        (
            UDF | {"dispatch_count": 1, "dispatched_at": NOW, "dispatch_error": "Unreachable."},
            "runtime", "the dispatch at 2026-01-01T00:00:00+00:00 failed: Unreachable.",
        ),
        ({"queue_paused_at": NOW}, "paused", "queue 'q' is paused"),
        ({"org_max": 2, "org_running": 2}, "limited", "runs 2 tasks, its limit"),
        ({"org_max": 2, "org_running": 1}, "ready", "come first"),
        ({"queue_rate": 1.5, "queue_tokens": 0.9}, "rate", "1.5 tasks a second"),
        ({"queue_rate": 1.5, "queue_tokens": 1.0}, "ready", "come first"),
        ({"org_rate": 5.0, "org_tokens": 5.0, "worker_last_heartbeat": None}, "no_worker", "no worker serves"),
        ({"readiness": "TIME"}, "scheduled", "in 5 s"),
        ({"readiness": "TIME", "status": "FAILED"}, "retry", "1 of 4 attempts"),
        ({"readiness": "HELD"}, "concurrency", "the slot of key 'k' taken by 5"),
        ({"readiness": "HELD", "job_paused_at": NOW}, "paused", "job 2 is paused"),
        ({"readiness": None, "status": "RUNNING"}, "running", "runs on worker 7, attempt 2"),
        ({"readiness": None, "status": "RUNNING", "lease_expires_at": NOW}, "lease_expired", "reaper"),
        ({"readiness": None, "status": "DEAD_LETTER"}, "dead_letter", "waits to be redriven"),
        (
            {"readiness": None, "status": "CANCELLED", "cause_id": 9, "cause_type": "x", "cause_status": "FAILED"},
            "cancelled", "because task 'x' (9) is FAILED",
        ),
        ({"readiness": None, "status": "COMPLETED"}, "completed", "has ended: COMPLETED"),
    ],
)  # fmt: skip
def test_why_waiting(facts: dict[str, Any], code: str, message: str) -> None:
    (reason,) = explain_facts(make_facts(facts))
    assert reason.code == code
    assert message in reason.text


SILENT = {
    "readiness": None, "status": "RUNNING", "holder_last_heartbeat": NOW - timedelta(seconds=61),
    "lease_expires_at": NOW + timedelta(seconds=29),
}  # fmt: skip
NOBODY = {"worker_last_heartbeat": None, "available_at": NOW}


@pytest.mark.parametrize(
    ("facts", "code", "message"),
    [
        (SILENT, "silent", "no heartbeat for 61 s; without one the lease expires in 29 s and the task is retried"),
        (SILENT | {"failures": 3}, "silent", "and the task has failed too often"),
        (SILENT | {"cancel_requested_at": NOW}, "silent", "and the task is cancelled"),
        (SILENT | {"lease_expires_at": NOW, "worker_last_heartbeat": None}, "no_worker", "no worker serves queue 'q'"),
        (NOBODY | {"readiness": "TIME", "status": "FAILED"}, "no_worker", "no worker serves queue 'q'"),
        (NOBODY | {"readiness": "TIME"}, "no_worker", "no worker serves queue 'q'"),
    ],
)
def test_why_waiting_reports_missing_heartbeats(facts: dict[str, Any], code: str, message: str) -> None:
    _, reason = explain_facts(make_facts(facts))
    assert reason.code == code
    assert message in reason.text


def test_two_missed_heartbeats_are_not_reported() -> None:
    assert [
        reason.code
        for reason in explain_facts(make_facts(SILENT | {"holder_last_heartbeat": NOW - timedelta(seconds=59)}))
    ] == ["running"]
    nothing_due = make_facts({"readiness": "TIME", "worker_last_heartbeat": None})
    assert [reason.code for reason in explain_facts(nothing_due)] == ["scheduled"]


@pytest.mark.parametrize(
    ("failures", "luck", "seconds"), [(1, 0.0, 2.0), (2, 0.0, 4.0), (3, 0.5, 8.4), (5, 0.0, 32.0), (99, 0.0, 60.0)]
)
def test_backoff(failures: int, luck: float, seconds: float) -> None:
    assert RetryPolicy(1.0, 60.0).delay_seconds(failures, luck) == pytest.approx(seconds)
