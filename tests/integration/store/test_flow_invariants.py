"""I13: limits of jobs, turns, rates, schedules and the order of compensations, in broken rows."""

from __future__ import annotations

import json

import pytest

from aaiclick.store.engine.invariants import check_invariant

JOB = "INSERT INTO jobs (id, org_id, name, total_tasks, open_tasks, concurrency, schedule_id, trigger)"
ORG = "'00000000-0000-4000-8000-000000000001'::uuid"
TASK = (
    "INSERT INTO tasks (id, job_id, type, entrypoint, kwargs, rate, added_by, claimed_at, completed_at, status,"
    " readiness)"
)
COMPENSATOR = "'aaiclick.orchestration.compensation.run_compensations'"
STEPS = (
    "(2, 1, 's', NULL, '{}', NULL, NULL, NULL, now() - interval '9 s', 'COMPLETED', NULL), "
    "(3, 1, 's', NULL, '{}', NULL, NULL, NULL, now() - interval '8 s', 'COMPLETED', NULL), "
    f"(4, 1, 'c', {COMPENSATOR}, '{{}}', NULL, NULL, now(), now(), 'COMPLETED', NULL), "
)


def compensation(task_id: int, step: int) -> str:
    result = f'{{"result": {{"object_type": "task_result", "task_id": "{step}"}}}}'
    return f"({task_id}, 1, 'u', NULL, '{result}', NULL, 4, now(), now(), 'COMPLETED', NULL)"


def turn(awaited: int | None) -> str:
    kwargs = json.dumps({"job_id": awaited and str(awaited)})
    return f"{TASK} VALUES (9, 2, 'wait_for_turn', 'w', '{kwargs}', NULL, NULL, NULL, NULL, 'PENDING', 'BLOCKED')"


def starts(*seconds: float) -> str:
    rows = (
        f"({n}, NULL, 'r', NULL, '{{}}', '2/10.0', NULL, now() - interval '{s} s', now(), 'COMPLETED', NULL)"
        for n, s in enumerate(seconds, 1)
    )
    return f"{TASK} VALUES {', '.join(rows)}"


def jobs(*rows: str) -> str:
    return f"{JOB} VALUES " + ", ".join(f"({n}, {ORG}, 'j', 0, 0, {row})" for n, row in enumerate(rows, 1))


def nominal(cause: str, hour: int) -> str:
    return f'NULL, 7, \'{{"kind": "{cause}", "nominal": "2026-01-01T{hour:02}:00:00+00:00"}}\''


WAITING = """
    WITH wait AS (
        INSERT INTO waits (task_id, org_id, attempt, wait_type, job_id)
        SELECT 9, org_id, 1, 'job', 1 FROM jobs WHERE id = 2)
    UPDATE tasks SET readiness = 'TIME', available_at = now() + interval '1 day',
        kwargs = kwargs || '{"aaiclick_wait": {"deadline": "2100-01-01"}}'"""
RETRIED = "UPDATE tasks SET status = 'FAILED', next_retry_at = available_at"
REDRIVEN = "UPDATE tasks SET kwargs = kwargs - 'aaiclick_wait'"
ENDED = "UPDATE waits SET job_id = 3"
LIMITED = "1, NULL, NULL"


@pytest.mark.parametrize(
    ("statements", "ids"),
    [
        ([jobs(LIMITED, LIMITED)], [1]),
        ([jobs(LIMITED, LIMITED), turn(1)], []),
        ([jobs("2, NULL, NULL", LIMITED)], []),
        ([jobs(LIMITED, LIMITED), turn(1), WAITING], []),
        ([jobs(LIMITED, LIMITED), turn(1), WAITING, ENDED], [9]),
        ([jobs(LIMITED, LIMITED), turn(1), WAITING, ENDED, RETRIED], []),
        ([jobs(LIMITED, LIMITED), turn(1), WAITING, ENDED, REDRIVEN], []),
        ([jobs(LIMITED, LIMITED), turn(None)], [1]),
        ([starts(1, 5, 9)], [1]),
        ([starts(1, 5, 12)], []),
        ([jobs(nominal("schedule", 3), nominal("backfill", 3))], [2]),
        ([jobs(nominal("schedule", 3), nominal("fire", 3), nominal("schedule", 4))], []),
        ([jobs(LIMITED), f"{TASK} VALUES {STEPS} {compensation(5, 3)}, {compensation(6, 2)}"], []),
        ([jobs(LIMITED), f"{TASK} VALUES {STEPS} {compensation(5, 2)}, {compensation(6, 3)}"], [6]),
    ],
)  # fmt: skip
async def test_broken_rows_violate_i13(db, statements, ids):
    for statement in [*statements, "INSERT INTO dependencies VALUES (5, 6, 'task', 'task')"]:
        await db.execute(statement)
    report = await check_invariant(db, "I13")
    assert sorted(finding.id for finding in report.findings) == ids
