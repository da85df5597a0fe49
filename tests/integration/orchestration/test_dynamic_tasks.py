"""Dynamic tasks: tasks that add or return tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

from aaiclick.data import DataContext, Object, create_object_from_value, open_reference
from aaiclick.orchestration import (
    JobStatus,
    add_task_to_job,
    create_job,
    create_task,
    get_current_context,
    get_task,
    run_job_test,
    task,
)
from aaiclick.settings import get_settings

ran: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _empty(aaiclick_env):
    ran.clear()


async def note(word: str) -> None:
    ran[word] += 1


async def outcome(task_id: int, clickhouse: Any) -> Any:
    async with DataContext(clickhouse):
        return await _read((await get_task(task_id)).result)


async def _read(form: Any) -> Any:
    if isinstance(form, list):
        return [await _read(item) for item in form]
    if isinstance(form, dict) and "object_type" not in form:
        return {name: await _read(item) for name, item in form.items()}
    return await (await open_reference(form)).data() if isinstance(form, dict) else form


@task(retry_policy={"base_seconds": 0.01})
async def fans_out_and_fails_once() -> None:
    ran["parent"] += 1
    await get_current_context().apply([create_task(note, {"word": f"child {n}"}) for n in range(3)])
    await add_task_to_job(get_current_context().job_id or 0, note, {"word": "single"})
    if ran["parent"] == 1:
        raise RuntimeError("after the fan-out")


async def test_retried_fan_out_adds_tasks_once():
    done = run_job_test(await create_job("fans", fans_out_and_fails_once.task()))
    assert done.status is JobStatus.COMPLETED
    assert ran == {"parent": 2, "child 0": 1, "child 1": 1, "child 2": 1, "single": 1}
    assert done.total_tasks == 5


@task
async def square(values: Object) -> Object:
    return values * values


@task
async def returns_one(n: int) -> Object:
    return square(await create_object_from_value(list(range(n))))


@task
async def returns_many() -> dict[str, Any]:
    numbers = await create_object_from_value([1, 2])
    return {"one": returns_one(4), "list": [square(numbers), 7], "object": numbers + 1}


@task
async def adds_up(values: dict[str, Any]) -> int:
    return await values["one"].sum() + await values["list"][0].sum() + values["list"][1] + await values["object"].sum()


async def test_returned_tasks_are_replaced_by_their_results(aaiclick_clickhouse):
    top = returns_many.task()
    last = adds_up.task(top)
    done = run_job_test(await create_job("returns", last))
    assert done.status is JobStatus.COMPLETED, done.error
    assert await outcome(top.id, aaiclick_clickhouse) == {"one": [0, 1, 4, 9], "list": [[1, 4], 7], "object": [2, 3]}
    assert await outcome(last.id, aaiclick_clickhouse) == 14 + 5 + 7 + 5


@task
def half(number: int) -> float:
    return number / 2


@task
def returns_call(number: int) -> float:
    return half(number)


async def test_function_without_async_returns_a_task(aaiclick_clickhouse):
    call = returns_call.task(5)
    done = run_job_test(await create_job("returns", call))
    assert done.status is JobStatus.COMPLETED, done.error
    assert await outcome(call.id, aaiclick_clickhouse) == 2.5


@task
async def level(depth: int, width: int) -> None:
    """The first task of each level adds the next level."""
    ran["level"] += 1
    if depth:
        rest = [create_task(note, {"word": "leaf"}) for _ in range(width - 1)]
        await get_current_context().apply([level.task(depth - 1, width), *rest])


async def test_nested_dynamic_tasks_complete():
    done = run_job_test(await create_job("deep", level.task(50, 10)))
    assert done.status is JobStatus.COMPLETED
    assert (ran["level"], ran["leaf"]) == (51, 50 * 9)


@task
async def runaway() -> None:
    await get_current_context().apply([runaway.task(), runaway.task()])


async def test_a_runaway_job_is_stopped(monkeypatch):
    monkeypatch.setenv("AAICLICK_JOB_MAX_TASKS", "20")
    get_settings.cache_clear()
    done = run_job_test(await create_job("runaway", runaway.task()))
    assert done.status is JobStatus.FAILED
    assert "may have 20" in (done.error or "")
    assert done.total_tasks <= 20
    assert done.open_tasks == 0


@task
async def endless() -> None:
    await get_current_context().apply(endless.task())


async def test_endless_job_is_stopped_at_the_depth_limit(monkeypatch):
    monkeypatch.setenv("AAICLICK_JOB_MAX_DEPTH", "5")
    get_settings.cache_clear()
    done = run_job_test(await create_job("endless", endless.task()))
    assert done.status is JobStatus.FAILED
    assert "5 levels deep" in (done.error or "")
    assert done.total_tasks == 6


@task
async def parts() -> dict[str, Object]:
    whole = await create_object_from_value({"n": [1, 2, 3]})
    return {"odd": whole.filter(whole["n"] % 2 == 1), "all": whole}


@task
def mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers)


@task
def describe_arguments(
    means: list[float], rows: list[dict[str, int]], frame: pl.DataFrame, parts: dict[str, Object]
) -> str:
    return f"{means} {rows} {frame.shape} {sorted(parts)} {type(parts['odd']).__name__}"


async def test_results_are_converted_to_annotated_types(aaiclick_clickhouse):
    numbers = create_task(count_up)
    parts_task = parts.task()
    last = describe_arguments.task([mean(numbers), mean(numbers)], pair_rows(), pair_rows(), parts_task)
    done = run_job_test(await create_job("annotated", last))
    assert done.status is JobStatus.COMPLETED, done.error
    result = await outcome(last.id, aaiclick_clickhouse)
    assert result == "[2.0, 2.0] [{'a': 1, 'b': 2}] (1, 2) ['all', 'odd'] Object"


def count_up() -> list[int]:
    return [1, 2, 3]


@task
def pair_rows() -> dict[str, list[int]]:
    return {"a": [1], "b": [2]}


@task
def plain(which: str) -> Any:
    return {"record": {"a": 1, "b": "x"}, "mixed": {"a": 1, "b": [1, 2]}, "list": [1, "a"], "none": {}}[which]


@task
def as_dict(value: dict[str, Any]) -> str:
    return repr(value)


@task
def as_list(value: list[Any]) -> str:
    return repr(value)


async def test_plain_values_are_passed_unchanged(aaiclick_clickhouse):
    last = [as_dict.task(plain("record")), as_dict.task(plain("mixed")), as_list.task(plain("list"))]
    last.append(as_dict.task(plain("none")))
    done = run_job_test(await create_job("plain", last))
    assert done.status is JobStatus.COMPLETED, done.error
    results = [await outcome(task.id, aaiclick_clickhouse) for task in last]
    assert results == ["{'a': 1, 'b': 'x'}", "{'a': 1, 'b': [1, 2]}", "[1, 'a']", "{}"]


@task
def hopeless() -> Any:
    return {"x": object()}


async def test_unstorable_result_is_not_retried():
    task = hopeless.task()
    run_job_test(await create_job("hopeless", task))
    failed = await get_task(task.id)
    assert failed.attempt == 1
    assert "The returned value cannot be stored" in (failed.error or "")
