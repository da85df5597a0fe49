"""Jobs from an iterator: any length, all or nothing, in constant memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from aaiclick.errors import SubmitError
from aaiclick.orchestration import Group, OrchContext, create_job, create_task, submit_plan
from aaiclick.store.statements import statement
from tests.integration.engine.conftest import Engine


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(submit_plan.iter_slices, "__defaults__", (3,))


async def test_dependencies_across_slices(engine: Engine) -> None:
    def chain():
        last = None
        for _ in range(10):
            task = create_task("m.step")
            if last is not None:
                last >> task
            last = task
            yield task

    async with OrchContext(endpoint=engine.endpoint):
        job = await create_job("chain", chain())
    assert job.total_tasks == 10
    assert await engine.run() == ["m.step"] * 10
    assert await engine.db.fetchval("SELECT status::text FROM jobs") == "COMPLETED"
    await engine.check()


async def test_group_across_slices_blocks_its_dependents(engine: Engine) -> None:
    def work():
        group = Group("many")
        after = create_task("m.after")
        for number in range(10):
            yield create_task("m.member", group=group)
            if number == 0:
                yield group >> after

    async with OrchContext(endpoint=engine.endpoint):
        await create_job("grouped", work())
    assert await engine.run() == ["m.member " * 9 + "m.member", "m.after"]
    await engine.check()


async def test_counters_are_written_once(engine: Engine) -> None:
    """Not for each slice: the foreign key check of a task reads all versions of the rows of its job and group."""

    def members():
        group = Group("many")
        for _ in range(30):
            yield create_task("m.member", group=group)

    statements: list[str] = []
    async with OrchContext(endpoint=engine.endpoint) as context:
        async with context.connection() as connection:
            connection.add_query_logger(lambda record: statements.append(record.query))
        await create_job("grouped", members())
    assert [statements.count(statement(name)) for name in ("add_group_members", "add_job_tasks")] == [1, 1]
    await engine.check()


async def test_failing_generator_submits_nothing(engine: Engine) -> None:
    def broken():
        for _ in range(10):
            yield create_task("m.step")
        raise ValueError("no more")

    async with OrchContext(endpoint=engine.endpoint):
        with pytest.raises(ValueError, match="no more"):
            await create_job("broken", broken())
    assert await engine.db.fetchval("SELECT (SELECT count(*) FROM tasks) + (SELECT count(*) FROM jobs)") == 0


async def test_empty_iterator_creates_completed_job(engine: Engine) -> None:
    async with OrchContext(endpoint=engine.endpoint):
        assert (await create_job("none", iter(()))).status == "COMPLETED"


async def test_returned_task_accepts_no_more_dependencies(engine: Engine) -> None:
    def late():
        first = create_task("m.first")
        for number in range(10):
            task = create_task("m.step")
            if number == 9:
                task >> first
            yield first if number == 0 else task

    async with OrchContext(endpoint=engine.endpoint):
        with pytest.raises(SubmitError, match="submitted already"):
            await create_job("late", late())


SUBMIT = """
import asyncio, os, resource, sys
from aaiclick.orchestration import Group, OrchContext, create_job, create_task

def many(count):
    group = Group("all")
    for _ in range(count):
        yield create_task("m.step", {"n": 1}, group=group)

async def main():
    async with OrchContext():
        await create_job("warm", many(15_000))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await create_job("large", many(int(sys.argv[1])))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main())
"""


def test_memory_does_not_grow_with_the_job(aaiclick_env) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SUBMIT), "60000"], check=True, capture_output=True, text=True
    )
    assert int(ran.stdout) < 15_000
