"""Results of data tests name no dataset that their reader may not read."""

from __future__ import annotations

import asyncio
import json
import os

import httpx

from aaiclick.catalog import dataset_queries
from aaiclick.data import DataContext, create_object_from_value
from aaiclick.operations.actor import Actor
from aaiclick.operations.data_tests import list_data_tests
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.catalog import datasets as catalog_datasets
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tenancy import users
from aaiclick.store.tenancy.api_keys import create_key
from tests.integration.catalog.conftest import JOBS
from tests.integration.server.conftest import start_server

DESK = f"""
name: desk
jobs:
  - name: people
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [canary_people]
    config: {{function: "{JOBS}:fetch"}}
  - name: book
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs:
      - name: bookings
        tests:
          - unique: [id]
          - references: {{customer: canary_people.canary_name}}
            on_failure: warn
          - sql: SELECT b.* FROM this AS b JOIN canary_people AS p ON p.canary_name = b.customer
            on_failure: warn
    config: {{function: "{JOBS}:fetch"}}
publish: [bookings]
"""
FINANCE = Reader(DEFAULT_ORG_ID, frozenset({"finance"}))


async def run_desk(shop):
    await shop.deploy(DESK)
    await shop.run({"canary_name": "ann"}, dag="desk", job="people")
    await shop.run({"id": 1, "customer": "ann"}, {"id": 2, "customer": "eve"}, dag="desk", job="book")
    await users.create_role(shop.db, DEFAULT_ORG_ID, slug="finance", name="Finance")
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "bookings", ["finance"])


def as_reader(reader):
    return Actor(DEFAULT_ORG_ID, "user x", frozenset({"reader"}), reads_as=reader)


async def test_tests_that_read_hidden_datasets_do_not_name_them(shop):
    await run_desk(shop)
    everything = await list_data_tests(shop.db, as_reader(Reader(DEFAULT_ORG_ID, None)))
    assert "canary" in " ".join(result.test for result in everything.items)
    listed = await list_data_tests(shop.db, as_reader(FINANCE))
    assert [(result.test, result.outcome) for result in listed.items] == [
        ("sql", "warned"), ("references", "warned"), ("unique: id", "passed"),
    ]  # fmt: skip
    table = await dataset_queries.run_query(shop.db, shop.clickhouse, FINANCE, "SELECT * FROM aaiclick.tests")
    assert table.num_rows == 3
    assert "canary" not in str(table.to_pylist())
    await catalog_datasets.set_read_roles(shop.db, DEFAULT_ORG_ID, "desk.canary_people", ["finance"])
    listed = await list_data_tests(shop.db, as_reader(FINANCE))
    assert [result.test for result in listed.items] == [result.test for result in everything.items]
    await shop.db.execute("DELETE FROM tasks")  # results are kept for longer
    listed = await list_data_tests(shop.db, as_reader(FINANCE))
    assert "canary" not in " ".join(result.test for result in listed.items)


async def test_tests_of_a_task_that_a_hidden_task_added_are_hidden(shop):
    await run_desk(shop)
    adder = await shop.db.fetchval("SELECT id FROM tasks WHERE type = 'desk.people'")
    added, plain = get_snowflake_id(), get_snowflake_id()
    for task_id, added_by in ((added, adder), (plain, None)):
        await shop.db.execute(
            "INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object('id', $2::bigint, 'added_by', "
            "$3::bigint, 'definition_id', NULL, 'dedupe_key', NULL))).* FROM tasks t WHERE t.id = $1",
            adder, task_id, added_by,
        )  # fmt: skip
        await shop.db.execute(
            "INSERT INTO data_test_results (org_id, subject, task_id, attempt, number, test, on_failure, outcome, rows,"
            " failing_rows, message, published) VALUES ($1, 'check', $2, 1, 0, 'accepted: canary_state in canary', "
            "'block', 'blocked', 7, 1, 'canary', false)",
            DEFAULT_ORG_ID, task_id,
        )  # fmt: skip
    rows = (await list_data_tests(shop.db, as_reader(Reader(DEFAULT_ORG_ID)))).items
    assert {row.task_id: (row.test, row.message) for row in rows} == {
        added: ("accepted", ""), plain: ("accepted: canary_state in canary", "canary"),
    }  # fmt: skip


async def test_preview_that_an_admin_has_loaded_is_not_shown_to_others(shop, tmp_path):
    """A writer passes the table of a hidden task to a task of its own; the preview is cached for a few seconds."""
    await run_desk(shop)
    hidden = await shop.db.fetchval("SELECT id FROM tasks WHERE type = 'desk.people'")
    keys = {
        role: (await create_key(shop.db, org_id=DEFAULT_ORG_ID, name=role, scopes=[role])).text
        for role in ("admin", "writer")
    }
    server = start_server(dict(os.environ), tmp_path / "server.log")

    def fetch(role, path):
        with httpx.Client(base_url=server.url, timeout=30) as browser:
            csrf = browser.get("/sign-in").text.partition('name="csrf" value="')[2].partition('"')[0]
            assert browser.post("/sign-in", data={"csrf": csrf, "credential": keys[role]}).status_code == 303
            browser.get(path)
            return browser.get(path).text

    try:
        async with DataContext():
            held = await create_object_from_value({"rows": ["canary_row"]})
            await shop.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", held.table_id)
            await shop.db.execute(
                "INSERT INTO table_references (table_name, owner, owner_id, attempt) VALUES ($1, 'ATTEMPT', $2, 1)",
                held.table_id, hidden,
            )  # fmt: skip
            form = {"object_type": "object", "table_id": held.table_id}
            own = get_snowflake_id()
            await shop.db.execute(
                "INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object('id', $2::bigint, 'kwargs', "
                "$3::jsonb, 'definition_id', NULL, 'dedupe_key', NULL, 'job_id', NULL))).* FROM tasks t WHERE id = $1",
                hidden, own, json.dumps({"value": form}),
            )  # fmt: skip
            assert "canary_row" in await asyncio.to_thread(fetch, "admin", f"/tasks/{own}")
            assert "canary_row" not in await asyncio.to_thread(fetch, "writer", f"/tasks/{own}")
    finally:
        server.stop()
