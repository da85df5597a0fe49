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
from aaiclick.orchestration.job_functions import collect_job_functions, register_module_jobs, run_job_function
from aaiclick.orchestration.loops import scheduler
from aaiclick.store.enums import DEFAULT_ORG_ID

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
'''


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
    assert set(rows) == {"nightly", "other"}
    assert nightly["documentation"].startswith("Count the rows of a day.")
    assert (nightly["schedule"], nightly["owner"], nightly["code_version"]) == ("0 3 * * * UTC", "ada", "v1")
    assert json.loads(nightly["tags"]) == {"team": "finance"}
    assert list(json.loads(nightly["parameters"])["properties"]) == ["day", "rows"]
    assert [row["name"] for row in await fetch("SELECT name FROM schedules")] == [f"{module}.nightly"]


async def test_scheduled_run_has_the_labels_of_its_function(module):
    await register(module)
    async with OrchContext() as context, context.connection() as connection:
        due = await connection.fetchval("SELECT due_at FROM schedules")
        assert (await scheduler.run_once(connection, now=due))["runs"] == 1
    assert [job.name for job in await list_jobs(tags={"team": "finance"}, owner="ada")] == ["nightly"]
    assert await list_jobs(tags={"team": "sales"}) == []


async def test_function_that_is_gone_is_deleted_and_its_schedule_stopped(module):
    await register(module)
    del sys.modules[module].nightly
    await register(module)
    assert [row["name"] for row in await fetch("SELECT name FROM job_functions")] == ["other"]
    [row] = await fetch("SELECT missing_at, due_at FROM schedules")
    assert row["missing_at"] is not None
    assert row["due_at"] is None


async def test_modules_that_are_not_imported_keep_their_functions(module):
    await register(module)
    functions = collect_job_functions(["registered"])  # a prefix of the name is another module
    assert functions.modules == []
    await register("elsewhere")
    assert len(await fetch("SELECT FROM job_functions")) == 2


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
