"""Backfills: times of a schedule, partitions of an input."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from aaiclick import failpoints
from aaiclick.catalog import backfill
from aaiclick.cli.dag import dag as command
from aaiclick.errors import ConflictError, NotFoundError, RequestError
from aaiclick.orchestration.loops import scheduler
from aaiclick.store.catalog import dag_sources
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.integration.catalog.conftest import SHOP, order


async def plan(shop, job, first, last):
    async def clickhouse():
        return shop.clickhouse

    return await backfill.plan_backfill(shop.db, clickhouse, DEFAULT_ORG_ID, "shop", job, first, last)


async def run_command(*arguments):
    result = await asyncio.to_thread(
        CliRunner().invoke, command, ["backfill", "shop", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


async def started(shop):
    """The jobs after the scheduled one."""
    return [row["id"] for row in await shop.db.fetch("SELECT id FROM jobs ORDER BY id OFFSET 1")]


async def test_missing_times_are_previewed_then_run_once(shop):
    await shop.deploy()
    due = datetime(2026, 3, 2, 6, tzinfo=UTC)
    await shop.db.execute("UPDATE job_definitions SET next_run_at = $1 WHERE name = 'fetch'", due)
    await scheduler.run_once(shop.db, now=due)
    options = ("--job", "fetch", "--from", "2026-03-01", "--to", "2026-03-03", "-o", "json")
    done, note = await run_command(*options, "--dry-run")
    assert [step["status"] for step in done["steps"]] == [None, "PENDING", None]
    assert (done["job"], done["count"], done["before"], done["job_ids"]) == ("fetch", 2, 1, [])
    assert "2 runs of fetch would start. 1 have run already." in note
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 1
    done, _ = await run_command(*options)
    assert [step["status"] for step in done["steps"]] == [None, "PENDING", None]
    assert [int(job_id) for job_id in done["job_ids"]] == await started(shop)
    tasks = await shop.db.fetch("SELECT readiness::text, kwargs->'event'->>'nominal' AS nominal FROM tasks "
                                "WHERE concurrency_limit = 1 ORDER BY id")  # fmt: skip
    assert [tuple(row) for row in tasks] == [
        ("READY", "2026-03-01T06:00:00+00:00"), ("HELD", "2026-03-03T06:00:00+00:00"),
    ]  # fmt: skip
    assert [step["status"] for step in (await run_command(*options))[0]["steps"]] == ["PENDING"] * 3
    # The schedule skips times that the backfill has run.
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 3
    await scheduler.run_once(shop.db, now=due + timedelta(days=1))
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 3
    for row in await shop.db.fetch("SELECT id FROM jobs"):
        assert await shop.finish(row["id"]) == "COMPLETED"
    assert [step.status for step in (await plan(shop, "fetch", "2026-03-01", "2026-03-03")).steps] == ["COMPLETED"] * 3
    await shop.check()


async def test_partitions_run_in_one_job_and_again_after_changes(shop, aaiclick_postgres):
    await shop.deploy(SHOP.replace("execution_strategy: PerPartition", "execution_strategy: PerPartition\n"
                                   "    memoize: false\n    scaling: {max_concurrency: 2}"))  # fmt: skip
    first = await shop.run(*(order(n, n, 10) for n in range(1, 6)))
    table = await shop.db.fetchval("SELECT v.storage_location FROM dataset_versions v JOIN datasets d "
                                   "ON d.id = v.dataset_uuid WHERE d.name = 'daily'")  # fmt: skip
    ran = await plan(shop, "sums", "2026-01-01", "2026-01-05")
    assert [(step.job_id, step.status) for step in ran.steps] == [(first, "COMPLETED")] * 5
    await shop.clickhouse.run(f"TRUNCATE TABLE {table}")
    await shop.db.execute("UPDATE dataset_partitions SET inputs_hash = NULL WHERE partition_key > '2026-01-01'")
    planned = await plan(shop, "sums", "2026-01-02", "2026-01-04")
    assert [step.name for step in planned.to_run] == ["2026-01-02", "2026-01-03", "2026-01-04"]
    other = await connect(aaiclick_postgres)
    started = await asyncio.gather(*(backfill.start_backfill(connection, planned) for connection in (shop.db, other)))
    await other.close()
    (job_id,) = [*started[0], *started[1]]
    states = await shop.db.fetch("SELECT readiness::text FROM tasks WHERE job_id = $1 ORDER BY id", job_id)
    assert [row["readiness"] for row in states] == ["READY", "READY", "HELD"]
    assert await shop.finish(job_id) == "COMPLETED"
    assert await shop.rows("daily") == [(f"2026-01-0{day}", 10) for day in (2, 3, 4)]
    again = await plan(shop, "sums", "2026-01-02", "2026-01-04")
    assert [(step.job_id, step.status) for step in again.steps] == [(job_id, "COMPLETED")] * 3
    assert await backfill.start_backfill(shop.db, again) == []
    second = await shop.run(order(3, 3, 30))
    (step,) = (await plan(shop, "sums", "2026-01-03", "2026-01-03")).steps
    assert (step.job_id, step.status) == (second, "COMPLETED")
    await shop.db.execute("DELETE FROM jobs WHERE id = $1", second)  # the run is recorded, but its job is deleted
    (step,) = (await plan(shop, "sums", "2026-01-03", "2026-01-03")).steps
    assert (step.job_id, step.status) == (None, "COMPLETED")
    await shop.check()


async def test_appended_partitions_count_as_run_if_read_since(shop):
    await shop.deploy(SHOP.replace("execution_strategy: PerPartition", "execution_strategy: PerPartition\n"
                                   "    update_strategy: append\n    unique_key: [day]"))  # fmt: skip
    job_id = await shop.run(*(order(n, n, 10) for n in range(1, 4)))
    steps = (await plan(shop, "sums", "2026-01-01", "2026-01-03")).steps
    assert [(step.job_id, step.status) for step in steps] == [(job_id, "COMPLETED")] * 3
    await shop.db.execute("UPDATE dataset_partitions SET updated_at = now() WHERE partition_key = '2026-01-02'")
    assert [step.name for step in (await plan(shop, "sums", "2026-01-01", "2026-01-03")).to_run] == ["2026-01-02"]


@pytest.mark.parametrize(("failpoint", "there"), [("backfill.before", 0), ("backfill.after", 2)])
async def test_killed_backfill_starts_all_or_nothing(shop, failpoint, there):
    await shop.deploy()
    planned = await plan(shop, "fetch", "2026-03-01", "2026-03-02")
    failpoints.arm_faults(f"{failpoint}=error", None)
    with pytest.raises(failpoints.FaultError):
        await backfill.start_backfill(shop.db, planned)
    failpoints.arm_faults("", None)
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == there
    assert len(await backfill.start_backfill(shop.db, planned)) == 2 - there
    assert await shop.db.fetchval("SELECT count(*) FROM jobs") == 2


async def test_invalid_backfill_is_refused_with_reason(shop):
    await shop.deploy()
    with pytest.raises(ConflictError, match="Several definitions of 'shop' can be backfilled: fetch, sums"):
        await plan(shop, None, "2026-01-01", "2026-01-02")
    with pytest.raises(RequestError, match=r"shop\.tidy is neither started by a schedule nor run per partition"):
        await plan(shop, "tidy", "2026-01-01", "2026-01-02")
    with pytest.raises(NotFoundError, match="'shop' has no definition 'none'"):
        await plan(shop, "none", "2026-01-01", "2026-01-02")
    with pytest.raises(ConflictError, match=r"No input of shop\.sums has partitions yet"):
        await plan(shop, "sums", "2026-01-01", "2026-01-02")
    planned = await plan(shop, "fetch", "2026-03-01", "2026-03-02")
    await dag_sources.pause_dag(shop.db, DEFAULT_ORG_ID, "shop")
    with pytest.raises(ConflictError, match="'shop' is paused"):
        await backfill.start_backfill(shop.db, planned)
    await dag_sources.resume_dag(shop.db, DEFAULT_ORG_ID, "shop")
    await shop.deploy(SHOP.replace("max_attempts: 5", "max_attempts: 4"))
    with pytest.raises(ConflictError, match="Another version of 'shop' is serving now"):
        await backfill.start_backfill(shop.db, planned)
