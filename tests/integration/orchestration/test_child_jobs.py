"""Child jobs of tasks: awaited without a worker, submitted once, cancelled and failed with their parents."""

from __future__ import annotations

from typing import Any

import pytest

from aaiclick.orchestration import PermanentError, create_job, job, list_jobs, run_job_test, sleep, task
from aaiclick.orchestration.submit_plan import collect_unsubmitted, digest_plan, make_plan
from aaiclick.store.engine.submission_plan import NewTask, Plan

calls: list[Any] = []


@task
def double(number: int) -> int:
    if number < 0:
        raise PermanentError("negative", remedy="")
    return 2 * number


@job
def child(number: int) -> None:
    double(number)


@job
def slow_child(number: int) -> None:
    sleep(0.2) >> double.task(number)


@task
async def return_one(number: int) -> Any:
    return {"value": await child(number)}


@task
async def return_unawaited() -> Any:
    return child(4)


@task
async def pass_on() -> Any:
    return collect([await child(1), await child(2)])


@task
def collect(values: dict[str, int] | list[int]) -> None:
    calls.append(values)


@task(retries=1)
async def await_twice() -> int:
    calls.append("called")
    first = await slow_child(1)
    second = await slow_child(1)
    total = await first.result() + await second.result()
    if "failed" not in calls:
        calls.append("failed")
        raise OSError("once")
    return total


@task
async def await_changing() -> None:
    calls.append("called")
    await (await slow_child(len(calls))).result()


@pytest.fixture(autouse=True)
def _clear(aaiclick_env, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    calls.clear()


async def test_returned_job_is_awaited() -> None:
    parent = await create_job("parent", [collect.task(return_one(3))])
    assert run_job_test(parent).status == "COMPLETED"
    assert calls == [{"value": 6}]


async def test_call_of_a_job_that_a_task_returns_without_await_is_awaited() -> None:
    parent = await create_job("parent", [collect.task({"value": return_unawaited()})])
    assert run_job_test(parent).status == "COMPLETED"
    assert calls == [{"value": 8}]


async def test_job_as_an_argument_is_awaited() -> None:
    assert run_job_test(await create_job("parent", pass_on.task())).status == "COMPLETED"
    assert calls == [[2, 4]]


async def test_awaited_children_are_submitted_once_over_attempts() -> None:
    parent = run_job_test(await create_job("parent", await_twice.task()))
    assert parent.status == "COMPLETED", parent.error
    assert await parent.result() == 4
    assert calls.count("called") in (3, 4)  # the second child may have ended with the first
    jobs = await list_jobs()
    assert sorted(child.name for child in jobs if child.parent_job_id == parent.id) == ["slow_child"] * 2


async def test_failed_child_fails_its_parent() -> None:
    parent = run_job_test(await create_job("parent", [collect.task(return_one(-1))]))
    assert parent.status == "FAILED"
    assert calls == []


async def test_children_that_change_between_calls_are_an_error() -> None:
    parent = run_job_test(await create_job("parent", await_changing.task()))
    assert (parent.status, "but has submitted others" in (parent.error or "")) == ("FAILED", True)


def test_digest_ignores_ids_and_tables_of_attempts() -> None:
    def digest(*numbers: Any) -> str:
        nodes = collect_unsubmitted([collect.task([double.task(number) for number in numbers])])
        return digest_plan(make_plan(nodes)[0])

    assert digest(1, 2) == digest(1, 2)
    assert digest(1, 2) != digest(2, 1)
    tables = [digest_plan(Plan([NewTask(1, "t", "m.t", f'{{"x": "t726531276820480{n}"}}')])) for n in range(2)]
    assert tables[0] == tables[1]
