"""Statements and answers: every file is used, every wait has a reason."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import aaiclick
from aaiclick.orchestration.retry import RetryPolicy
from aaiclick.store.models import metadata
from aaiclick.store.statements import statement
from aaiclick.store.waiting import explain

PACKAGE = Path(aaiclick.__file__).parent
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS: dict[str, Any] = {
    "id": 1, "readiness": "READY", "status": "PENDING", "queue": "q", "type": "t", "job_id": 2, "org_name": "o",
    "org_paused_at": None, "queue_paused_at": None, "type_paused_at": None, "job_paused_at": None, "org_max": None,
    "queue_max": None, "org_running": 0, "queue_running": 0, "org_rate": None, "queue_rate": None, "ahead": 3,
    "org_tokens": None, "queue_tokens": None,
    "worker_heard_at": NOW, "now": NOW, "available_at": NOW + timedelta(seconds=5), "failures": 1, "max_attempts": 4,
    "lease_expires_at": NOW + timedelta(seconds=9), "cancel_requested_at": None, "worker_id": 7, "attempt": 2,
    "cause_id": None, "error": None, "concurrency_key": "k", "slots": 1, "key_holders": [5],
    "holder_heard_at": NOW,
}  # fmt: skip


UDF = {"queue": "runtime:ecs_udf", "told": None, "told_at": None, "telling_error": None}


def test_every_statement_is_used_and_every_used_one_exists() -> None:
    files = {path.stem for path in (PACKAGE / "store" / "sql").glob("*.sql")}
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    used = set(re.findall(r'statement\(\s*"([a-z0-9_]+)"', source)) | set(
        re.findall(r'"(check_i\d+_[a-z0-9_]+)"', source)
    )
    used |= {"claim", "claim_fair"}
    assert files == used
    assert all(statement(name).rstrip().endswith(";") is False for name in files)


def test_no_statement_returns_columns_that_this_release_does_not_know() -> None:
    for path in (PACKAGE / "store" / "sql").glob("*.sql"):
        returned = re.findall(r"^SELECT \* FROM (\w+)|^RETURNING (\*)", path.read_text(), re.MULTILINE)
        assert not {"*", *metadata.tables} & {word for words in returned for word in words}, path.stem
    for path in (PACKAGE / "store" / "sql" / "columns").glob("*.sql"):
        columns = [column.name for column in metadata.tables[path.stem].columns]
        assert sorted(path.read_text().replace(",", " ").split()) == sorted(columns), path.stem


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        ({}, "ready", "3 tasks of queue 'q' come first"),
        ({"worker_heard_at": None}, "no_worker", "no worker serves queue 'q'"),
        ({"worker_heard_at": NOW - timedelta(minutes=5)}, "no_worker", "has been heard of for 300 s"),
        ({"queue": "runtime:dispatcher", "worker_heard_at": None}, "no_worker", "no worker beside the databases"),
        (UDF, "runtime", "'ecs_udf', which was not told yet"),
        (UDF | {"told": 2, "told_at": NOW}, "runtime", "told 2 times, last at 2026-01-01"),
        (UDF | {"told": 1, "told_at": NOW, "worker_heard_at": None}, "runtime", "worker start --runtime ecs_udf"),
        (UDF | {"told": 1, "told_at": NOW, "telling_error": "It is away."}, "runtime", "could not be told"),
        ({"queue_paused_at": NOW}, "paused", "queue 'q' is paused"),
        ({"org_max": 2, "org_running": 2}, "limited", "runs 2 tasks, the most it may"),
        ({"org_max": 2, "org_running": 1}, "ready", "come first"),
        ({"queue_rate": 1.5, "queue_tokens": 0.9}, "rate", "1.5 tasks a second"),
        ({"queue_rate": 1.5, "queue_tokens": 1.0}, "ready", "come first"),
        ({"org_rate": 5.0, "org_tokens": 5.0, "worker_heard_at": None}, "no_worker", "no worker serves"),
        ({"readiness": "TIME"}, "scheduled", "in 5 s"),
        ({"readiness": "TIME", "status": "FAILED"}, "retry", "1 of 4 attempts"),
        ({"readiness": "HELD"}, "concurrency", "the slot of key 'k' taken by 5"),
        ({"readiness": "HELD", "job_paused_at": NOW}, "paused", "job 2 is paused"),
        ({"readiness": None, "status": "RUNNING"}, "running", "runs on worker 7, attempt 2"),
        ({"readiness": None, "status": "RUNNING", "lease_expires_at": NOW}, "lease_expired", "reaper"),
        ({"readiness": None, "status": "DEAD_LETTER", "error": "boom"}, "dead_letter", "waits to be redriven"),
        (
            {"readiness": None, "status": "CANCELLED", "cause_id": 9, "cause_type": "x", "cause_status": "FAILED"},
            "cancelled", "because task 'x' (9) is FAILED",
        ),
        ({"readiness": None, "status": "COMPLETED"}, "completed", "over"),
    ],
)  # fmt: skip
def test_why_waiting(facts: dict[str, Any], code: str, words: str) -> None:
    (reason,) = explain(FACTS | facts)
    assert reason.code == code
    assert words in reason.words


SILENT = {
    "readiness": None, "status": "RUNNING", "holder_heard_at": NOW - timedelta(seconds=61),
    "lease_expires_at": NOW + timedelta(seconds=29),
}  # fmt: skip
NOBODY = {"worker_heard_at": None, "available_at": NOW}


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        (SILENT, "silent", "silent for 61 s; unless it is heard of, the lease runs out in 29 s and the task is tried"),
        (SILENT | {"failures": 3}, "silent", "and the task has failed too often"),
        (SILENT | {"cancel_requested_at": NOW}, "silent", "and the task is cancelled"),
        (SILENT | {"lease_expires_at": NOW, "worker_heard_at": None}, "no_worker", "no worker serves queue 'q'"),
        (NOBODY | {"readiness": "TIME", "status": "FAILED"}, "no_worker", "no worker serves queue 'q'"),
        (NOBODY | {"readiness": "TIME"}, "no_worker", "no worker serves queue 'q'"),
    ],
)
def test_why_waiting_says_that_nobody_is_heard_of(facts: dict[str, Any], code: str, words: str) -> None:
    _, reason = explain(FACTS | facts)
    assert reason.code == code
    assert words in reason.words


def test_two_heartbeats_of_silence_are_nothing() -> None:
    assert [each.code for each in explain(FACTS | SILENT | {"holder_heard_at": NOW - timedelta(seconds=59)})] == [
        "running"
    ]
    nothing_due = FACTS | {"readiness": "TIME", "worker_heard_at": None}
    assert [each.code for each in explain(nothing_due)] == ["scheduled"]


@pytest.mark.parametrize(
    ("failures", "luck", "seconds"), [(1, 0.0, 2.0), (2, 0.0, 4.0), (3, 0.5, 8.4), (5, 0.0, 32.0), (99, 0.0, 60.0)]
)
def test_backoff(failures: int, luck: float, seconds: float) -> None:
    assert RetryPolicy(1.0, 60.0).delay_seconds(failures, luck) == pytest.approx(seconds)
