"""Small results: stored with their tasks, converted for consumers, and stored as tables when something needs one."""

from __future__ import annotations

import asyncio

import pandas as pd
import pytest

from aaiclick.data import DataContext, Object, View, create_object_from_value, insert, open_reference
from aaiclick.data.result_preview import preview_results
from aaiclick.local import find_clickhouse
from aaiclick.operations.jobs import MAX_RESULT_BYTES, limit_bytes
from aaiclick.orchestration import JobStatus, OrchContext, get_task, job, run_job_test, task
from aaiclick.settings import get_settings
from aaiclick.store.engine.invariants import check_invariants

received: dict[str, object] = {}


async def test_previews_decode_only_the_literals_of_their_result(aaiclick_env):
    references = [{"object_type": "object", "table_id": f"t{number}"} for number in (1, 2)]
    literals = {"t1": '{"value": [1, 2]}', "t2": '{"arrow": "!", "columns": [], "shape": "table"}'}
    endpoint = await asyncio.to_thread(find_clickhouse, get_settings())
    texts = await preview_results([[references[0]], [references[1]], {"first": references[0]}], endpoint, literals)
    assert [texts[0], texts[2]] == ["[[1, 2]]", "{'first': [1, 2]}"]
    assert texts[1].startswith("cannot be shown: ")


def test_large_results_shorten_a_page():
    forms = [{"object_type": "object", "table_id": f"t{number}"} for number in range(4)]
    literals = {f"t{number}": "x" * (MAX_RESULT_BYTES // 2 - 100) for number in range(4)}
    assert limit_bytes(forms, [50] * 4, literals) == forms[:2]
    assert limit_bytes(forms, [MAX_RESULT_BYTES] * 4, literals) == forms[:1]
    assert limit_bytes(forms, [50] * 4, {}) == forms


@pytest.fixture(autouse=True)
def _empty(aaiclick_env):
    received.clear()


@task
def give(value: object) -> object:
    return value


@task
def give_long(first: list[object] | str, count: int) -> object:
    if isinstance(first, str):
        return first * count
    return [True, False] * 30_000 if first == [True] else first * count


@task
async def take_any(value: Object) -> None:
    received["any"] = await value.data()


@task
def give_frame() -> pd.DataFrame:
    return pd.DataFrame({"x": [1, 2, 3]})


@task
def take_int(value: int) -> int:
    received["int"] = value
    return value + 1


@task
def take_list(values: list[object]) -> None:
    received["list"] = values


@task
def take_numbers(values: list[int]) -> None:
    received["list"] = values


@task
def take_dict(values: dict[str, object]) -> None:
    received["dict"] = values


@task
def take_rows(rows: list[dict[str, object]]) -> None:
    received["rows"] = rows


@task
def take_frame(frame: pd.DataFrame) -> None:
    received["frame"] = frame


@task
async def take_object(values: Object) -> Object:
    received["object"] = await values.data()
    return values


@task
async def append(values: Object) -> None:
    await insert(values, [99])


@task
async def read_after(values: list[int], _after: object) -> None:
    received["after"] = values


@task
async def part(values: Object) -> View:
    return values[1:]


@task
async def pass_on() -> object:
    return take_list(await create_object_from_value([1, 2]))


@task
def fan_out() -> list[object]:
    return [take_int(number) for number in range(3)]


async def count_tables() -> int:
    async with OrchContext() as context, context.connection() as connection:
        return await connection.fetchval("SELECT count(*) FROM table_refcounts WHERE refcount > 0")


def run(graph) -> None:
    assert run_job_test(graph).status is JobStatus.COMPLETED


async def test_small_results_leave_no_table():
    @job
    def flow() -> None:
        number = take_int(give(41))
        take_list(give(["a", None]))
        take_dict(give({"a": 1, "b": "x"}))
        take_rows(give([{"a": 1}, {"b": [2]}]))
        take_frame(give_frame())
        take_object(number)

    run(await flow())
    assert received.pop("frame")["x"].tolist() == [1, 2, 3]
    assert received == {
        "int": 41,
        "list": ["a", None],
        "dict": {"a": 1, "b": "x"},
        "rows": [{"a": 1}, {"b": [2]}],
        "object": 42,
    }
    assert await count_tables() == 0


async def test_a_job_of_plain_values_needs_no_clickhouse(monkeypatch):
    @job
    def flow() -> None:
        take_numbers([take_int(give(number)) for number in range(5)])
        take_dict(give({"a": 1, "b": "x"}))
        take_rows(give([{"a": 1}, {"b": [2]}]))
        take_frame(give_frame())

    monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", "http://nobody:none@127.0.0.1:9/nothing")
    get_settings.cache_clear()
    run(await flow())
    assert received["list"] == [1, 2, 3, 4, 5]
    assert received["dict"] == {"a": 1, "b": "x"}
    assert received["rows"] == [{"a": 1}, {"b": [2]}]
    assert received["frame"]["x"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("max_bytes", ["65536", "0"])
@pytest.mark.parametrize(
    "value", [[True, False] * 30_000, "é" * 30_000, ["é" * 10] * 2_000, []], ids=["flags", "text", "texts", "empty"]
)
async def test_a_value_with_a_long_text_and_few_bytes_is_stored(value, max_bytes, monkeypatch):
    monkeypatch.setenv("AAICLICK_MAX_LITERAL_BYTES", max_bytes)
    get_settings.cache_clear()

    @job
    def flow() -> None:
        take_any(give_long(value[:1], len(value)))

    run(await flow())
    assert received["any"] == value


async def test_many_results_reach_one_task():
    @job
    def flow() -> None:
        take_numbers([give(number) for number in range(50)])

    run(await flow())
    assert received["list"] == list(range(50))
    assert await count_tables() == 0


async def test_returned_tasks_are_lists_of_small_results():
    @job
    def flow() -> None:
        take_numbers(fan_out())

    run(await flow())
    assert received["list"] == [1, 2, 3]


async def test_appended_rows_are_seen_by_later_readers():
    @job
    def flow() -> None:
        values = give([1, 2])
        read_after(values, append(values))

    run(await flow())
    assert received["after"] == [1, 2, 99]
    assert await count_tables() == 1


async def test_several_tasks_append_to_one_literal():
    @job
    def flow() -> None:
        values = give([0])
        read_after(values, [append(values) for _ in range(4)])

    run(await flow())
    assert received["after"] == [0, 99, 99, 99, 99]


async def test_a_view_of_a_small_result_is_a_view_of_a_table():
    @job
    def flow() -> None:
        take_list(part(give([1, 2, 3])))

    run(await flow())
    assert received["list"] == [2, 3]


async def test_a_script_opens_a_small_result():
    @job
    def flow() -> object:
        return give([1, 2, 3])

    flow_job = await flow()
    run(flow_job)
    async with OrchContext() as context, context.connection() as connection:
        task_id = await connection.fetchval("SELECT id FROM tasks WHERE job_id = $1", flow_job.id)
    result = (await get_task(task_id)).result
    async with DataContext():
        obj = await open_reference(result)
        assert obj.to_dict() == result
        assert await (obj * 2).data() == [2, 4, 6]


async def test_an_object_created_in_a_task_is_passed_on_as_a_table():
    @job
    def flow() -> None:
        pass_on()

    run(await flow())
    assert received["list"] == [1, 2]
    assert await count_tables() == 1


async def test_invariants_hold_for_literals():
    @job
    def flow() -> None:
        take_int(give(1))

    run(await flow())
    async with OrchContext() as context, context.connection() as connection:
        assert await check_invariants(connection) == []
