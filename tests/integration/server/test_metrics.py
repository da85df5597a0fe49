"""Figures: Prometheus' own parser reads them, and they are the database's."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aaiclick.server.figures import render
from aaiclick.store import queue
from aaiclick.store.figures import count_all
from aaiclick.store.leases import Failure, Success
from aaiclick.store.words import DEFAULT_ORG_ID

NAMES = {
    "jobs_created", "jobs_completed", "jobs_failed", "job_duration_seconds", "tasks_created", "tasks_completed",
    "tasks_failed", "task_duration_seconds", "task_queue_depth", "workers_active", "worker_task_execution_time",
    "worker_heartbeat_age",
}  # fmt: skip


async def work_a_little(connection):
    """Two completed, one dead, one waiting for its retry, the rest waiting."""
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


def test_prometheus_reads_the_figures_and_they_are_the_databases(site) -> None:
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


def test_figures_are_kept_for_a_moment(site) -> None:
    """Scrapes in a row count once: the second answer is the first."""
    first = site.as_("operator-admin").get("/metrics").text
    site.as_("writer").post("/v1/tasks", json={"items": [{"type": "later"}]})
    assert site.as_("operator-admin").get("/metrics").text == first


async def test_counters_do_not_fall_when_retention_deletes(aaiclick_postgres) -> None:
    from aaiclick.store.engine import connect
    from aaiclick.store.upkeep import forget

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
    before = _totals(render(await count_all(connection)).decode())
    assert before["tasks_completed_total"] == before["task_duration_seconds_count"] == 2
    assert before["worker_task_execution_time_count"] == 2
    assert before["worker_task_execution_time_sum"] == pytest.approx(2)
    assert await forget(connection, keep_seconds=0) == {"jobs": 2, "tasks": 2, "workers": 0}
    assert await connection.fetchval("SELECT count(*) FROM tasks") == 0
    assert await connection.fetchval("SELECT count(*) FROM queue_minutes") == 2  # those of a day
    assert _totals(render(await count_all(connection)).decode()) == before
    await connection.execute("UPDATE workers SET status = 'STOPPED', stopped_at = now() - interval '1 s'")
    assert await forget(connection, keep_seconds=0) == {"jobs": 0, "tasks": 0, "workers": 1}
    assert await connection.fetchval("SELECT count(*) FROM forgotten_figures WHERE kind = 'worker'") == 0
    await connection.close()


def _totals(text: str) -> dict[str, float]:
    """Whatever only rises; of a duration also how it is spread."""
    return {
        f"{sample.name}{sample.labels.get('le', '')}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.type in ("counter", "histogram", "summary")
    }


async def test_labels_are_escaped(aaiclick_postgres) -> None:
    from aaiclick.store.engine import connect

    connection = await connect(aaiclick_postgres)
    await connection.execute("INSERT INTO tasks (id, type, queue) VALUES (1, 't', E'a\"b\\n\\\\')")
    text = render(await count_all(connection)).decode()
    await connection.close()
    [depth] = [family for family in text_string_to_metric_families(text) if family.name == "task_queue_depth"]
    assert depth.samples[0].labels == {"queue": 'a"b\n\\'}
