"""Running DAGs: events, update strategies, reuse, deploys with fills, and rollbacks."""

from __future__ import annotations

import asyncio
import json
import os
from subprocess import PIPE

import pytest
from click.testing import CliRunner

from aaiclick.catalog.deploy import deploy, roll_back
from aaiclick.catalog.errors import DeployError
from aaiclick.catalog.execution import definition_task as running_task
from aaiclick.cli.tasks import tasks
from aaiclick.data.errors import QueryError
from aaiclick.errors import LeaseLost
from aaiclick.orchestration import RetryPolicy, set_retry_policy
from aaiclick.store.catalog import dag_sources, dataset_events, definition_runs, event_routing
from aaiclick.store.engine import queue
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.fork_server import FORK_SERVER
from tests.integration.catalog.conftest import JOBS, SHOP, order

CHANGED = SHOP.replace("id > 0", "id > 1")


async def test_event_runs_all_downstream_in_one_job(shop):
    await shop.deploy()
    job_id = await shop.run(order(1, 1, 10), order(2, 2, 20), order(3, 1, 30))
    assert await shop.tasks(job_id) == [
        ("fetch",), ("tidy",), ("sums", "2026-01-01"), ("sums", "2026-01-02"), ("twice",),
    ]  # fmt: skip
    assert await shop.rows("daily") == [("2026-01-01", 40), ("2026-01-02", 20)]
    assert await shop.rows("shop.doubled") == [(1, 20), (2, 40), (3, 60)]
    generations = await shop.db.fetch("SELECT rows, schema_hash, updated_at FROM dataset_versions ORDER BY ticket")
    assert [row["rows"] for row in generations] == [3, 3, 2, 3] or [row["rows"] for row in generations] == [3, 3, 3, 2]
    assert all(row["schema_hash"] and row["updated_at"] for row in generations)
    read = await shop.db.fetch("SELECT DISTINCT d.name, i.input_partition_key AS key FROM task_inputs i "
                               "JOIN datasets d ON d.id = i.input_dataset_uuid ORDER BY 1, 2")  # fmt: skip
    assert [tuple(row) for row in read] == [
        ("shop.orders", ""), ("shop.orders", "2026-01-01"), ("shop.orders", "2026-01-02"), ("shop.raw", ""),
    ]  # fmt: skip
    lineage = await shop.db.fetch("SELECT o.name, l.output_column, i.name, l.input_column FROM column_lineage l "
                                  "JOIN datasets o ON o.id = l.output_dataset_uuid "
                                  "JOIN datasets i ON i.id = l.input_dataset_uuid")  # fmt: skip
    assert {tuple(row) for row in lineage} >= {
        ("daily", "total", "shop.orders", "amount"), ("shop.doubled", "doubled", "shop.orders", "amount"),
    }  # fmt: skip
    await shop.check()


async def test_append_replaces_rows_by_key_and_rebuilds_touched_partitions(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 2, 20), order(3, 3, 30))
    job_id = await shop.run(order(2, 1, 25))
    assert await shop.rows("shop.raw") == [(1, "2026-01-01", 10), (2, "2026-01-01", 25), (3, "2026-01-03", 30)]
    assert await shop.rows("daily") == [("2026-01-01", 35), ("2026-01-03", 30)]
    assert [task for task in await shop.tasks(job_id) if task[0] == "sums"] == [
        ("sums", "2026-01-01"), ("sums", "2026-01-02"),
    ]  # fmt: skip


LETTERS = f"""
name: letters
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [{{name: raw, partition_by: day}}]
    update_strategy: append
    unique_key: [k]
    config: {{function: "{JOBS}:fetch"}}
  - name: tidy
    activation: reactive
    operator: sql
    outputs: [tidied]
    config: {{query: "SELECT k, n, d FROM raw ORDER BY k DESC LIMIT 1"}}
  - name: copy
    activation: reactive
    operator: sql
    outputs: [copied]
    config: {{query: "SELECT k, n, d FROM tidied"}}
  - name: days
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [daily]
    config: {{query: "SELECT day, count() AS many FROM raw GROUP BY day"}}
"""


async def test_changes_are_detected_with_reserved_looking_columns(shop):
    """Column names equal to aliases in the generated statements."""
    await shop.deploy(LETTERS)
    row = {"k": 1, "n": 1, "d": 1, "day": "2026-01-01"}
    await shop.run(row, dag="letters")
    for changed in ("n", "d"):
        row = row | {changed: 2}
        await shop.run(row, dag="letters")
        assert await shop.rows("letters.copied", dag="letters") == [(1, row["n"], row["d"])]
    await shop.run(row | {"k": 2}, dag="letters")
    assert await shop.rows("letters.copied", dag="letters") == [(2, 2, 2)]
    await shop.run(row | {"day": "2026-01-02"}, dag="letters")
    assert await shop.rows("letters.daily", dag="letters") == [("2026-01-01", 1), ("2026-01-02", 1)]


async def test_late_appended_rows_are_kept(shop):
    """A later run was faster: nothing of the slower one is lost."""
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 2, 20))
    overtaken = (
        "UPDATE dataset_partitions SET ticket = ticket + 1000000000000 WHERE dataset_version IN "
        "(SELECT v.id FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_uuid WHERE d.name = 'shop.raw')"
    )
    assert await shop.db.execute(overtaken) == "UPDATE 1"
    await shop.run(order(3, 1, 30))
    assert await shop.rows("shop.raw") == [(1, "2026-01-01", 10), (2, "2026-01-02", 20), (3, "2026-01-01", 30)]
    assert await shop.rows("daily") == [("2026-01-01", 40), ("2026-01-02", 20)]


async def test_unchanged_inputs_reuse_outputs(shop, monkeypatch):
    logged: list[str] = []
    monkeypatch.setattr(running_task, "print", logged.append, raising=False)
    await shop.deploy()
    first = await shop.run(order(1, 1, 10))
    again = await shop.run(order(1, 1, 10))
    # The output for the new rows is unchanged, so no dependent runs.
    assert await shop.tasks(again) == [("fetch",), ("tidy",), ("twice",)]
    (reused,) = await shop.outputs(again, "twice")
    (maker,) = await shop.db.fetch("SELECT id FROM tasks WHERE job_id = $1 AND type = 'shop.twice'", first)
    assert reused == {"reused": [{"partition": "", "made_by": [str(maker["id"])]}]}
    assert logged == [f"Skipped: the output was already computed from the same inputs by task {maker['id']}."]
    arguments = ["ls", str(again), "-o", "json"]
    listed = await asyncio.to_thread(CliRunner().invoke, tasks, arguments, catch_exceptions=False)
    assert f"reused from task {maker['id']}" in [line["output_summary"] for line in json.loads(listed.stdout)]
    await shop.deploy(SHOP.replace("outputs: [{name: doubled", "memoize: false\n    outputs: [{name: doubled"))
    (outputs,) = await shop.outputs(await shop.run(order(1, 1, 10)), "twice")
    assert outputs["doubled"]["rows"] == 1


async def test_deploy_fills_new_generations_and_rollback_restores_old(shop):
    first = await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 1, 20), order(3, 2, 30))
    before = {name: await shop.rows(name) for name in ("daily", "shop.orders", "shop.doubled", "shop.raw")}
    begun = await deploy(shop.db, CHANGED)
    assert not begun.serves
    assert {name: await shop.rows(name) for name in before} == before
    early = await deploy(shop.db, CHANGED, resume=True)
    assert (early.serves, early.job_id) == (False, begun.job_id)
    assert await shop.finish(begun.job_id) == "COMPLETED"
    assert {name: await shop.rows(name) for name in before} == before
    assert (await deploy(shop.db, CHANGED, resume=True)).serves
    assert await shop.rows("daily") == [("2026-01-01", 20), ("2026-01-02", 30)]
    assert await shop.rows("shop.raw") == before["shop.raw"]
    assert [task[0] for task in await shop.tasks(begun.job_id)].count("fetch") == 0
    # While the new version serves, only its data is updated; the old version catches up after the rollback.
    await shop.run(order(4, 2, 40))
    back = await roll_back(shop.db, "shop")
    assert back.version_id == first.version_id
    assert await shop.rows("daily") == before["daily"]
    catch_up = await shop.db.fetchval("SELECT id FROM jobs WHERE name = 'shop (catch up)' AND completed_at IS NULL")
    assert await shop.finish(catch_up) == "COMPLETED"
    assert await shop.rows("daily") == [("2026-01-01", 30), ("2026-01-02", 70)]
    await shop.check()


async def test_rows_that_arrive_during_fill_are_included(shop):
    await shop.deploy()
    await shop.run(order(2, 1, 10))
    begun = await deploy(shop.db, CHANGED)
    assert await shop.finish(begun.job_id) == "COMPLETED"
    await shop.run(order(3, 1, 5))
    await deploy(shop.db, CHANGED, resume=True)
    catch_up = await shop.db.fetchval("SELECT id FROM jobs WHERE name = 'shop (catch up)'")
    assert await shop.finish(catch_up) == "COMPLETED"
    assert await shop.rows("daily") == [("2026-01-01", 15)]


async def test_failed_fill_keeps_old_version_and_can_be_repeated(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    query = "SELECT id, day, intDiv(amount, id - 1) AS amount FROM raw"
    broken = SHOP.replace("SELECT id, day, amount FROM raw WHERE id > 0", query)
    broken = broken.replace("max_attempts: 5", "max_attempts: 1")
    begun = await deploy(shop.db, broken)
    assert await shop.finish(begun.job_id) == "FAILED"
    assert await shop.rows("daily") == [("2026-01-01", 10)]
    await shop.run(order(1, 1, 11))
    assert await shop.rows("daily") == [("2026-01-01", 11)]
    again = await deploy(shop.db, broken)
    assert again.job_id not in (None, begun.job_id)


async def test_only_permanent_query_errors_are_not_retried(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    tried = "SELECT failures, error FROM tasks WHERE type = 'shop.tidy' ORDER BY id DESC LIMIT 1"

    async def tidied_by(query):
        text = SHOP.replace("SELECT id, day, amount FROM raw WHERE id > 0", query)
        begun = await deploy(shop.db, text.replace("max_attempts: 5", "max_attempts: 2"))
        assert await shop.finish(begun.job_id) == "FAILED"
        return await shop.db.fetchrow(tried)

    await set_retry_policy("shop.tidy", RetryPolicy(base_seconds=0.01, cap_seconds=0.01))
    failures, error = await tidied_by(
        "SELECT id, day, amount + day AS amount FROM raw"
    )  # number plus text: a permanent error
    assert (failures, "a retry will fail too" in error) == (1, True)
    failures, error = await tidied_by(
        "SELECT id, day, intDiv(amount, id - 1) AS amount FROM raw"
    )  # depends on values: retried
    assert (failures, "a retry will fail too" in error) == (2, False)
    for text, lasting in (("SELEC 1", True), ("SELECT sum(x) FROM numbers(3)", True), ("SELECT toUInt8('x')", False)):
        with pytest.raises(QueryError) as caught:
            await shop.clickhouse.run(text)
        assert caught.value.permanent is lasting
    with pytest.raises(QueryError, match="memory") as caught:
        await shop.clickhouse.run(
            "SELECT groupArray(number) FROM numbers(9999999)", settings={"max_memory_usage": 1_000_000}
        )
    assert not caught.value.permanent
    # A missing table is a permanent error; changing columns are not.
    await shop.deploy(SHOP.replace("max_attempts: 5", "max_attempts: 5, memoize: false"))
    table = await shop.db.fetchval(
        "SELECT storage_location FROM dataset_versions v JOIN datasets d ON d.id = dataset_uuid WHERE name = 'shop.raw'"
    )
    await shop.clickhouse.run(f"ALTER TABLE {table} RENAME COLUMN amount TO sum")
    job_id = await shop.emit("shop.raw", 1)
    assert await shop.finish(job_id) == "FAILED"
    failures, error = await shop.db.fetchrow(tried)
    assert failures == 5
    assert "were changing while they were read" in error
    await shop.clickhouse.run(f"DROP TABLE {table} SYNC")
    job_id = await shop.emit("shop.raw", 1)
    assert await shop.finish(job_id) == "FAILED"
    failures, error = await shop.db.fetchrow(tried)
    assert failures == 1
    assert "The rows of 'raw' are missing in ClickHouse." in error


async def filled(shop, text):
    """A deploy that has begun and does not serve yet."""
    begun = await deploy(shop.db, text)
    assert await shop.finish(begun.job_id) == "COMPLETED"
    return begun


async def test_deploys_take_effect_in_the_order_in_which_they_began(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 1, 20), order(3, 2, 30))
    await filled(shop, CHANGED)
    newer = await filled(shop, SHOP.replace("id > 0", "id > 2"))
    await deploy(shop.db, SHOP.replace("id > 0", "id > 2"), resume=True)
    with pytest.raises(DeployError, match=rf"{newer.version_hash[:12]} of 'shop', deployed after .* already serves"):
        await deploy(shop.db, CHANGED, resume=True)
    assert await shop.rows("daily") == [("2026-01-02", 30)]
    # Deployed again, it is the latest one.
    assert (await deploy(shop.db, CHANGED)).serves
    first, second = SHOP.replace("id > 0", "id > 3"), SHOP.replace("id > 0", "id >= 1")
    for text in (first, second):
        await filled(shop, text)
    await deploy(shop.db, first, resume=True)
    await shop.run(order(4, 2, 40))
    assert await shop.rows("daily") == [("2026-01-02", 40)]
    await deploy(shop.db, second, resume=True)
    catch_up = await shop.db.fetchval("SELECT max(id) FROM jobs WHERE name = 'shop (catch up)'")
    assert await shop.finish(catch_up) == "COMPLETED"
    assert await shop.rows("daily") == [("2026-01-01", 30), ("2026-01-02", 70)]
    await shop.check()


async def test_concurrent_deploys_succeed_or_report_later_version(shop, tmp_path):
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 1, 20), order(3, 2, 30))
    texts = [CHANGED, CHANGED, SHOP.replace("id > 0", "id > 2")]
    files = [tmp_path / f"{number}.yaml" for number in range(3)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    at_once = [
        FORK_SERVER.start(["dag", "deploy", str(file)], dict(os.environ), stdout=PIPE, stderr=PIPE) for file in files
    ]
    errors = [(await asyncio.to_thread(process.communicate))[1] for process in at_once]
    rows = await shop.db.fetch("SELECT yaml, deploy_ticket, fill_job_id FROM dag_versions ORDER BY deploy_ticket")
    assert len(rows) == 3
    last = rows[-1]["yaml"]
    assert await shop.rows("daily") == (
        [("2026-01-02", 30)] if "id > 2" in last else [("2026-01-01", 20), ("2026-01-02", 30)]
    )
    for text, process, error in zip(texts, at_once, errors, strict=True):
        if process.returncode == 0:
            assert "is serving" in error
        else:
            assert text != last
            assert "already serves" in error
    # Equal content is filled once.
    assert await shop.db.fetchval("SELECT count(*) FROM jobs WHERE name = 'shop (deploy)'") == 2


async def test_rollback_cancels_tasks_of_newer_version_only(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 1, 10))
    begun = await deploy(shop.db, CHANGED)
    await shop.finish(begun.job_id)
    await deploy(shop.db, CHANGED, resume=True)
    job_id = await shop.fire({"rows": [order(3, 1, 1)]})
    await shop.db.execute("UPDATE tasks SET readiness = 'HELD' WHERE job_id = $1", job_id)
    stale = await dag_sources.list_sources(shop.db, DEFAULT_ORG_ID, "shop")
    tidy = await shop.db.fetchrow(
        "SELECT *, NULL::int AS max_concurrency FROM job_definitions WHERE dag_version_id = $1 AND name = 'tidy'",
        begun.version_id,
    )
    waiting, _ = await dataset_events.start_source_job(shop.db, tidy, {"kind": "manual"})
    back = await roll_back(shop.db, "shop")
    assert (len(stale), back.cancelled) == (1, 1)
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", waiting) == "CANCELLED"
    assert await shop.db.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id) == "PENDING"


async def test_events_of_cancelled_job_are_dropped(shop):
    await shop.deploy()
    job_id = await shop.fire()
    await shop.db.execute("SELECT pg_advisory_lock(hashtextextended('aaiclick router', 0))")  # blocks all routers
    running = asyncio.create_task(shop.finish(job_id))
    await shop.until("SELECT open_events > 0 FROM jobs WHERE id = $1", job_id)
    await cancel_job(shop.db, job_id)
    await shop.db.execute("SELECT pg_advisory_unlock(hashtextextended('aaiclick router', 0))")
    assert await running == "CANCELLED"
    assert await shop.tasks(job_id) == [("fetch",)]
    await shop.check()


async def test_concurrent_routers_route_each_event_once_in_order(shop, aaiclick_postgres):
    await shop.deploy()
    job_id = await shop.emit("shop.raw", 500)
    connections = [await connect(aaiclick_postgres) for _ in range(4)]

    async def route(connection):
        total = 0
        while await connection.fetchval("SELECT count(*) FROM outbox"):
            total += await event_routing.route_events(connection, batch=7)
        return total

    assert sum(await asyncio.gather(*(route(router_connection) for router_connection in connections))) == 500
    rows = await shop.db.fetch("SELECT kwargs FROM tasks WHERE job_id = $1 ORDER BY id", job_id)
    updates = [int(json.loads(row["kwargs"])["event"]["update"]) for row in rows]
    assert len(updates) == 500
    assert updates == sorted(set(updates))
    await shop.check()
    for router_connection in connections:
        await router_connection.close()


async def test_paused_dag_starts_nothing_and_resumes(shop):
    await shop.deploy()
    job_id = await shop.fire({"rows": [order(1, 1, 1)]})
    await dag_sources.pause_dag(shop.db, DEFAULT_ORG_ID, "shop")
    with pytest.raises(Exception, match="is paused"):
        await shop.fire()
    claimed = await shop.db.fetchval("SELECT count(*) FROM task_types WHERE paused_at IS NOT NULL")
    assert claimed == 4
    await dag_sources.resume_dag(shop.db, DEFAULT_ORG_ID, "shop")
    assert await shop.finish(job_id) == "COMPLETED"


async def test_routed_update_is_not_routed_again(shop):
    await shop.deploy()
    job_id = await shop.emit("shop.raw", 3)
    await shop.db.execute("CREATE TEMPORARY TABLE twice AS SELECT * FROM outbox ORDER BY id LIMIT 2")
    await event_routing.route_events(shop.db)
    assert await shop.db.fetchval("SELECT count(*) FROM outbox") == 0
    await shop.db.execute("INSERT INTO outbox OVERRIDING SYSTEM VALUE SELECT * FROM twice")
    await shop.db.execute("UPDATE jobs SET open_events = 2 WHERE id = $1", job_id)
    assert await event_routing.route_events(shop.db) == 2
    assert await shop.tasks(job_id) == [("tidy",)] * 3
    await shop.check()


async def test_lost_lease_or_older_ticket_publishes_nothing(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    whole = "SELECT dataset_version FROM dataset_partitions WHERE partition_key = '' LIMIT 1"
    generation = await shop.db.fetchval(whole)
    await shop.fire()
    me = await queue.register_worker(shop.db, hostname="here", pid=1)
    (claim,) = await queue.claim(shop.db, worker_id=me.id, limit=1, queues=(), lease_seconds=60)
    for ticket, expected in ((0, "superseded"), (1_000_000, "published"), (999_999, "superseded")):
        async with definition_runs.lock_for_publish(shop.db, claim.lease, generation, "", ticket) as outcome:
            assert outcome == expected
    zombie = queue.Lease(claim.lease.task_id, claim.lease.attempt - 1, claim.lease.token)
    with pytest.raises(LeaseLost, match="no rows were published"):
        async with definition_runs.lock_for_publish(shop.db, zombie, generation, "", 2_000_000):
            pytest.fail("it was let in")


async def test_concurrent_and_late_partition_records_count(shop, aaiclick_postgres):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    dataset, generation = await shop.db.fetchrow(
        "SELECT d.id, p.dataset_version FROM dataset_partitions p "
        "JOIN dataset_versions v ON v.id = p.dataset_version JOIN datasets d ON d.id = v.dataset_uuid "
        "WHERE d.name = 'daily'"
    )
    one, two, *_ = await shop.db.fetch("SELECT id, org_id, job_id, status::text FROM tasks")

    async def end(db, task, day, ticket):
        partition = {"key": f"2026-01-{day:02}", "rows": 1, "digest": "x", "inputs_hash": None}
        update = {
            "dataset": str(dataset), "generation": str(generation), "ticket": ticket, "partitions": [partition],
            "whole": False, "columns": [f"of {ticket}"], "schema_hash": str(ticket), "rows": None, "changed": None,
        }  # fmt: skip
        nothing = {"outputs": [], "input_versions": [], "inputs": [], "states": [], "lineage": {}, "build": None}
        effects = {task["id"]: json.dumps(nothing | {"updates": [update], "definition": None})}
        await definition_runs.write_effects(db, [task], effects)

    other = await connect(aaiclick_postgres)
    first = other.transaction()
    await first.start()
    await end(other, one, 2, 3_000_000)
    async with shop.db.transaction():
        late = asyncio.create_task(end(shop.db, two, 3, 2_000_000))
        await wait_until_blocked(other)
        await first.commit()
        await late
    await other.close()
    row = await shop.db.fetchrow("SELECT rows, columns, ticket FROM dataset_versions WHERE id = $1", generation)
    assert tuple(row) == (3, '["of 3000000"]', 3_000_000)


async def wait_until_blocked(connection):
    """Whether another session waits for this one."""
    question = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
    async with asyncio.timeout(100):
        while not await connection.fetchval(question):  # noqa: ASYNC110  (there is no notification)
            await asyncio.sleep(0.02)


async def test_changed_row_with_a_null_reaches_dependents(shop):
    dag = f"""
name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [raw]
    config: {{function: "{JOBS}:fetch"}}
  - {{name: copy, activation: reactive, operator: sql, outputs: [notes], config: {{query: "SELECT id, note FROM raw"}}}}
"""
    await shop.deploy(dag)
    for first_id in (1, 3):
        await shop.run({"id": first_id, "note": None}, {"id": 2, "note": "x"})
        assert await shop.rows("shop.notes") == sorted([(first_id, None), (2, "x")])
