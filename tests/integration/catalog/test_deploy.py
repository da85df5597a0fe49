"""Deploys on a real PostgreSQL: all or nothing, in order, and rollbacks."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import datetime

import pytest
from click.testing import CliRunner

from aaiclick.catalog.deploy import deploy, roll_back
from aaiclick.catalog.errors import DagError, DeployError
from aaiclick.cli.dag import dag as dag_command
from aaiclick.errors import NotFoundError
from aaiclick.settings import get_settings
from aaiclick.store.catalog import dag_sources, dag_versions, dataset_events
from aaiclick.store.engine import user_actions
from aaiclick.store.engine.invariants import InvariantViolation, check_invariants
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.statements import statement

SHOP = """
name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: cron, schedule: "0 6 * * *", timezone: Europe/Berlin}
    outputs: [raw]
    update_strategy: append
    unique_key: [id]
    config: {function: "shop:fetch"}
  - name: clean
    activation: reactive
    operator: sql
    idle_timeout: 5m
    scaling: {max_concurrency: 3}
    outputs: [orders]
    config: {query: SELECT id FROM raw WHERE id > 0}
  - name: sums
    activation: reactive
    operator: sql
    outputs: [{name: daily, storage: {kind: parquet, prefix: "s3://bucket/daily"}}]
    config: {query: SELECT count() AS n FROM orders}
publish: [{output: daily, name: shop_daily}]
"""
CHANGED = SHOP.replace("id > 0", "id > 1")
LINE = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Number of sessions that wait for a lock."""


@pytest.fixture(autouse=True)
def _places(monkeypatch):
    monkeypatch.setenv("AAICLICK_PARQUET_PREFIXES", "s3://bucket/")
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
async def db(aaiclick_postgres):
    connection = await connect(aaiclick_postgres)
    yield connection
    await connection.close()


async def serving(db):
    rows = await dag_versions.list_serving_datasets(db, DEFAULT_ORG_ID, "shop")
    return {row["name"]: row["version"] for row in rows}


async def count(db, table):
    return await db.fetchval(f"SELECT count(*) FROM {table}")


async def test_a_deploy_writes_the_version_its_definitions_and_its_datasets(db):
    done = await deploy(db, SHOP.replace("    unique_key", "    bootstrap: {reset_outputs: true}\n    unique_key"))
    assert done.built == ("raw", "orders", "daily")
    rows = await db.fetch("SELECT * FROM job_definitions ORDER BY name")
    clean, fetch, sums = rows
    assert (fetch["activation"], fetch["status"], clean["status"]) == ("source", "Pending", "Idle")
    assert json.loads(fetch["source"])["timezone"] == "Europe/Berlin"
    assert json.loads(fetch["bootstrap"]) == {"reset_outputs": True}
    assert (fetch["unique_key"], fetch["update_strategy"]) == (["id"], "append")
    assert (clean["execution_strategy"], clean["idle_timeout"]) == ("PerUpdate", "5m")
    assert json.loads(clean["scaling"]) == {"max_concurrency": 3}
    assert clean["input_datasets"] == fetch["output_datasets"]
    assert sums["input_datasets"] == clean["output_datasets"]
    assert fetch["next_run_at"] is not None
    assert clean["next_run_at"] is None
    assert set(await serving(db)) == {"shop.raw", "shop.orders", "shop_daily"}
    location = await db.fetchval("SELECT storage_location FROM dataset_versions WHERE storage_location LIKE 's3:%'")
    assert location.startswith("s3://bucket/daily/")
    assert location.endswith("/")


async def test_repeated_deploy_changes_nothing(db):
    first = await deploy(db, SHOP)
    again = await deploy(db, "# the same\n" + SHOP)
    assert not again.changed
    assert again.version_id == first.version_id
    assert (await count(db, "dag_versions"), await count(db, "job_definitions")) == (1, 3)


async def test_serving_since_is_kept_while_paused(db):
    async def since():
        return {row.serving_since for row in await dag_versions.list_versions(db, DEFAULT_ORG_ID, "shop")} - {None}

    await deploy(db, SHOP)
    began = await since()
    await dag_sources.pause_dag(db, DEFAULT_ORG_ID, "shop")
    await dag_sources.resume_dag(db, DEFAULT_ORG_ID, "shop")
    await deploy(db, SHOP)
    assert await since() == began
    await deploy(db, CHANGED)
    assert min(await since()) > min(began)


async def test_change_creates_generations_and_rollback_serves_old_ones(db):
    await deploy(db, SHOP)
    old = await serving(db)
    done = await deploy(db, CHANGED)
    new = await serving(db)
    assert done.built == ("orders", "daily")
    assert new["shop.raw"] == old["shop.raw"]
    assert new["shop.orders"] != old["shop.orders"]
    assert new["shop_daily"] != old["shop_daily"]
    back = await roll_back(db, "shop")
    assert await serving(db) == old
    assert back.previous == done.version_id
    forth = await deploy(db, CHANGED)
    assert (forth.is_new, forth.built) == (False, ())
    assert await serving(db) == new
    assert await count(db, "dataset_versions") == 5


async def test_datasets_have_the_storage_of_the_serving_version(db):
    stored = "SELECT storage FROM datasets WHERE producer_job_name = 'sums'"
    files = {"kind": "parquet", "prefix": "s3://bucket/daily"}
    await deploy(db, SHOP)
    assert json.loads(await db.fetchval(stored)) == files
    tables = SHOP.replace(', storage: {kind: parquet, prefix: "s3://bucket/daily"}', "")
    assert (await deploy(db, tables)).serves
    assert json.loads(await db.fetchval(stored)) == {}
    await roll_back(db, "shop")
    assert json.loads(await db.fetchval(stored)) == files


async def test_only_serving_definitions_have_next_run(db):
    first = await deploy(db, SHOP)
    second = await deploy(db, CHANGED)
    due = "SELECT dag_version_id FROM job_definitions WHERE next_run_at IS NOT NULL"
    assert await db.fetch(due) == [(second.version_id,)]
    await roll_back(db, "shop", first.version_hash[:10])
    assert await db.fetch(due) == [(first.version_id,)]


async def test_failed_deploy_keeps_old_version(db):
    await deploy(db, SHOP)
    before = await serving(db), await count(db, "dag_versions"), await count(db, "dataset_versions")
    await db.execute("ALTER TABLE job_definitions ADD CONSTRAINT refuse CHECK (config_hash = 'x') NOT VALID")
    with pytest.raises(Exception, match="refuse"):
        await deploy(db, CHANGED)
    with pytest.raises(DagError):
        await deploy(db, CHANGED.replace("operator: sql", "operator: sqll"))
    with pytest.raises(DeployError, match="which no DAG publishes"):
        await deploy(db, CHANGED.replace("id > 1}", "id > 1}\n    inputs: [raw, {dataset: rates}]").replace(
            "operator: sql\n    idle", "operator: python\n    idle").replace("{query: SELECT id FROM raw WHERE id > 1}",
            "{function: a:b}"))  # fmt: skip
    assert (await serving(db), await count(db, "dag_versions"), await count(db, "dataset_versions")) == before


async def test_published_names_have_one_producer(db):
    await deploy(db, SHOP)
    with pytest.raises(DeployError, match="'shop_daily' is published by the DAG 'shop'"):
        await deploy(db, SHOP.replace("name: shop\n", "name: other\n", 1))
    renamed = SHOP.replace(
        "publish: [{output: daily, name: shop_daily}]", "publish: [{output: orders, name: shop_daily}]"
    )
    old = await serving(db)
    await deploy(db, renamed)
    assert (await serving(db))["shop_daily"] == old["shop.orders"]
    other = SHOP.replace("name: shop\n", "name: other\n", 1).replace("name: shop_daily", "name: other_daily")
    await deploy(db, other)
    reader = """
name: reader
jobs:
  - name: read
    activation: reactive
    operator: sql
    inputs: [{dataset: other_daily}]
    outputs: [copy]
    config: {query: SELECT n FROM other_daily}
"""
    await deploy(db, reader)
    expected = await db.fetchval("SELECT id::text FROM datasets WHERE name = 'other_daily'")
    assert await db.fetchval("SELECT input_datasets FROM job_definitions WHERE dag_name = 'reader'") == [expected]


async def test_concurrent_deploys_are_serialized(db, aaiclick_postgres):
    async with AsyncExitStack() as stack:
        sessions = [await connect(aaiclick_postgres) for _ in range(6)]
        for session in sessions:
            stack.push_async_callback(session.close)
        texts = [SHOP, CHANGED] * 3
        await asyncio.gather(*(deploy(session, text) for session, text in zip(sessions, texts, strict=True)))
    assert (await count(db, "dag_versions"), await count(db, "dataset_versions")) == (2, 5)
    assert await count(db, "dag_current_versions") == 1


async def test_a_second_deploy_waits_for_the_first(db, aaiclick_postgres):
    other = await connect(aaiclick_postgres)
    async with db.transaction():
        await dag_versions.lock_dag(db, DEFAULT_ORG_ID, "shop")
        waiting = asyncio.create_task(deploy(other, SHOP))
        while not await db.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            pass
        assert not waiting.done()
    await waiting
    await other.close()


async def rolled_back_at_once(db, endpoint, *where):
    """Rollbacks of one DAG, each requested while the previous ones wait for its lock."""
    async with AsyncExitStack() as stack:
        waiting = []
        async with db.transaction():
            await dag_versions.lock_dag(db, DEFAULT_ORG_ID, "shop")
            for to in where:
                session = await connect(endpoint)
                stack.push_async_callback(session.close)
                waiting.append(asyncio.create_task(roll_back(session, "shop", to)))
                while await db.fetchval(LINE) < len(waiting):
                    pass
        return await asyncio.gather(*waiting)


async def test_concurrent_rollbacks_take_effect_in_order(db, aaiclick_postgres):
    first, second, _ = [await deploy(db, text) for text in (SHOP, CHANGED, SHOP.replace("id > 0", "id > 2"))]
    for earlier, later in ((second, first), (first, second)):
        done = await rolled_back_at_once(db, aaiclick_postgres, earlier.version_hash, later.version_hash)
        assert [result.version_id for result in done] == [earlier.version_id, later.version_id]
        assert done[1].previous == earlier.version_id
        assert await db.fetchval("SELECT dag_version_id FROM dag_current_versions") == later.version_id
        generations = await db.fetch("SELECT dataset_version FROM dag_version_datasets WHERE dag_version_id = $1",
                                     later.version_id)  # fmt: skip
        assert set((await serving(db)).values()) == {row["dataset_version"] for row in generations}


async def test_two_concurrent_rollbacks_go_back_once(db, aaiclick_postgres):
    _, second, third = [await deploy(db, text) for text in (SHOP, CHANGED, SHOP.replace("id > 0", "id > 2"))]
    done = await rolled_back_at_once(db, aaiclick_postgres, None, None)
    assert [result.version_id for result in done] == [second.version_id] * 2
    assert [result.previous for result in done] == [third.version_id, second.version_id]
    assert await db.fetchval("SELECT dag_version_id FROM dag_current_versions") == second.version_id


async def test_doctor_finds_tasks_without_definition(db):
    """No foreign key enforces it."""
    await deploy(db, SHOP)
    await dag_sources.start_source(db, DEFAULT_ORG_ID, "shop", None, {"kind": "manual"})
    assert await check_invariants(db) == []
    task_id, lost = await db.fetchrow("UPDATE tasks SET definition_id = gen_random_uuid() RETURNING id, definition_id")
    assert await check_invariants(db) == [
        InvariantViolation("I9", "task", task_id, f"its definition {lost} is not there")
    ]


HISTORY = """
    INSERT INTO jobs (id, org_id, name, status, started_at, completed_at, total_tasks)
    SELECT n, $2, 'past', 'COMPLETED', now(), now(), 200 FROM generate_series(1, 100) AS n;
    INSERT INTO tasks (id, job_id, org_id, definition_id, dedupe_key, type, status, readiness, completed_at)
    SELECT n, 1 + n % 100, $2, $1, 'past:' || n, 'shop.clean', 'COMPLETED', NULL, now() - interval '1 day'
    FROM generate_series(1, 20000) AS n;
"""


async def test_unfinished_tasks_are_found_by_index(db):
    """By the loop that finds idle definitions, and by rollbacks."""
    first = await deploy(db, SHOP)
    second = await deploy(db, CHANGED)
    clean = await db.fetchval("SELECT id FROM job_definitions WHERE name = 'clean' AND dag_version_id = $1",
                              second.version_id)  # fmt: skip
    for text in HISTORY.strip().removesuffix(";").split(";"):
        await db.execute(text.replace("$1", f"'{clean}'").replace("$2", f"'{DEFAULT_ORG_ID}'"))
    job_id = await dataset_events.open_job(db, DEFAULT_ORG_ID, "now", second.version_id, {})
    definition = await db.fetchrow("SELECT *, 'shop.clean' AS type, NULL::int AS max_concurrency FROM job_definitions "
                                   "WHERE id = $1", clean)  # fmt: skip
    await dataset_events.add_tasks(db, job_id, definition, [("now", {}, None)])
    await db.execute("UPDATE job_definitions SET last_event_at = now() - interval '1 day' WHERE id = $1", clean)
    for name, arguments in (
        ("mark_idle_definitions", ()),
        ("find_obsolete_tasks", (second.version_id, first.version_id)),
    ):
        plan = await db.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement(name)}", *arguments)
        assert json.loads(plan)[0]["Plan"]["Shared Hit Blocks"] < 200, plan
    assert len(await dag_versions.find_obsolete_tasks(db, second.version_id, first.version_id)) == 1
    asks = "SELECT status::text FROM job_definitions WHERE id = $1"
    assert await db.fetchval(asks, clean) == "Running"
    await user_actions.cancel_job(db, job_id)
    await db.execute("UPDATE tasks SET completed_at = now() - interval '1 day' WHERE job_id = $1", job_id)
    await db.execute(statement("mark_idle_definitions"))
    assert await db.fetchval(asks, clean) == "Idle"


async def test_readers_see_one_version_during_hundred_swaps(db, aaiclick_postgres):
    await deploy(db, SHOP)
    old = await serving(db)
    await deploy(db, CHANGED)
    new = await serving(db)
    done = asyncio.Event()
    versions = set()

    async def read():
        reader = await connect(aaiclick_postgres)
        while not done.is_set():
            versions.add(frozenset((await serving(reader)).items()))
        await reader.close()

    reading = asyncio.create_task(read())
    for _ in range(50):
        await roll_back(db, "shop")
        await deploy(db, CHANGED)
    done.set()
    await reading
    assert versions <= {frozenset(old.items()), frozenset(new.items())}


async def test_rollback_of_missing_dag_is_refused(db):
    with pytest.raises(NotFoundError, match="no DAG 'shop'"):
        await roll_back(db, "shop")
    await deploy(db, SHOP)
    with pytest.raises(DeployError, match="no previous version"):
        await roll_back(db, "shop")
    with pytest.raises(DeployError, match="no version with a hash"):
        await roll_back(db, "shop", "zzz")


def test_cli_validates_diffs_deploys_and_rolls_back(aaiclick_env, tmp_path):
    def run(*arguments):
        return CliRunner().invoke(dag_command, list(arguments), catch_exceptions=False)

    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    assert "shop, 3 definitions" in run("validate", str(file)).stderr
    assert [line["change"] for line in json.loads(run("diff", str(file), "-o", "json").stdout)][:3] == ["added"] * 3
    assert "New generations: raw, orders, daily" in run("deploy", str(file)).stderr
    assert "is already serving; no changes" in run("deploy", str(file)).stderr
    file.write_text(CHANGED)
    lines = json.loads(run("diff", str(file), "-o", "json").stdout)
    assert [(line["name"], line["change"]) for line in lines] == [
        ("clean", "config.query"), ("orders", "rebuilt"), ("daily", "rebuilt"),
    ]  # fmt: skip
    assert "New generations: orders, daily" in run("deploy", str(file)).stderr
    back = run("rollback", "shop", "-o", "json")
    assert "serving" in back.stderr
    done = json.loads(back.stdout)
    assert [line["change"] for line in done["changes"] if line["what"] == "dataset"] == ["served again"] * 2
    assert (done["dag"], done["serves"], done["changed"], done["built"], done["job_id"]) == (
        "shop",
        True,
        True,
        [],
        None,
    )
    assert f"Version {done['hash'][:12]} of shop is serving." in back.stderr
    again = json.loads(
        run("diff", str(file), "-o", "json").stdout
    )  # existing datasets are not rebuilt by a new deploy either
    assert [line["change"] for line in again if line["what"] == "dataset"] == ["served again"] * 2
    versions = json.loads(run("versions", "shop", "-o", "json").stdout)
    assert [bool(line["serving_since"]) for line in versions] == [False, True]
    assert versions[1]["hash"] == done["hash"]
    assert datetime.fromisoformat(versions[1]["created_at"]).tzinfo is not None
