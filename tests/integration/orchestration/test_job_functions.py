"""Registration of `@job` functions: what workers store, how it is replaced, and the schedules that it creates."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.orchestration import OrchContext, create_job, create_task, list_jobs
from aaiclick.orchestration.function_registry import collect_job_functions, register_module_jobs, run_job_function
from aaiclick.orchestration.jobs_by_function_name import make_named_plan
from aaiclick.orchestration.loops import scheduler
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.store.engine import queries
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.rerun import rerun_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.job_policy import JobPolicy
from aaiclick.store.task_options import TaskOptions

MODULE = '''
from datetime import date
from aaiclick.orchestration import NominalDate, job, task

@task
def count(day: date, rows: int) -> int:
    return rows

@job(schedule="0 3 * * *", tags={"team": "finance"}, owner="ada", timeout_seconds=60)
def nightly(day: NominalDate, rows: int = 5) -> None:
    """Count the rows of a day.

    Slowly.
    """
    count(day, rows)

@job
def other() -> None: ...

@job(every="1h", pin_version=True)
def pinned() -> None:
    count("2026-01-01", 1)

@job(every="1h", pin_version="2026.11")
def named() -> None: ...
'''


HANDLED = """
from datetime import date, timedelta
from aaiclick.orchestration import NominalDate, TaskFailure, cancel_job, job, task

calls = []
broken = set()
cancelled_job = None

@task
def undo(name: str) -> None:
    calls.append(f"undo {name}")

@task(compensate=undo, retries=0)
async def step(name: str) -> None:
    calls.append(name)
    if cancelled_job is not None:
        await cancel_job(cancelled_job)
    if name in broken:
        raise OSError(name)

@task(retries=0)
def alert(failure: TaskFailure, day: date) -> None:
    calls.append(f"alert {failure.type.rpartition('.')[2]} {day}")
    if "alert" in broken:
        raise OSError("no connection")

@task
def clean_up(day: date, failure: TaskFailure | None = None) -> None:
    calls.append(f"clean up {day} {failure is not None}")

@job(every="1h", finally_=clean_up, on_failure=alert)
def nightly(day: date = date(2026, 1, 1)) -> None:
    if "builder" in broken:
        raise ValueError("no such table")
    step.task("a") >> step.task("b")
"""


@pytest.fixture
def handled(aaiclick_env, tmp_path, monkeypatch):
    """An imported module with a job that has handlers and compensations."""
    (tmp_path / "handled_jobs.py").write_text(HANDLED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    monkeypatch.setenv("AAICLICK_TASK_MODULES", "handled_jobs")
    get_settings.cache_clear()
    yield importlib.import_module("handled_jobs")
    sys.modules.pop("handled_jobs", None)


@pytest.mark.parametrize(
    ("broken", "calls"),
    [
        (set(), ["a", "b", "clean up 2026-01-01 False"]),
        ({"builder"}, ["alert nightly 2026-01-01", "clean up 2026-01-01 True"]),
        ({"builder", "alert"}, ["alert nightly 2026-01-01", "clean up 2026-01-01 True"]),
        ({"b"}, ["a", "b", "alert step 2026-01-01", "undo a", "clean up 2026-01-01 True"]),
    ],
)
@pytest.mark.parametrize("cause", ["schedule", "name", "rerun"])
async def test_handlers_run_whether_the_function_or_a_task_of_it_fails(handled, broken, calls, cause):
    await register("handled_jobs")
    async with OrchContext() as context, context.connection() as connection:
        if cause == "schedule":
            due = await connection.fetchval("SELECT due_at FROM schedules")
            await scheduler.run_once(connection, now=due)
        else:
            await run_job_function(connection, DEFAULT_ORG_ID, "handled_jobs.nightly", {})
        await connection.execute("UPDATE tasks SET max_attempts = 1")
        job_id = await connection.fetchval("SELECT max(id) FROM jobs")
        if cause == "rerun":
            first_id, job_id = job_id, await rerun_job(connection, await queries.get_job(connection, job_id))
            await connection.execute("DELETE FROM jobs WHERE id = $1", first_id)
    handled.broken |= broken
    ended = await run_until_job_ends(job_id)
    assert ended.status == ("FAILED" if broken else "COMPLETED")
    assert sorted(handled.calls) == sorted(calls)
    assert handled.calls[-1] == calls[-1]


@pytest.fixture
def module(aaiclick_env, tmp_path, monkeypatch):
    """The name of an imported module with two jobs, of which one has a schedule."""
    (tmp_path / "registered_jobs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("registered_jobs")
    yield "registered_jobs"
    sys.modules.pop("registered_jobs", None)


async def register(name: str, version: str | None = None) -> None:
    async with OrchContext() as context, context.connection() as connection:
        await register_module_jobs(connection, DEFAULT_ORG_ID, collect_job_functions([name], version))


async def fetch(statement: str) -> list:
    async with OrchContext() as context, context.connection() as connection:
        return await connection.fetch(statement)


async def test_functions_and_schedules_are_stored(module):
    await register(module, "v1")
    rows = {row["name"]: row for row in await fetch("SELECT * FROM job_functions")}
    nightly = rows["nightly"]
    assert set(rows) == {"nightly", "other", "pinned", "named"}
    assert nightly["documentation"].startswith("Count the rows of a day.")
    assert (nightly["schedule"], nightly["owner"], nightly["code_version"]) == ("0 3 * * * UTC", "ada", "v1")
    assert json.loads(nightly["tags"]) == {"team": "finance"}
    assert list(json.loads(nightly["parameters"])["properties"]) == ["day", "rows"]
    schedules = await fetch("SELECT name FROM schedules ORDER BY name")
    assert [row["name"] for row in schedules] == [f"{module}.{name}" for name in ("named", "nightly", "pinned")]


async def fetch_queues() -> dict[str, str]:
    """Name of each job, and the queue of its task."""
    rows = await fetch("SELECT j.name, t.queue FROM tasks t JOIN jobs j ON j.id = t.job_id")
    return {row["name"]: row["queue"] for row in rows}


async def test_scheduled_run_has_the_labels_and_the_version_of_its_function(module):
    await register(module, "v1")
    async with OrchContext() as context, context.connection() as connection:
        due = await connection.fetchval("SELECT max(due_at) FROM schedules")
        assert (await scheduler.run_once(connection, now=due))["runs"] == 3
    assert [job.name for job in await list_jobs(tags={"team": "finance"}, owner="ada")] == ["nightly"]
    assert await fetch_queues() == {
        "nightly": "default",
        "pinned": "runtime:version:v1:default",
        "named": "runtime:version:2026.11:default",
    }
    assert await list_jobs(tags={"team": "sales"}) == []


async def test_scheduled_run_is_refused_if_its_version_is_unknown(module):
    await register(module)
    async with OrchContext() as context, context.connection() as connection:
        due = await connection.fetchval("SELECT max(due_at) FROM schedules")
        assert (await scheduler.run_once(connection, now=due))["runs"] == 2
    assert set(await fetch_queues()) == {"nightly", "named"}


def test_handlers_of_a_function_run_on_its_queue():
    plan = make_named_plan("m.f", "{}", JobPolicy(handlers="ended"), TaskOptions(queue="etl"))
    assert [task.options.queue for task in plan.tasks] == ["etl", "etl"]


async def test_function_that_is_gone_is_deleted_and_its_schedule_stopped(module):
    await register(module)
    del sys.modules[module].nightly
    await register(module)
    assert "nightly" not in [row["name"] for row in await fetch("SELECT name FROM job_functions")]
    [row] = await fetch(f"SELECT missing_at, due_at FROM schedules WHERE name = '{module}.nightly'")
    assert row["missing_at"] is not None
    assert row["due_at"] is None


async def test_modules_that_are_not_imported_keep_their_functions(module):
    await register(module)
    functions = collect_job_functions(["registered"])  # a prefix of the name is another module
    assert functions.modules == []
    await register("elsewhere")
    assert len(await fetch("SELECT FROM job_functions")) == 4


async def test_registered_function_runs_by_name_with_validated_arguments(module):
    await register(module)
    async with OrchContext() as context, context.connection() as connection:
        with pytest.raises(SubmitError, match="rows: Input should be integer"):
            await run_job_function(connection, DEFAULT_ORG_ID, f"{module}.nightly", {"day": "2026-01-01", "rows": "5"})
        with pytest.raises(NotFoundError, match=r"No worker has registered a @job 'm\.f'"):
            await run_job_function(connection, DEFAULT_ORG_ID, "m.f", {})
        job_id, name = await run_job_function(connection, DEFAULT_ORG_ID, f"{module}.nightly", {"day": "2026-01-01"})
    [row] = await fetch("SELECT * FROM jobs")
    assert (row["id"], name, row["timeout_seconds"]) == (job_id, "nightly", 60.0)
    assert json.loads(row["tags"]) == {"team": "finance", "owner": "ada"}
    assert json.loads(row["trigger"])["arguments"] == {"day": "2026-01-01"}


async def test_function_that_runs_by_name_is_pinned_to_its_registered_version(module):
    await register(module, "v1")
    async with OrchContext() as context, context.connection() as connection:
        for name in ("pinned", "named"):
            await run_job_function(connection, DEFAULT_ORG_ID, f"{module}.{name}", {})
    assert await fetch_queues() == {"pinned": "runtime:version:v1:default", "named": "runtime:version:2026.11:default"}


async def test_call_of_a_job_stores_its_arguments(module):
    nightly = sys.modules[module].nightly
    await nightly("2026-01-01", rows=3)
    [row] = await fetch("SELECT trigger FROM jobs")
    assert json.loads(row["trigger"]) == {
        "kind": "call", "entrypoint": f"{module}.nightly", "arguments": {"day": "2026-01-01", "rows": 3},
    }  # fmt: skip


async def test_filter_example_of_the_page_runs(aaiclick_env):
    page = (Path(__file__).parents[3] / "docs" / "functions.md").read_text(encoding="utf-8")
    [text] = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "list_jobs" in text]
    names: dict[str, object] = {}
    await eval(compile(text, "docs/functions.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    assert [job.name for job in names["finance_jobs"]] == ["by hand"]


@pytest.mark.parametrize(
    ("tags", "owner"),
    [({"a b": "c"}, None), ({"a": ""}, None), ({"a": "x\n"}, None), ({"owner": "x"}, None), ({}, "\x00"),
     ({"a": 5}, None),
     ({f"t{number}": "x" for number in range(21)}, None), ({"a": "x" * 201}, None), ({}, "\ud800")],
)  # fmt: skip
async def test_tags_that_cannot_be_stored_are_refused(aaiclick_env, tags, owner):
    with pytest.raises(SubmitError):
        await create_job("labelled", create_task("m.f"), tags=tags, owner=owner)
    assert await list_jobs() == []


@pytest.mark.parametrize("has_added_tasks", [False, True])
async def test_final_task_of_a_cancelled_job_runs_once(handled, has_added_tasks):
    await register("handled_jobs")
    async with OrchContext() as context, context.connection() as connection:
        job_id, _ = await run_job_function(connection, DEFAULT_ORG_ID, "handled_jobs.nightly", {})
        if has_added_tasks:
            handled.cancelled_job = job_id
        else:
            await cancel_job(connection, job_id)
    assert (await run_until_job_ends(job_id)).status == "CANCELLED"
    assert [call for call in handled.calls if call.startswith(("clean", "alert"))] == ["clean up 2026-01-01 False"]
