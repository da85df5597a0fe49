"""Detection of source states that contradict their tasks."""

from __future__ import annotations

import pytest

from aaiclick.catalog.deploy import deploy
from aaiclick.chaos.dag_workload import DAG
from aaiclick.chaos.source_states import SourceMonitor, find_wrong_states
from aaiclick.store.postgres_connections import connect

TASK = """
    INSERT INTO tasks (id, type, definition_id, status, readiness, attempt, failures, worker_id, lease_token,
        lease_expires_at, claimed_at, completed_at)
    SELECT 1, 't', d.id, {status}, {readiness}, 1, {failures}, 9, {token}, now() + interval '{seconds} s', now(),
        {ended}
    FROM job_definitions d WHERE d.name = 'sell'
"""
LEASED = {"status": "'RUNNING'", "readiness": "NULL", "failures": 0, "token": "gen_random_uuid()", "ended": "NULL"}
LIVE = TASK.format(**LEASED, seconds=60)
EXPIRED = TASK.format(**LEASED, seconds=-60)
UNLEASED = {"token": "NULL", "seconds": 0}
RETRY = TASK.format(status="'PENDING'", readiness="'READY'", failures=1, ended="NULL", **UNLEASED)
QUEUED = TASK.format(status="'PENDING'", readiness="'READY'", failures=0, ended="NULL", **UNLEASED)
COMPLETED = TASK.format(status="'COMPLETED'", readiness="NULL", failures=1, ended="now()", **UNLEASED)

RIGHT = [
    ("Pending", None), ("Pending", QUEUED), ("Pending", COMPLETED), ("Running", LIVE), ("Draining", LIVE),
    ("Dead", EXPIRED), ("Dead", RETRY),
]  # fmt: skip
WRONG = [
    ("Running", None), ("Running", QUEUED), ("Running", RETRY), ("Running", COMPLETED), ("Running", EXPIRED),
    ("Draining", QUEUED), ("Dead", None), ("Dead", QUEUED), ("Dead", COMPLETED), ("Dead", LIVE), ("Pending", LIVE),
]  # fmt: skip


@pytest.fixture
async def db(aaiclick_env, aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    await deploy(connection, DAG)
    yield connection
    await connection.execute("ALTER TABLE tasks ENABLE TRIGGER source_status")
    await connection.close()


async def set_up(db, status: str, task: str | None) -> None:
    await db.execute("ALTER TABLE tasks DISABLE TRIGGER source_status")
    if task is not None:
        await db.execute(task)
    await db.execute("UPDATE job_definitions SET status = $1 WHERE name = 'sell'", status)


@pytest.mark.parametrize(("status", "task"), RIGHT)
async def test_consistent_source_states_are_not_reported(db, status, task) -> None:
    await set_up(db, status, task)
    assert await find_wrong_states(db) == {}


@pytest.mark.parametrize(("status", "task"), WRONG)
async def test_inconsistent_source_states_are_reported(db, status, task) -> None:
    await set_up(db, status, task)
    assert await find_wrong_states(db) == {"chaos.sell": status}


def test_wrong_state_is_reported_after_time_limit(aaiclick_postgres) -> None:
    monitor = SourceMonitor(aaiclick_postgres, wrong_seconds=10)
    for states, now in (({"a": "Dead"}, 0.0), ({"a": "Dead"}, 9.0), ({"a": "Running"}, 11.0), ({}, 12.0)):
        monitor.check_states(states, now)
    monitor.check_states({"a": "Running"}, 13.0)
    monitor.check_states({"a": "Running"}, 23.0)
    assert monitor.findings == []
    monitor.check_states({"a": "Running"}, 23.1)
    monitor.check_states({"a": "Running"}, 24.0)
    assert monitor.findings == ["the source a is Running for more than 10 s, which contradicts its tasks"]
