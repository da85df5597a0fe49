"""Invariant I11: references between organisations are found and counted."""

from __future__ import annotations

import pytest

from aaiclick.catalog.deploy import deploy
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.invariants import INVARIANTS, check_invariant, check_invariants
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.orgs import create_org

DAG = """
name: shop
jobs:
  - {name: sell, activation: source, operator: python, source: {kind: cron, schedule: "0 6 1 1 *"}, outputs: [raw],
     config: {function: "os:getcwd"}}
"""
WORKER = "INSERT INTO workers (id, pid, hostname, queues, org_id) VALUES (1, 1, 'h', '{default}', $1)"


@pytest.fixture
async def db(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


@pytest.fixture
async def other(db):
    return (await create_org(db, name="Other", slug="other")).id


async def task(db, *, org=DEFAULT_ORG_ID, job=None, **columns) -> int:
    """Insert a completed task."""
    task_id = get_snowflake_id()
    values = {"id": task_id, "org_id": org, "job_id": job, "type": "t", **columns}
    parameters = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await db.execute(
        f"INSERT INTO tasks ({', '.join(values)}, status, readiness, completed_at)"
        f" VALUES ({parameters}, 'COMPLETED', NULL, now())",
        *values.values(),
    )
    return task_id


async def job(db, *, tasks=0) -> int:
    job_id = get_snowflake_id()
    await db.execute(
        "INSERT INTO jobs (id, org_id, name, status, completed_at, total_tasks)"
        " VALUES ($1, $2, 'j', 'COMPLETED', now(), $3)",
        job_id, DEFAULT_ORG_ID, tasks,
    )  # fmt: skip
    return job_id


async def table(db, *, org, owner, owner_id, job_id=None) -> None:
    await db.execute("INSERT INTO table_refcounts (table_name, org_id) VALUES ('t1', $1)", org)
    await db.execute(
        "INSERT INTO table_references (table_name, owner, owner_id, job_id)"
        " VALUES ('t1', $1::text::reference_owner, $2, $3)",
        owner, owner_id, job_id,
    )  # fmt: skip


async def in_anothers_job(db, other):
    return f"task {await task(db, org=other, job=await job(db, tasks=1))}: of org {other}, in job"


async def by_anothers_definition(db, other):
    await deploy(db, DAG)
    definition = await db.fetchval("SELECT id FROM job_definitions")
    return f"task {await task(db, org=other, definition_id=definition)}: of org {other}, by definition {definition}"


async def taken_by_anothers_worker(db, other):
    await db.execute(WORKER, other)
    return f"task {await task(db, worker_id=1)}: of org {DEFAULT_ORG_ID}, taken by worker 1 of org {other}"


async def waiting_for_anothers(db, other):
    first, second = await task(db, org=other, has_dependents=True), await task(db)
    await db.execute("INSERT INTO dependencies VALUES ($1, $2, 'task', 'task')", first, second)
    return f"task {second}: of org {DEFAULT_ORG_ID}, waits for task {first} of org {other}"


async def a_task_with_anothers_table(db, other):
    task_id = await task(db)
    await table(db, org=other, owner="RESULT", owner_id=task_id)
    return f"task {task_id}: of org {DEFAULT_ORG_ID}, holds t1 of org {other}"


async def a_job_with_anothers_table(db, other):
    job_id = await job(db)
    await table(db, org=other, owner="JOB", owner_id=job_id, job_id=job_id)
    return f"job {job_id}: of org {DEFAULT_ORG_ID}, holds t1 of org {other}"


@pytest.mark.parametrize(
    "cross",
    [
        in_anothers_job, by_anothers_definition, taken_by_anothers_worker, waiting_for_anothers,
        a_task_with_anothers_table, a_job_with_anothers_table,
    ],
)  # fmt: skip
async def test_references_across_orgs_violate_i11(db, other, cross):
    assert await check_invariants(db) == []
    expected = await cross(db, other)
    [violation] = await check_invariants(db)
    assert f"{violation.kind} {violation.id}: {violation.finding}".startswith(expected)
    assert violation.invariant == "I11"


async def test_references_within_one_org_are_valid(db, other):
    await db.execute(WORKER, other)
    task_id = await task(db, org=other, worker_id=1)
    await table(db, org=other, owner="RESULT", owner_id=task_id)
    await db.execute("UPDATE workers SET org_id = NULL")
    await task(db, worker_id=1)
    assert await check_invariants(db) == []


async def test_all_violations_are_counted_and_100_are_listed(db):
    rows = await db.execute(
        "INSERT INTO jobs (id, org_id, name, total_tasks, open_tasks)"
        " SELECT n, $1, 'lost', 3, 3 FROM generate_series(1, 250) AS n",
        DEFAULT_ORG_ID,
    )
    assert rows == "INSERT 0 250"
    report = await check_invariant(db, "I6")
    assert (report.count, len(report.findings)) == (250, 100)


def test_every_invariant_has_a_remedy():
    assert [f"I{n}" for n in range(1, 14) if n != 8] == list(INVARIANTS), "I8 is of both databases"
    assert all(invariant.remedy.endswith(".") for invariant in INVARIANTS.values())
