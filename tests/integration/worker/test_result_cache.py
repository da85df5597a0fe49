"""Cached results in real workers, over PostgreSQL and over HTTP."""

from __future__ import annotations

import json

import pytest

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import submit_job
from aaiclick.store.postgres_connections import connect

TASKS = """
from aaiclick.orchestration import Branch, task
from aaiclick.data import Object, create_object_from_value

def note(path):
    with open(path, "a") as file: file.write("ran\\n")

@task(cache="input")
def double(path: str, number: int) -> int:
    note(path)
    return 2 * number

@task(cache="1d")
async def table(path: str, number: int) -> Object:
    note(path)
    return await create_object_from_value(list(range(number)))

@task(cache="input", cache_key=lambda path, number: str(number % 2))
def parity(path: str, number: int) -> int:
    note(path)
    return number % 2

@task(cache="1s")
def briefly(path: str, number: int) -> int:
    note(path)
    return number

@task(cache="input")
def choose(path: str, number: int) -> Branch:
    return Branch()

@task
async def total(rows: Object) -> int:
    return sum(await rows.data())
"""


@pytest.fixture
def cache_env(worker_env):
    (worker_env.directory / "cached_tasks.py").write_text(TASKS)
    return worker_env


async def submit(env, function: str, number: int) -> tuple[int, int]:
    """A job with a cached task and one that reads its result, if that is a table."""
    kwargs = json.dumps({"path": str(env.directory / "calls"), "number": number})
    name = f"cached_tasks.{function}"
    first = NewTask(get_snowflake_id(), name, name, kwargs)
    tasks, edges = [first], []
    if function == "table":
        reference = json.dumps({"rows": {"object_type": "task", "task_id": str(first.id)}})
        tasks.append(NewTask(get_snowflake_id(), "cached_tasks.total", "cached_tasks.total", reference))
        edges.append((first.id, tasks[1].id))
    connection = await connect(env.endpoint)
    await submit_job(connection, NewJob(get_snowflake_id(), "job"), Plan(tasks, [], edges))
    await connection.close()
    return first.id, tasks[-1].id


def calls(env) -> int:
    path = env.directory / "calls"
    return len(path.read_text().split()) if path.exists() else 0


async def run(env, function: str, number: int) -> tuple[dict, dict]:
    first, last = await submit(env, function, number)
    env.drain()
    return dict(await env.task(first)), dict(await env.task(last))


async def test_same_inputs_reuse_the_result(cache_env) -> None:
    first, _ = await run(cache_env, "double", 4)
    second, _ = await run(cache_env, "double", 4)
    third, _ = await run(cache_env, "double", 5)
    assert calls(cache_env) == 2
    assert (second["status"], second["literal"], second["cached_from"]) == ("COMPLETED", first["literal"], first["id"])
    assert first["cached_from"] is None
    assert third["cached_from"] is None


async def test_changed_code_computes_again(cache_env) -> None:
    await run(cache_env, "double", 4)
    (cache_env.directory / "cached_tasks.py").write_text(TASKS.replace("2 * number", "3 * number + 0"))
    again, _ = await run(cache_env, "double", 4)
    assert again["cached_from"] is None
    assert "12" in again["literal"]


async def test_cache_key_replaces_the_inputs(cache_env) -> None:
    await run(cache_env, "parity", 1)
    cached, _ = await run(cache_env, "parity", 7)
    other, _ = await run(cache_env, "parity", 2)
    assert cached["cached_from"] is not None
    assert other["cached_from"] is None


async def test_result_expires(cache_env) -> None:
    await run(cache_env, "briefly", 1)
    await cache_env.rows("UPDATE tasks SET completed_at = completed_at - interval '1 minute'")
    again, _ = await run(cache_env, "briefly", 1)
    assert again["cached_from"] is None


async def test_cached_table_is_held_by_both_results(cache_env) -> None:
    first, total = await run(cache_env, "table", 300_000)
    second, same = await run(cache_env, "table", 300_000)
    assert calls(cache_env) == 1
    assert second["cached_from"] == first["id"]
    assert second["result"] == first["result"]
    assert (total["literal"], same["status"]) == (same["literal"], "COMPLETED")
    held = await cache_env.rows("SELECT owner_id FROM table_references WHERE owner = 'RESULT' AND owner_id = ANY ($1)",
                                [first["id"], second["id"]])  # fmt: skip
    assert sorted(row["owner_id"] for row in held) == sorted([first["id"], second["id"]])
    connection = await connect(cache_env.endpoint)
    assert await check_invariants(connection) == []
    await connection.execute("DELETE FROM jobs WHERE id = $1", first["job_id"])
    await connection.close()
    third, _ = await run(cache_env, "table", 300_000)
    assert third["cached_from"] is None
    assert calls(cache_env) == 2


async def test_cached_branch_fails_with_a_remedy(cache_env) -> None:
    for _ in range(2):
        failed, _ = await run(cache_env, "choose", 1)
        assert (failed["status"], failed["cached_from"]) == ("FAILED", None)
        assert "choose() has a cached result and returned a Branch, which is not cached." in failed["error"]
