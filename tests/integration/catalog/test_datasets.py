"""Datasets as readers see them: by name, one version at a time, and nothing that they may not read."""

from __future__ import annotations

import asyncio
import json
import os
import re
from uuid import uuid4

import httpx
import pytest
from click.testing import CliRunner

from aaiclick.catalog import datasets
from aaiclick.catalog.deploy import deploy, finish, roll_back
from aaiclick.catalog.errors import DatasetError, QueryRefusedError
from aaiclick.catalog.made import made_in_words
from aaiclick.catalog.queries.dataset_sql import Limits
from aaiclick.catalog.readable import WITHHELD, as_seen, jobs_as_seen, untold_dead_letters
from aaiclick.cli.datasets import datasets as command
from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data.errors import QueryError
from aaiclick.errors import NotFoundError
from aaiclick.server import routes
from aaiclick.server.logs import log_path
from aaiclick.server.ui import pages
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import catalog_datasets, reads, users
from aaiclick.store.catalog_datasets import Reader
from aaiclick.store.engine import connect
from aaiclick.store.keys import create_key
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.integration.catalog.conftest import JOBS, SHOP, order
from tests.integration.server.conftest import start_server

EVERYTHING = Reader(DEFAULT_ORG_ID, None)
BOTH = "SELECT (SELECT sum(total) FROM daily) AS total, (SELECT count() FROM shop.orders) AS orders"


async def asked(shop, text, reader=EVERYTHING, limits=None):
    table = await datasets.query(shop.db, shop.clickhouse, reader, text, limits)
    return [tuple(row.values()) for row in table.to_pylist()]


async def test_a_reader_through_many_swaps_sees_one_version_or_the_other(shop, aaiclick_postgres):
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 1, 20), order(3, 2, 30))
    begun = await deploy(shop.db, SHOP.replace("id > 0", "id > 1"))
    await shop.finish(begun.job_id)
    await finish(shop.db, begun)
    other = await connect(aaiclick_postgres)
    seen, done = set(), asyncio.Event()

    async def read():
        while not done.is_set():
            (answer,) = await asked(shop, BOTH)
            seen.add(answer)

    reading = asyncio.create_task(read())
    first = None
    for turn in range(30):
        back = await roll_back(other, "shop", first if turn % 2 == 0 else begun.version_hash)
        first = first or back.version_hash
    done.set()
    await reading
    assert seen == {(60, 3), (50, 2)}
    await other.close()


async def test_who_has_no_role_sees_no_dataset_no_lineage_no_rows_and_no_hint(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    ada = await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="ada", email=None, role="reader")
    role = await users.create_role(shop.db, DEFAULT_ORG_ID, slug="finance", name="Finance")
    nobody = await catalog_datasets.reader_of(shop.db, DEFAULT_ORG_ID, "ada")
    gone = await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="gone", email=None, role="admin")
    await users.change_user(shop.db, DEFAULT_ORG_ID, gone["id"], email=None, role="admin", disabled=True)
    for reader in (nobody, await catalog_datasets.reader_of(shop.db, DEFAULT_ORG_ID, "gone")):
        assert await catalog_datasets.visible(shop.db, reader) == []
        words = set()
        for name in ("daily", "dairy"):
            with pytest.raises(NotFoundError) as missing:
                await datasets.lineage(shop.db, reader, name)
            with pytest.raises(NotFoundError) as refused:
                await asked(shop, f"SELECT * FROM {name}", reader)
            words.add((str(missing.value).replace(name, "?"), str(refused.value).replace(name, "?")))
        assert len(words) == 1
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "daily", ["finance"])
    await users.add_member(shop.db, DEFAULT_ORG_ID, role["id"], ada["id"])
    reader = await catalog_datasets.reader_of(shop.db, DEFAULT_ORG_ID, "ada")
    assert await asked(shop, "SELECT * FROM daily", reader) == [("2026-01-01", 10)]
    # What a task made is told by its outputs; what it was given tells of its inputs.
    rows = await shop.db.fetch("SELECT * FROM tasks ORDER BY id")
    seen = {row["type"]: row for row in await as_seen(shop.db, reader, rows)}
    assert [made_in_words(row["outputs"]) for row in seen.values()] == ["", "", "daily: 1 rows", ""]
    assert json.loads(seen["shop.sums"]["result"])["daily"]["rows"] == 1
    assert {row["kwargs"] for row in seen.values()} == {"{}"}
    assert await as_seen(shop.db, EVERYTHING, rows) == rows
    # What it is made from stays hidden, and so do the edges and columns that lead there.
    assert await datasets.lineage(shop.db, reader, "daily") == datasets.Graph()
    with pytest.raises(NotFoundError, match=r"There is no dataset 'shop\.orders'"):
        await asked(shop, "SELECT total, id FROM daily JOIN shop.orders USING (day)", reader)
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "shop.orders", ["finance"])
    (sums,) = await as_seen(shop.db, reader, [row for row in rows if row["type"] == "shop.sums"])
    assert json.loads(sums["kwargs"])["definition"]


VAULT = f"""
name: vault
jobs:
  - name: fill
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [canary_raw]
    update_strategy: append
    unique_key: [id]
    config: {{function: "{JOBS}:fetch"}}
  - name: split
    activation: reactive
    operator: sql
    outputs: [{{name: canary_days, partition_by: day}}]
    config: {{query: "SELECT id, day, amount AS canary_column FROM canary_raw"}}
  - name: sums
    activation: reactive
    operator: sql
    execution_strategy: PerPartition
    outputs: [canary_sums]
    config: {{query: "SELECT day, sum(canary_column) AS canary_total FROM canary_days GROUP BY day"}}
  - name: breaks
    activation: reactive
    operator: python
    execution_strategy: PerPartition
    max_attempts: 1
    inputs: [canary_days]
    outputs: [canary_broken]
    config: {{function: "{JOBS}:breaks"}}
publish: [{{output: canary_sums, name: canary_published}}]
"""
CANARIES = (
    "canary_raw", "canary_days", "canary_column", "canary_sums", "canary_total", "canary_published", "canary_error",
    "canary_log", "canary_object", "2026-01-17",
)  # fmt: skip
ENDLESS = ("/v1/events", "/live")
ADDRESSES = sorted({
    declared.path for part in (*routes.ALL, *pages.ALL) for declared in part.declared if declared.method == "GET"
})  # fmt: skip
"""Everything that anybody can look at, over the API and in the web UI."""

MORE = (
    "/?span=day", "/search?q=vault", "/search?q={task_id}", "/dead-letters?list=1", "/dead-letters?fingerprint={mark}",
    "/jobs?status=FAILED", "/jobs?q=vault", "/v1/tasks?job_id={job_id}", "/v1/dead-letters?fingerprint={mark}",
    *(f"/jobs/{{job_id}}?view={view}" for view in ("timeline", "tasks", "events", "log", "tasks&status=FAILED")),
    "/jobs/{job_id}?view=tasks&status=DEAD_LETTER",
)  # fmt: skip


async def test_who_has_no_role_finds_no_trace_of_hidden_datasets_anywhere(shop, tmp_path):
    """A hidden DAG says its datasets, columns, partitions, errors and logs; then every address there is, is asked."""
    await shop.deploy(VAULT)
    vault = [await shop.fire({"rows": [order(1, 17, 10)]}, dag="vault")]
    assert await shop.finish(vault[0]) == "FAILED"
    hidden = await catalog_datasets.find_dataset(shop.db, EVERYTHING, "canary_published")
    vault.append(await catalog_datasets.rematerialize(shop.db, DEFAULT_ORG_ID, hidden["id"], "canary_published"))
    assert await shop.finish(vault[-1]) == "COMPLETED"
    tasks = await shop.db.fetch("SELECT id, status::text, error_fingerprint FROM tasks ORDER BY id")
    (dead,) = [row for row in tasks if row["status"] == "DEAD_LETTER"]
    log_path(get_settings(), dead["id"]).write_text("canary_log\n")  # what a worker writes, which this one was not
    keys = {
        role: (await create_key(shop.db, org_id=DEFAULT_ORG_ID, name=role, scopes=[role])).text
        for role in ("reader", "admin")
    }
    ids = {
        "org_id": DEFAULT_ORG_ID, "dag": "vault", "job": "fill", "name": "vault", "dataset": "canary_published",
        "dataset_id": hidden["id"], "mark": dead["error_fingerprint"], "user_id": uuid4(), "role_id": uuid4(),
        "worker_id": await shop.db.fetchval("SELECT max(id) FROM workers"), "key_id": uuid4(),
    }  # fmt: skip

    def paths(table):
        """Each address, of every job and every task."""
        for address in (*ADDRESSES, *MORE):
            form = re.sub(r"{(\w+):\w+}", r"{\1}", address)
            jobs = vault if "{job_id}" in form else vault[:1]
            for job_id, task_id in [(job_id, row["id"]) for job_id in jobs for row in tasks]:
                yield form.format(**ids, job_id=job_id, task_id=task_id, table_id=table)

    def told(role, table):
        """What each path answers whoever has a key of the role; of a stream, how it begins."""
        with httpx.Client(base_url=server.url, timeout=30) as browser:
            csrf = browser.get("/sign-in").text.partition('name="csrf" value="')[2].partition('"')[0]
            assert browser.post("/sign-in", data={"csrf": csrf, "credential": keys[role]}).status_code == 303
            bearer = {"Authorization": f"Bearer {keys[role]}"}
            found = {}
            for path in dict.fromkeys(paths(table)):
                headers = bearer if path.startswith(("/v1", "/metrics")) else None
                with browser.stream("GET", path, headers=headers) as answer:
                    text = next(answer.iter_text()) if path in ENDLESS else answer.read().decode()
                assert answer.status_code < 500 or path == "/health", path  # 503: there is no worker
                found[path] = text.replace(str(ids["dataset"]), "?") if f"/{ids['dataset']}" in path else text
        return found

    server = start_server(dict(os.environ), tmp_path / "server.log")
    try:
        async with DataContext():  # what an attempt of the DAG has in hand
            held = await create_object_from_value({"canary_object": [1, 2]})
            await shop.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", held.table_id)
            await shop.db.execute(
                "INSERT INTO table_references (table_name, owner, owner_id, attempt) VALUES ($1, 'ATTEMPT', $2, 1)",
                held.table_id, dead["id"],
            )  # fmt: skip
            everything, seen = [await asyncio.to_thread(told, role, held.table_id) for role in ("admin", "reader")]
        assert [each for each in CANARIES if each not in " ".join(everything.values())] == []
        assert [(path, each) for path, text in seen.items() for each in CANARIES if each in text] == []
        # What it is told instead: that the task is there, how it ended, and whom to ask.
        shown = json.loads(seen[f"/v1/tasks/{dead['id']}"])
        assert (shown["status"], shown["error"], shown["attempts"][0]["error"]) == ("DEAD_LETTER", WITHHELD, WITHHELD)
        assert f"(task {dead['id']}) failed in attempt 1: {WITHHELD}" in seen[f"/v1/jobs/{vault[0]}"]
        assert WITHHELD in seen[f"/tasks/{dead['id']}"]
        assert json.loads(seen[f"/v1/tasks/{dead['id']}/log"])["status"] == 403
        assert "vault (rematerialize)" in seen["/v1/jobs"]
    finally:
        server.stop()


async def test_what_a_task_of_a_dag_added_is_seen_like_that_task(shop):
    """Of a reader who may read a part: what it may see of the errors, jobs and dead letters of each."""
    await shop.deploy(VAULT)
    job_id = await shop.fire({"rows": [order(1, 17, 10)]}, dag="vault")
    assert await shop.finish(job_id) == "FAILED"
    (broken,) = await shop.db.fetch("SELECT * FROM tasks WHERE type = 'vault.breaks'")
    await shop.db.execute(
        "INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object('id', $2::bigint, 'added_by', t.id, "
        "'definition_id', NULL, 'dedupe_key', NULL, 'error_fingerprint', 'other'))).* FROM tasks t WHERE t.id = $1",
        broken["id"],
        get_snowflake_id(),
    )
    (added,) = await shop.db.fetch("SELECT * FROM tasks WHERE added_by = $1", broken["id"])
    (job,) = await shop.db.fetch("SELECT * FROM jobs WHERE id = $1", job_id)
    await users.create_role(shop.db, DEFAULT_ORG_ID, slug="finance", name="Finance")
    for name, told in (("vault.canary_days", False), ("vault.canary_broken", True)):
        await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, name, ["finance"])
        reader = Reader(DEFAULT_ORG_ID, frozenset({"finance"}))
        seen = await as_seen(shop.db, reader, [broken, added])
        assert [("canary_error" in row["error"], "17" in str(row["partitions"])) for row in seen] == [(told, told)] * 2
        (of_job,) = await jobs_as_seen(shop.db, reader, [job])
        assert ("canary_error" in of_job["error"]) == told
        origins = await untold_dead_letters(shop.db, reader)
        groups = await reads.group_dead_letters(shop.db, DEFAULT_ORG_ID, origins)
        assert {row["error_fingerprint"] for row in groups} == (
            {broken["error_fingerprint"], "other"} if told else {None}
        )
        for mark in (broken["error_fingerprint"], "other"):
            found = await reads.list_dead_letters(shop.db, fingerprint=mark, org_id=DEFAULT_ORG_ID, untold=origins)
            assert len(found) == told


async def test_lineage_goes_up_and_down_to_the_column(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    up = await datasets.lineage(shop.db, EVERYTHING, "daily")
    assert [(each.source, each.job, each.target) for each in up.edges] == [
        ("shop.orders", "shop.sums", "daily"), ("shop.raw", "shop.tidy", "shop.orders"),
    ]  # fmt: skip
    assert datasets.ColumnEdge("shop.raw.amount", "shop.orders.amount") in up.columns
    assert datasets.ColumnEdge("shop.orders.amount", "daily.total") in up.columns
    down = await datasets.lineage(shop.db, EVERYTHING, "shop.raw", "down")
    assert down.datasets == ["daily", "shop.doubled", "shop.orders", "shop.raw"]


async def test_limits_end_a_query_and_what_is_not_made_yet_is_said(shop):
    await shop.deploy()
    with pytest.raises(QueryRefusedError):
        await asked(shop, "SELECT * FROM file('/etc/passwd')")
    with pytest.raises(DatasetError, match="'daily' has no rows yet"):
        await asked(shop, "SELECT * FROM daily")
    await shop.run(order(1, 1, 10), order(2, 2, 10))
    with pytest.raises(QueryError, match="Limit for result"):
        await asked(shop, "SELECT * FROM daily", limits=Limits(result_rows=1))


async def test_a_dataset_is_made_again_with_all_that_follows(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    table = await shop.db.fetchval("SELECT storage_location FROM dataset_versions v JOIN datasets d "
                                   "ON d.id = v.dataset_uuid WHERE d.name = 'shop.orders'")  # fmt: skip
    await shop.clickhouse.run(f"TRUNCATE TABLE {table}")
    found = await catalog_datasets.find_dataset(shop.db, EVERYTHING, "shop.orders")
    job_id = await catalog_datasets.rematerialize(shop.db, DEFAULT_ORG_ID, found["id"], "shop.orders")
    assert await shop.finish(job_id) == "COMPLETED"
    assert await shop.rows("shop.orders") == [(1, "2026-01-01", 10)]


async def test_the_commands_say_what_there_is(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))

    async def said(*words):
        result = await asyncio.to_thread(CliRunner().invoke, command, [*words], catch_exceptions=False)
        return result.stdout

    assert "daily\tshop.sums\t1\t" in await said("ls")
    assert "column\ttotal\tInt64" in await said("show", "daily")
    assert "shop.raw\tshop.tidy\tshop.orders" in await said("lineage", "daily")
    assert "shop.orders.amount\tdaily.total" in await said("lineage", "daily", "--columns")
    assert await said("query", "SELECT day, total FROM daily") == "day\ttotal\n2026-01-01\t10\n"
    await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="ada", email=None, role="reader")
    assert await said("ls", "--as", "ada") == ""
    for words in (["ls"], ["show", "daily"], ["lineage", "daily"], ["query", "SELECT total FROM daily"]):
        with pytest.raises(NotFoundError, match="There is no user 'nobody'"):
            await said(*words, "--as", "nobody")
