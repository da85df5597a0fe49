"""Datasets as readers see them: by name, one version at a time, and only what their roles allow."""

from __future__ import annotations

import asyncio
import json
import os
import re
from uuid import uuid4

import httpx
import pytest
from click.testing import CliRunner

from aaiclick.catalog import dataset_queries
from aaiclick.catalog.dataset_visibility import REDACTED_ERROR, hidden_dead_letters, redact_jobs, redact_tasks
from aaiclick.catalog.deploy import deploy, roll_back
from aaiclick.catalog.errors import DatasetError, QueryRefusedError
from aaiclick.catalog.queries.table_rewrite import QueryLimits
from aaiclick.catalog.task_output_summary import summarize_outputs
from aaiclick.cli.datasets import datasets as command
from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data.errors import QueryError
from aaiclick.errors import NotFoundError
from aaiclick.server import routes
from aaiclick.server.task_logs import log_path
from aaiclick.server.ui import pages
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.catalog import datasets as catalog_datasets
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.engine import queries
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy import users
from aaiclick.store.tenancy.api_keys import create_key
from tests.integration.catalog.conftest import JOBS, SHOP, order
from tests.integration.server.conftest import start_server

EVERYTHING = Reader(DEFAULT_ORG_ID, None)
BOTH = "SELECT (SELECT sum(total) FROM daily) AS total, (SELECT count() FROM shop.orders) AS orders"


async def query_rows(shop, text, reader=EVERYTHING, limits=None):
    table = await dataset_queries.run_query(shop.db, shop.clickhouse, reader, text, limits)
    return [tuple(row.values()) for row in table.to_pylist()]


async def test_a_role_that_is_created_again_reads_nothing(shop):
    await shop.deploy()
    role = await users.create_role(shop.db, DEFAULT_ORG_ID, slug="analyst", name="Analyst")
    await users.create_role(shop.db, DEFAULT_ORG_ID, slug="auditor", name="Auditor")
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "daily", ["analyst", "auditor"])
    await users.delete_role(shop.db, DEFAULT_ORG_ID, role.id)
    await users.create_role(shop.db, DEFAULT_ORG_ID, slug="analyst", name="Analyst")
    visible = {
        slug: await catalog_datasets.list_visible_datasets(shop.db, Reader(DEFAULT_ORG_ID, frozenset({slug})))
        for slug in ("analyst", "auditor")
    }
    assert {slug: [row.name for row in rows] for slug, rows in visible.items()} == {
        "analyst": [],
        "auditor": ["daily"],
    }


async def test_reader_sees_one_version_during_swaps(shop, aaiclick_postgres):
    await shop.deploy()
    await shop.run(order(1, 1, 10), order(2, 1, 20), order(3, 2, 30))
    changed = SHOP.replace("id > 0", "id > 1")
    begun = await deploy(shop.db, changed)
    await shop.finish(begun.job_id)
    await deploy(shop.db, changed, resume=True)
    other = await connect(aaiclick_postgres)
    results, done = set(), asyncio.Event()

    async def read():
        while not done.is_set():
            (answer,) = await query_rows(shop, BOTH)
            results.add(answer)

    reading = asyncio.create_task(read())
    first = None
    for turn in range(30):
        back = await roll_back(other, "shop", first if turn % 2 == 0 else begun.version_hash)
        first = first or back.version_hash
    done.set()
    await reading
    assert results == {(60, 3), (50, 2)}
    await other.close()


async def test_reader_without_role_sees_nothing(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    ada = await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="ada", email=None, role="reader")
    role = await users.create_role(shop.db, DEFAULT_ORG_ID, slug="finance", name="Finance")
    nobody = await catalog_datasets.load_reader(shop.db, DEFAULT_ORG_ID, "ada")
    gone = await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="gone", email=None, role="admin")
    await users.update_user(shop.db, DEFAULT_ORG_ID, gone.id, email=None, role="admin", disabled=True)
    for reader in (nobody, await catalog_datasets.load_reader(shop.db, DEFAULT_ORG_ID, "gone")):
        assert await catalog_datasets.list_visible_datasets(shop.db, reader) == []
        messages = set()
        for name in ("daily", "dairy"):
            with pytest.raises(NotFoundError) as missing:
                await dataset_queries.trace_lineage(shop.db, reader, name)
            with pytest.raises(NotFoundError) as refused:
                await query_rows(shop, f"SELECT * FROM {name}", reader)
            messages.add((str(missing.value).replace(name, "?"), str(refused.value).replace(name, "?")))
        assert len(messages) == 1
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "daily", ["finance"])
    await users.add_member(shop.db, DEFAULT_ORG_ID, role.id, ada.id)
    reader = await catalog_datasets.load_reader(shop.db, DEFAULT_ORG_ID, "ada")
    assert await query_rows(shop, "SELECT * FROM daily", reader) == [("2026-01-01", 10)]
    # Outputs reveal what a task has written; arguments reveal its inputs.
    rows = await shop.db.fetch("SELECT * FROM tasks ORDER BY id")
    redacted = {row["type"]: row for row in await redact_tasks(shop.db, reader, rows)}
    assert [summarize_outputs(row["outputs"]) for row in redacted.values()] == ["", "", "daily: 1 row", ""]
    assert json.loads(redacted["shop.sums"]["result"])["daily"]["rows"] == 1
    assert {row["kwargs"] for row in redacted.values()} == {"{}"}
    assert await redact_tasks(shop.db, EVERYTHING, rows) == rows
    # Its sources stay hidden, and so do the edges and columns that lead there.
    assert await dataset_queries.trace_lineage(shop.db, reader, "daily") == dataset_queries.LineageGraph()
    with pytest.raises(NotFoundError, match=r"There is no dataset 'shop\.orders'"):
        await query_rows(shop, "SELECT total, id FROM daily JOIN shop.orders USING (day)", reader)
    # Only visible names are suggested.
    cases = [(reader, "dayly", "daily"), (EVERYTHING, "orders", "shop.orders"), (reader, "orders", None)]
    for actor, name, hint in cases:
        with pytest.raises(NotFoundError) as unknown:
            await query_rows(shop, f"SELECT * FROM {name}", actor)
        assert unknown.value.remedy == (f"Did you mean {hint!r}?" if hint else "'aaiclick datasets ls' lists them.")
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "shop.orders", ["finance"])
    (sums,) = await redact_tasks(shop.db, reader, [row for row in rows if row["type"] == "shop.sums"])
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
DECLARED = [
    *(route for part in routes.ALL for route in part.declared),
    *(page for part in pages.ALL_PAGES for page in part.routes),
]
ADDRESSES = sorted({route.path for route in DECLARED if route.method == "GET"})
"""Every readable path of the API and of the web UI."""

MORE = (
    "/?span=day", "/search?q=vault", "/search?q={task_id}", "/dead-letters?list=1", "/dead-letters?fingerprint={mark}",
    "/jobs?status=FAILED", "/jobs?q=vault", "/v1/tasks?job_id={job_id}", "/v1/dead-letters?fingerprint={mark}",
    *(f"/jobs/{{job_id}}?view={view}" for view in ("timeline", "tasks", "events", "log", "tasks&status=FAILED")),
    "/jobs/{job_id}?view=tasks&status=DEAD_LETTER", "/v1/approvals?everything=true", "/approvals?all=1",
)  # fmt: skip


async def ask_about(shop, task_id: int) -> int:
    """An approval with rows and a reason about a task."""
    shown = json.dumps({"columns": ["canary_column"], "rows": [["canary_row"]], "total": 1})
    return await shop.db.fetchval(
        "INSERT INTO approvals (id, org_id, task_id, attempt, expires_at, title, role, shown, reason)"
        " VALUES ($1, $2, $3, 1, now() + interval '1 h', 'Go on?', 'finance', $4, 'canary_error') RETURNING id",
        get_snowflake_id(), DEFAULT_ORG_ID, task_id, shown,
    )  # fmt: skip


async def test_hidden_datasets_leave_no_trace_in_api_and_ui(shop, tmp_path):
    """A hidden DAG with canaries in datasets, columns, partitions, errors and logs; every path is requested."""
    await shop.deploy(VAULT)
    vault = [await shop.fire({"rows": [order(1, 17, 10)]}, dag="vault")]
    assert await shop.finish(vault[0]) == "FAILED"
    hidden = await catalog_datasets.find_dataset(shop.db, EVERYTHING, "canary_published")
    vault.append(await catalog_datasets.rematerialize(shop.db, DEFAULT_ORG_ID, hidden.id, "canary_published"))
    assert await shop.finish(vault[-1]) == "COMPLETED"
    tasks = await shop.db.fetch("SELECT id, status::text, error_fingerprint FROM tasks ORDER BY id")
    (dead,) = [row for row in tasks if row["status"] == "DEAD_LETTER"]
    log_path(get_settings(), dead["id"]).write_text("canary_log\n")  # written by a real worker, but not here
    keys = {
        role: (await create_key(shop.db, org_id=DEFAULT_ORG_ID, name=role, scopes=[role])).text
        for role in ("reader", "admin")
    }
    ids = {
        "org_id": DEFAULT_ORG_ID, "dag": "vault", "job": "fill", "name": "vault", "dataset": "canary_published",
        "dataset_id": hidden.id, "mark": dead["error_fingerprint"], "user": uuid4(), "role": uuid4(),
        "worker_id": await shop.db.fetchval("SELECT max(id) FROM workers"), "key": uuid4(), "org": DEFAULT_ORG_ID,
        "schedule": "none", "token": "x" * 43, "entrypoint": "none", "function": "none",
        "incident_id": await shop.db.fetchval("SELECT max(id) FROM incidents"),
        "approval_id": await ask_about(shop, dead["id"]),
    }  # fmt: skip

    def paths(table):
        """Return each path, for every job and every task."""
        for address in (*ADDRESSES, *MORE):
            form = re.sub(r"{(\w+):\w+}", r"{\1}", address)
            jobs = vault if "{job_id}" in form else vault[:1]
            for job_id, task_id in [(job_id, row["id"]) for job_id in jobs for row in tasks]:
                yield form.format(**ids, job_id=job_id, task_id=task_id, table_id=table)

    def fetch_all(role, table):
        """Return the response of each path with a key of the role; of a stream, its beginning."""
        with httpx.Client(base_url=server.url, timeout=30) as browser:
            csrf = browser.get("/sign-in").text.partition('name="csrf" value="')[2].partition('"')[0]
            assert browser.post("/sign-in", data={"csrf": csrf, "credential": keys[role]}).status_code == 303
            bearer = {"Authorization": f"Bearer {keys[role]}"}
            texts = {}
            for path in dict.fromkeys(paths(table)):
                headers = bearer if path.startswith(("/v1", "/metrics")) else None
                with browser.stream("GET", path, headers=headers) as answer:
                    text = next(answer.iter_text()) if path in ENDLESS else answer.read().decode()
                assert answer.status_code < 500 or path == "/health", path  # 503: there is no worker
                texts[path] = text.replace(str(ids["dataset"]), "?") if f"/{ids['dataset']}" in path else text
        return texts

    server = start_server(dict(os.environ), tmp_path / "server.log")
    try:
        async with DataContext():  # a table of an attempt of the DAG
            held = await create_object_from_value({"canary_object": [1, 2]})
            await shop.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", held.table_id)
            await shop.db.execute(
                "INSERT INTO table_references (table_name, owner, owner_id, attempt) VALUES ($1, 'ATTEMPT', $2, 1)",
                held.table_id, dead["id"],
            )  # fmt: skip
            everything, visible = [
                await asyncio.to_thread(fetch_all, role, held.table_id) for role in ("admin", "reader")
            ]
        assert [canary for canary in CANARIES if canary not in " ".join(everything.values())] == []
        assert [(path, canary) for path, text in visible.items() for canary in CANARIES if canary in text] == []
        # Visible instead: the task, its status, and the remedy.
        shown = json.loads(visible[f"/v1/tasks/{dead['id']}"])
        assert (shown["status"], shown["error"], shown["attempts"][0]["error"]) == (
            "DEAD_LETTER",
            REDACTED_ERROR,
            REDACTED_ERROR,
        )
        assert f"(task {dead['id']}) failed in attempt 1: {REDACTED_ERROR}" in visible[f"/v1/jobs/{vault[0]}"]
        assert REDACTED_ERROR in visible[f"/tasks/{dead['id']}"]
        assert json.loads(visible[f"/v1/tasks/{dead['id']}/log"])["status"] == 403
        assert "vault (rematerialize)" in visible["/v1/jobs"]
    finally:
        server.stop()


async def test_added_task_has_visibility_of_its_adder(shop):
    """A reader of some datasets sees only the errors, jobs and dead letters of their tasks."""
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
    for name, is_visible in (("vault.canary_days", False), ("vault.canary_broken", True)):
        await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, name, ["finance"])
        reader = Reader(DEFAULT_ORG_ID, frozenset({"finance"}))
        redacted = await redact_tasks(shop.db, reader, [broken, added])
        assert [("canary_error" in row["error"], "17" in str(row["partitions"])) for row in redacted] == [
            (is_visible, is_visible)
        ] * 2
        (of_job,) = await redact_jobs(shop.db, reader, [job])
        assert ("canary_error" in of_job["error"]) == is_visible
        origins = await hidden_dead_letters(shop.db, reader)
        groups = await queries.group_dead_letters(shop.db, DEFAULT_ORG_ID, origins)
        assert {row["error_fingerprint"] for row in groups} == (
            {broken["error_fingerprint"], "other"} if is_visible else {None}
        )
        for mark in (broken["error_fingerprint"], "other"):
            dead_letters = await queries.list_dead_letters(
                shop.db, fingerprint=mark, org_id=DEFAULT_ORG_ID, hidden=origins
            )
            assert len(dead_letters) == is_visible


async def test_lineage_up_and_down_to_columns(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    up = await dataset_queries.trace_lineage(shop.db, EVERYTHING, "daily")
    assert [(edge.source, edge.job, edge.target) for edge in up.edges] == [
        ("shop.orders", "shop.sums", "daily"), ("shop.raw", "shop.tidy", "shop.orders"),
    ]  # fmt: skip
    assert dataset_queries.ColumnEdge("shop.raw.amount", "shop.orders.amount") in up.columns
    assert dataset_queries.ColumnEdge("shop.orders.amount", "daily.total") in up.columns
    down = await dataset_queries.trace_lineage(shop.db, EVERYTHING, "shop.raw", "down")
    assert down.datasets == ["daily", "shop.doubled", "shop.orders", "shop.raw"]


async def test_query_limits_and_datasets_without_rows_raise_errors(shop):
    await shop.deploy()
    with pytest.raises(QueryRefusedError):
        await query_rows(shop, "SELECT * FROM file('/etc/passwd')")
    with pytest.raises(DatasetError, match="'daily' has no rows yet"):
        await query_rows(shop, "SELECT * FROM daily")
    await shop.run(order(1, 1, 10), order(2, 2, 10))
    with pytest.raises(QueryError, match="Limit for result"):
        await query_rows(shop, "SELECT * FROM daily", limits=QueryLimits(result_rows=1))


async def test_rematerialize_rebuilds_dataset_and_dependents(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))
    table = await shop.db.fetchval("SELECT storage_location FROM dataset_versions v JOIN datasets d "
                                   "ON d.id = v.dataset_uuid WHERE d.name = 'shop.orders'")  # fmt: skip
    await shop.clickhouse.run(f"TRUNCATE TABLE {table}")
    dataset = await catalog_datasets.find_dataset(shop.db, EVERYTHING, "shop.orders")
    job_id = await catalog_datasets.rematerialize(shop.db, DEFAULT_ORG_ID, dataset.id, "shop.orders")
    assert await shop.finish(job_id) == "COMPLETED"
    assert await shop.rows("shop.orders") == [(1, "2026-01-01", 10)]


async def test_datasets_commands_print_datasets(shop):
    await shop.deploy()
    await shop.run(order(1, 1, 10))

    async def run_command(*arguments):
        result = await asyncio.to_thread(CliRunner().invoke, command, [*arguments], catch_exceptions=False)
        return result.stdout

    assert "daily\tshop.sums\t1\t" in await run_command("ls")
    assert "column\ttotal\tInt64" in await run_command("show", "daily")
    assert "shop.raw\tshop.tidy\tshop.orders" in await run_command("lineage", "daily")
    assert "shop.orders.amount\tdaily.total" in await run_command("lineage", "daily", "--columns")
    assert await run_command("query", "SELECT day, total FROM daily") == "day\ttotal\n2026-01-01\t10\n"
    await users.create_user(shop.db, DEFAULT_ORG_ID, external_id="ada", email=None, role="reader")
    assert await run_command("ls", "--as", "ada") == ""
    for arguments in (["ls"], ["show", "daily"], ["lineage", "daily"], ["query", "SELECT total FROM daily"]):
        with pytest.raises(NotFoundError, match="There is no user 'nobody'"):
            await run_command(*arguments, "--as", "nobody")
