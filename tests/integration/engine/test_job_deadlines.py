"""Deadlines of jobs: an overdue job opens one incident, which a later job in time closes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aaiclick.errors import AaiclickError
from aaiclick.orchestration import OrchContext, job, run_job_test
from aaiclick.orchestration.loops import incidents
from aaiclick.store.metrics import load_metrics
from tests.integration.engine.limited_jobs import punctual, work

HOUR = timedelta(hours=1)


@pytest.fixture
async def context(aaiclick_env):
    async with OrchContext() as context:
        yield context


async def run_loop(connection, after: timedelta) -> None:
    incidents._last_checked = 0
    await incidents.run_once(connection, now=await connection.fetchval("SELECT now()") + after)


async def test_overdue_jobs_open_one_incident_until_one_completes(context):
    late = [await punctual(1), await punctual(2)]
    async with context.connection() as connection:
        await run_loop(connection, HOUR)
        assert await connection.fetchval("SELECT count(*) FROM incidents") == 0
        for _ in range(2):
            await run_loop(connection, 3 * HOUR)
        (incident,) = await connection.fetch("SELECT * FROM incidents")
        assert (incident["rule"], incident["title"]) == ("deadline_missed", "Job punctual is overdue")
        assert (incident["job_name"], incident["count"], incident["closed_at"]) == ("punctual", 2, None)
        assert f"aaiclick jobs show {incident['job_id']}" in incident["cause"]
        rows = await connection.fetch("SELECT id, created_at, due_at, missed_at FROM jobs ORDER BY id")
        assert [row["id"] for row in rows] == [submitted.id for submitted in late]
        assert all(row["due_at"] - row["created_at"] == 2 * HOUR and row["missed_at"] > row["due_at"] for row in rows)
        assert (await load_metrics(connection, worker_timeout_seconds=90)).overdue_jobs == 0
        await connection.execute("UPDATE jobs SET due_at = now() - interval '1 hour' WHERE id = $1", late[0].id)
        assert (await load_metrics(connection, worker_timeout_seconds=90)).overdue_jobs == 1
        assert run_job_test(await punctual(3)).status == "COMPLETED"
        await run_loop(connection, 4 * HOUR)
        assert await connection.fetchval("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == 0


async def test_finished_job_is_never_overdue(context):
    assert run_job_test(await punctual(1)).status == "COMPLETED"
    async with context.connection() as connection:
        await run_loop(connection, 3 * HOUR)
        assert await connection.fetchval("SELECT count(*) FROM incidents") == 0


@pytest.mark.parametrize("deadline", ["soon", "0s", "-1h", ""])
def test_invalid_deadline_is_refused_at_decoration(deadline):
    def nightly() -> None:
        work(1)

    with pytest.raises(AaiclickError):
        job(deadline=deadline)(nightly)
