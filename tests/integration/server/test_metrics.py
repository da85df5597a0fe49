"""Metrics: Prometheus' parser reads them, and they match the database."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aaiclick.server.metrics import render_metrics
from aaiclick.store.engine import maintenance, queue
from aaiclick.store.engine.leases_and_outcomes import Failure, Success
from aaiclick.store.engine.maintenance import delete_old_history
from aaiclick.store.enums import BUCKETS, DEFAULT_ORG_ID
from aaiclick.store.metrics import load_metrics
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions

NAMES = {
    "jobs_created", "jobs_completed", "jobs_failed", "job_duration_seconds", "tasks_created", "tasks_completed",
    "tasks_failed", "task_duration_seconds", "task_queue_depth", "workers_active", "worker_task_execution_time",
    "worker_heartbeat_age", "jobs_overdue",
}  # fmt: skip


async def work_a_little(connection):
    """Run tasks: two completed, one dead letter, one waiting for a retry, the rest ready."""
    worker = await queue.register_worker(connection, hostname="h", pid=1)
    claims = await queue.claim(connection, worker_id=worker.id, limit=4, queues=["figures"], lease_seconds=60)
    await queue.start(connection, [claim.lease for claim in claims])
    done, failed, retried = claims[:2], claims[2], claims[3]
    await queue.acknowledge(
        connection,
        worker_id=worker.id,
        successes=[Success(claim.lease, json.dumps(None)) for claim in done],
        failures=[
            Failure(failed.lease, "no", "no", permanent=True),
            Failure(retried.lease, "no", "no", delay_seconds=3600),
        ],
    )
    return worker.id


def test_prometheus_parses_metrics_that_match_the_database(site) -> None:
    writer = site.as_("writer")
    writer.post("/v1/tasks", json={"items": [{"type": "f", "queue": "figures"}] * 7})
    job = writer.post("/v1/jobs", json={"name": "j", "entrypoint": "m.f"}).json()["id"]
    worker = site.run(work_a_little)
    writer.post(f"/v1/jobs/{job}/cancel")
    response = site.as_("operator-reader").get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert set(families) >= NAMES
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    counted = {row["status"]: row["count"] for row in site.sql("SELECT status::text, count(*) FROM tasks GROUP BY 1")}
    assert values["tasks_created_total",] == sum(counted.values()) == 8
    assert values["tasks_completed_total",] == counted["COMPLETED"] == 2
    assert values["tasks_failed_total",] == 1
    assert values["task_attempts_total", "completed"] == 2
    assert values["task_attempts_total", "failed"] == 2
    assert values["task_attempts_total", "timed_out"] == 0
    assert values["task_queue_depth", "default"] == 0
    assert values["jobs_created_total",] == 1
    assert values["jobs_cancelled_total",] == 1
    assert values["task_queue_depth", "figures"] == 3
    assert values["workers_active",] == 1
    assert values["task_duration_seconds_count",] == 2
    assert values["task_duration_seconds_bucket", "+Inf"] == 2
    assert values["worker_task_execution_time_count", str(worker)] == 2
    assert values["worker_heartbeat_age", str(worker)] >= 0
    [took] = site.sql(
        "SELECT sum(extract(epoch FROM completed_at - started_at))::float8 AS s FROM tasks WHERE status = 'COMPLETED'"
    )
    assert abs(values["task_duration_seconds_sum",] - took["s"]) < 1e-6


def test_metrics_are_cached(site) -> None:
    """The second of two scrapes returns the cached text."""
    first = site.as_("operator-admin").get("/metrics").text
    site.as_("writer").post("/v1/tasks", json={"items": [{"type": "later"}]})
    assert site.as_("operator-admin").get("/metrics").text == first


@pytest.fixture
async def db(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def test_counters_do_not_fall_when_retention_deletes(aaiclick_postgres) -> None:
    connection = await connect(aaiclick_postgres)
    ended = "now() - interval '2 s', now() - interval '1 s'"
    await connection.execute(f"""
        INSERT INTO workers (id, hostname, pid) VALUES (9, 'h', 1);
        INSERT INTO queue_minutes (org_id, queue, minute, completed, failed)
        SELECT '{DEFAULT_ORG_ID}', 'q', now() - each * interval '23 hours', 1, 0 FROM generate_series(0, 2) AS each;
        INSERT INTO jobs (id, org_id, name, status, started_at, completed_at, total_tasks)
        VALUES (1, '{DEFAULT_ORG_ID}', 'j', 'COMPLETED', {ended}, 1),
            (2, '{DEFAULT_ORG_ID}', 'j', 'FAILED', {ended}, 0);
        INSERT INTO tasks (id, type, job_id, status, readiness, attempt, worker_id, started_at, completed_at)
        VALUES (3, 't', 1, 'COMPLETED', NULL, 1, 9, {ended}), (4, 't', NULL, 'COMPLETED', NULL, 1, 9, {ended}),
            (5, 't', NULL, 'FAILED', NULL, 1, 9, {ended})""")
    before = _totals(await scrape(connection))
    assert before["tasks_completed_total"] == before["task_duration_seconds_count"] == 2
    assert before["worker_task_execution_time_count"] == 2
    assert before["worker_task_execution_time_sum"] == pytest.approx(2)
    assert await delete_old_history(connection, keep_seconds=0) == {"jobs": 2, "tasks": 2, "workers": 0}
    assert await connection.fetchval("SELECT count(*) FROM tasks") == 0
    assert await connection.fetchval("SELECT count(*) FROM queue_minutes") == 2  # counts of one day
    assert _totals(await scrape(connection)) == before
    await connection.execute("UPDATE workers SET status = 'STOPPED', stopped_at = now() - interval '1 s'")
    assert await delete_old_history(connection, keep_seconds=0) == {"jobs": 0, "tasks": 0, "workers": 1}
    assert _totals(await scrape(connection)) == {
        name: value for name, value in before.items() if not name.startswith("worker_")
    }
    await connection.close()


async def scrape(connection) -> str:
    return render_metrics(await load_metrics(connection, worker_timeout_seconds=90)).decode()


async def _run_job(connection, *, fails: bool) -> int:
    """Create a job of two tasks, and run both in one batch; returns its id."""
    from aaiclick.snowflake import get_snowflake_id
    from aaiclick.store.engine.submission_plan import NewTask, Plan
    from aaiclick.store.engine.submit import NewJob, submit_job

    tasks = [NewTask(id=get_snowflake_id(), type="t", options=TaskOptions(1)) for _ in range(2)]
    job_id = await submit_job(connection, NewJob(id=get_snowflake_id(), org_id=DEFAULT_ORG_ID, name="j"), Plan(tasks))
    await _run_ready(connection, fails=fails)
    return job_id


async def _run_ready(connection, *, fails: bool) -> None:
    worker = await queue.register_worker(connection, hostname="h", pid=1)
    claims = await queue.claim(connection, worker_id=worker.id, limit=10, queues=(), lease_seconds=60)
    assert claims
    await queue.start(connection, [claim.lease for claim in claims])
    await queue.acknowledge(
        connection,
        worker_id=worker.id,
        successes=[Success(claim.lease) for claim in claims if not fails],
        failures=[Failure(claim.lease, "no", "no") for claim in claims if fails],
    )


async def test_counters_do_not_fall_when_tasks_restart(db) -> None:
    """A failed job is retried, a completed task cleared, a job deleted: each end of a task or job counts once."""
    from aaiclick.store.engine import user_actions

    scrapes = [_totals(await scrape(db))]

    async def rises(**expected: int) -> None:
        scrapes.append(_totals(await scrape(db)))
        fallen = {
            name: (value, scrapes[-1][name]) for name, value in scrapes[-2].items() if scrapes[-1].get(name, 0) < value
        }
        assert {name: pair for name, pair in fallen.items() if not name.startswith("worker_")} == {}
        assert {name: scrapes[-1][f"{name}_total"] for name in expected} == expected

    job_id = await _run_job(db, fails=True)
    await rises(jobs_created=1, jobs_failed=1, tasks_created=2, tasks_failed=2)
    await user_actions.retry_failed_tasks(db, job_id)
    await rises(jobs_failed=1, jobs_completed=0, tasks_failed=2)
    await _run_ready(db, fails=False)
    await rises(jobs_created=1, jobs_failed=1, jobs_completed=1, tasks_failed=2, tasks_completed=2)
    task_id = await db.fetchval("SELECT min(id) FROM tasks WHERE job_id = $1", job_id)
    await user_actions.clear_tasks(db, task_id)
    await rises(jobs_completed=1, tasks_completed=2)
    await _run_ready(db, fails=False)
    await rises(jobs_created=1, jobs_completed=2, tasks_created=2, tasks_completed=3)
    await delete_old_history(db, keep_seconds=0)
    assert await db.fetchval("SELECT count(*) FROM jobs") == 0
    await rises(jobs_created=1, jobs_failed=1, jobs_completed=2, tasks_created=2, tasks_completed=3, tasks_failed=2)
    totals = {f"{sample.labels}": sample.value for sample in _samples(await scrape(db), "task_attempts_total")}
    assert (totals["{'outcome': 'completed'}"], totals["{'outcome': 'failed'}"]) == (3, 2)


async def test_merged_counts_are_equal(db, monkeypatch) -> None:
    monkeypatch.setattr(maintenance, "METRIC_MERGE_BATCH_SIZE", 6)
    for _ in range(3):
        await _run_job(db, fails=False)
        await db.execute("DELETE FROM jobs")
    await db.execute("DELETE FROM workers")
    before = _totals(await scrape(db))
    rows = await db.fetchval("SELECT count(*) FROM metric_counts")
    await delete_old_history(db, keep_seconds=3600)
    assert await db.fetchval("SELECT count(*) FROM metric_counts") < rows
    assert _totals(await scrape(db)) == pytest.approx(before)


async def test_workers_active_counts_recent_heartbeats(db) -> None:
    await db.execute("INSERT INTO workers (id, hostname, pid) VALUES (1, 'h', 1), (2, 'h', 2)")
    await db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 day' WHERE id = 2")
    text = await scrape(db)
    assert [sample.value for sample in _samples(text, "workers_active")] == [1]
    ages = {sample.labels["worker"]: sample.value for sample in _samples(text, "worker_heartbeat_age")}
    assert ages["2"] > 80_000


async def test_queue_depth_of_a_known_queue_is_zero(db) -> None:
    await db.execute(
        f"INSERT INTO queues (org_id, name) VALUES ('{DEFAULT_ORG_ID}', 'set');"
        "INSERT INTO workers (id, hostname, pid, queues) VALUES (1, 'h', 1, '{served}');"
        "INSERT INTO queue_minutes (org_id, queue, minute, completed, failed)"
        f"VALUES ('{DEFAULT_ORG_ID}', 'used', now(), 0, 0)"
    )
    depths = {sample.labels["queue"]: sample.value for sample in _samples(await scrape(db), "task_queue_depth")}
    assert depths == {"default": 0, "set": 0, "served": 0, "used": 0}


async def test_buckets_match_those_of_the_database(db) -> None:
    for number, bound in enumerate(BUCKETS):
        assert await db.fetchval("SELECT aaiclick_bucket($1 - 0.001)", bound) == number
        assert await db.fetchval("SELECT aaiclick_bucket($1)", bound) == number + 1


def _samples(text: str, name: str):
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples if sample.name == name]


def _totals(text: str) -> dict[str, float]:
    """All counters, and the buckets of histograms."""
    return {
        f"{sample.name}{sample.labels.get('le', '')}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.type in ("counter", "histogram", "summary")
    }


async def test_labels_are_escaped(aaiclick_postgres) -> None:
    connection = await connect(aaiclick_postgres)
    await connection.execute("INSERT INTO tasks (id, type, queue) VALUES (1, 't', E'a\"b\\n\\\\')")
    text = render_metrics(await load_metrics(connection, worker_timeout_seconds=90)).decode()
    await connection.close()
    [depth] = [family for family in text_string_to_metric_families(text) if family.name == "task_queue_depth"]
    assert {"queue": 'a"b\n\\'} in [sample.labels for sample in depth.samples]
