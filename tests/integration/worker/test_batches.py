"""Batch handlers in real workers: one call for many items, one outcome for each."""

from __future__ import annotations

import json

import pytest

from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions
from aaiclick.store.tenancy.orgs import create_org
from tests.integration.gateways import ONE_ORGANISATION, postgres_only

HANDLERS = """
import asyncio, os, time
from aaiclick.orchestration import handler
from pydantic import BaseModel

class Point(BaseModel):
    number: int
    path: str

def note(path, values):
    with open(path, "a") as file: file.write(f"{len(values)}\\n")

@handler("geo", batch=500, within="2s")
async def look_up(items: list[Point]):
    note(items[0].path, items)
    return [ValueError(f"no {item.number}") if item.number % 200 == 7 else item.number for item in items]

@handler("geo_sync", batch=10, within="1s")
def look_up_sync(items: list[dict]) -> None:
    note(items[0]["path"], items)
    if any(item["number"] == 3 for item in items):
        raise RuntimeError("all of them")

@handler("owners", batch=20, within="1s")
async def note_owners(items: list[dict]):
    with open(items[0]["path"], "a") as file: file.write("".join(sorted({item["owner"] for item in items})) + "\\n")

@handler("short", batch=10, within="1s")
def answer_too_few(items):
    return [1]

@handler("hangs", batch=2, within="1s")
async def hang(items):
    await asyncio.sleep(600)

@handler("kills", batch=10, within="1s")
async def kill_many(items):
    note(items[0]["path"], items)
    if len(items) > 1: os.kill(os.getpid(), 9)
    return [None]

@handler("hangs_sync", batch=2, within="1s")
def hang_sync(items):
    while True: time.sleep(0.01)
"""


@pytest.fixture
def batch_env(worker_env):
    (worker_env.directory / "batch_handlers.py").write_text(HANDLERS)
    return worker_env


async def put(env, type_: str, count: int, timeouts: tuple[float | None, ...] = (None,), **options) -> list[int]:
    path = str(env.directory / "calls")
    ids = get_snowflake_ids(count)
    tasks = [
        NewTask(key, type_, None, json.dumps({"number": number, "path": path}),
                options=TaskOptions(timeout_seconds=timeouts[number % len(timeouts)], **options))
        for number, key in enumerate(ids)
    ]  # fmt: skip
    connection = await connect(env.endpoint)
    await enqueue_tasks(connection, tasks)
    await connection.close()
    return ids


def batch_sizes(env) -> list[int]:
    return [int(line) for line in (env.directory / "calls").read_text().split()]


@pytest.mark.timeout(200)
async def test_items_that_fail_are_retried_alone(batch_env) -> None:
    ids = await put(batch_env, "geo", 500, max_attempts=2, retry_policy='{"base_seconds": 0.01, "cap_seconds": 0.01}')
    batch_env.start("--import", "batch_handlers")
    rows = await batch_env.wait_until_all(ids, lambda row: row["completed_at"] is not None)
    by_status = {status: [row for row in rows if row["status"] == status] for status in ("COMPLETED", "DEAD_LETTER")}
    assert (len(by_status["COMPLETED"]), len(by_status["DEAD_LETTER"])) == (497, 3)
    assert {row["attempt"] for row in by_status["COMPLETED"]} == {1}
    assert {row["attempt"] for row in by_status["DEAD_LETTER"]} == {2}
    assert "ValueError: no 207" in "".join(row["error"] for row in by_status["DEAD_LETTER"])
    sizes = batch_sizes(batch_env)
    assert sum(sizes) == 503
    assert max(sizes) > 100


async def test_exception_of_the_call_fails_all_items_of_it(batch_env) -> None:
    ids = await put(batch_env, "geo_sync", 10, max_attempts=1)
    batch_env.start("--import", "batch_handlers")
    rows = await batch_env.wait_until_all(ids, lambda row: row["completed_at"] is not None)
    assert batch_sizes(batch_env) == [10]
    assert {row["status"] for row in rows} == {"DEAD_LETTER"}
    assert all("all of them" in row["error"] for row in rows)


async def test_wrong_number_of_verdicts_fails_without_retries(batch_env) -> None:
    ids = await put(batch_env, "short", 3)
    batch_env.start("--import", "batch_handlers")
    rows = await batch_env.wait_until_all(ids, lambda row: row["completed_at"] is not None)
    assert {row["status"] for row in rows} == {"FAILED"}
    assert "1 values for 3 items" in rows[0]["error"]


@pytest.mark.parametrize("type_", ["hangs", "hangs_sync"])
async def test_timeout_of_an_item_releases_the_others(batch_env, type_: str) -> None:
    first, second = await put(batch_env, type_, 2, timeouts=(3.0, None), max_attempts=1, repeatable=True)
    batch_env.start("--import", "batch_handlers")
    row = await batch_env.wait_until(first, lambda row: row["completed_at"] is not None)
    assert "Timed out after 3 s" in row["error"]
    other = await batch_env.wait_until(second, lambda row: row["attempt"] == 2)
    assert other["failures"] == 0


@pytest.mark.timeout(200)
async def test_items_of_a_killed_call_are_retried_alone(batch_env) -> None:
    """kill -9 of the process during a call: each item is lost once, and then completed once."""
    ids = await put(batch_env, "kills", 10, max_attempts=3, retry_policy='{"base_seconds": 0.01, "cap_seconds": 0.01}')
    batch_env.start("--import", "batch_handlers")
    rows = await batch_env.wait_until_all(ids, lambda row: row["completed_at"] is not None)
    assert {row["status"] for row in rows} == {"COMPLETED"}
    sizes = batch_sizes(batch_env)
    assert sizes.count(1) == 10
    assert sum(size for size in sizes if size > 1) == sum(row["attempt"] - 1 for row in rows)
    assert max(row["attempt"] for row in rows) == 2


@pytest.mark.timeout(200)
@postgres_only(ONE_ORGANISATION)
async def test_items_of_two_organisations_are_in_separate_calls(batch_env) -> None:
    """The call has the secrets and the database of its first item's organisation."""
    path = str(batch_env.directory / "calls")
    connection = await connect(batch_env.endpoint)
    other = await create_org(connection, name="other", slug="other")
    ids = get_snowflake_ids(20)
    for number, key in enumerate(ids):
        owner, org_id = ("a", DEFAULT_ORG_ID) if number % 2 else ("b", other.id)
        await enqueue_tasks(
            connection, [NewTask(key, "owners", None, json.dumps({"owner": owner, "path": path}))], org_id
        )
    await connection.close()
    batch_env.start("--import", "batch_handlers", "--processes", "1")
    await batch_env.wait_until_all(ids, lambda row: row["status"] == "COMPLETED")
    assert set((batch_env.directory / "calls").read_text().split()) == {"a", "b"}
