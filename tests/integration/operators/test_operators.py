"""map, reduce and foreach over Objects, from client code and inside tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaiclick.data import DataContext, Object, View, col, create_object_from_value, open_reference
from aaiclick.errors import SubmitError
from aaiclick.operators import foreach, map, reduce  # noqa: A004
from aaiclick.orchestration import (
    Job,
    JobStatus,
    OrchContext,
    Task,
    create_job,
    create_task,
    get_task,
    job,
    retry_failed_tasks,
    run_job_test,
    task,
)

received: list[Any] = []
calls: Counter[int] = Counter()


@pytest.fixture(autouse=True)
def _empty(aaiclick_env):
    received.clear()
    calls.clear()


@pytest.fixture
async def data(aaiclick_clickhouse):
    async with DataContext(aaiclick_clickhouse) as context:
        yield context


async def run_to_completion(submitted: Job) -> Job:
    done = run_job_test(submitted)
    if done.status is not JobStatus.COMPLETED:
        async with OrchContext() as context, context.connection() as connection:
            rows = await connection.fetch("SELECT type, status::text, error FROM tasks WHERE error IS NOT NULL")
        pytest.fail(f"{done.status} {done.error}: {[tuple(row) for row in rows]}")
    return done


async def read_result(handle: Task) -> Any:
    """Read the result of a task."""
    form = (await get_task(handle.id)).result
    return form and await (await open_reference(form)).data()


# --- forms of callbacks -------------------------------------------------------------------------------------------


def by_arrow(rows: pa.Table) -> pa.Table:
    return pa.table({"y": pc.multiply(rows["x"], 2)})


def by_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"y": pc.multiply(rows["x"], 2)})


def by_pandas(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"y": rows["x"] * 2})


def by_polars(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(y=pl.col("x") * 2)


def by_view(rows: View) -> Object:
    return rows.select(y=col("x") * 2)


def unannotated(rows):
    return rows.select(y=col("x") * 2)


async def asynchronous(rows: View) -> dict[str, list[int]]:
    return {"y": [2 * x for x in (await rows.data())["x"]]}


CALLBACKS = [by_arrow, by_batch, by_pandas, by_polars, by_view, unannotated, asynchronous]


async def test_callbacks_take_and_return_every_form(data):
    numbers = await create_object_from_value({"x": list(range(25))})
    handles = [map(callback, numbers, chunk_rows=10) for callback in CALLBACKS]
    handles.append(map(f"{__name__}.by_arrow", numbers, chunk_rows=10))
    await run_to_completion(await create_job("forms", handles))
    for handle in handles:
        result = await handle.object()
        assert await result.data() == {"y": [2 * x for x in range(25)]}, handle
        ids = await data.client.read_text(f"SELECT aai_id FROM {result.table_id} ORDER BY aai_id")
        assert ids.column(0).to_pylist() == list(range(25))


def takes_int(rows: int) -> None: ...


def takes_nothing() -> None: ...


@pytest.mark.parametrize(
    ("callback", "message"), [("takes_int", "chunks cannot be passed as"), ("takes_nothing", "has 0 parameters")]
)
async def test_invalid_callback_fails_without_retry(data, callback, message):
    numbers = await create_object_from_value([1, 2, 3])
    submitted = await create_job("takes_int", foreach(f"{__name__}.{callback}", numbers))
    assert run_job_test(submitted).status is JobStatus.FAILED
    async with OrchContext() as context, context.connection() as connection:
        row = await connection.fetchrow("SELECT error, attempt FROM tasks WHERE type LIKE '%.chunk'")
    assert message in row["error"]
    assert row["attempt"] == 1


# --- numbers of rows ----------------------------------------------------------------------------------------------


def every_fourth(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(pc.bit_wise_and(rows["x"], 3), 0))


def repeat_rows(rows: pa.Table) -> pa.Table:
    return pa.table({"x": [x for x in rows["x"].to_pylist() for _ in range(3)]})


def drop_all(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


def keep_last(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.greater_equal(rows["x"], 15))


async def test_the_number_of_rows_may_change(data):
    numbers = await create_object_from_value({"x": list(range(20))})
    handles = [map(callback, numbers, chunk_rows=6) for callback in (every_fourth, repeat_rows, drop_all, keep_last)]
    await run_to_completion(await create_job("rows", handles))
    expected = [list(range(0, 20, 4)), [x for x in range(20) for _ in range(3)], [], list(range(15, 20))]
    for handle, values in zip(handles, expected, strict=True):
        result = await handle.object()
        assert await result.data() == {"x": values}
        ids = await data.client.read_text(f"SELECT aai_id FROM {result.table_id} ORDER BY aai_id")
        assert ids.column(0).to_pylist() == list(range(len(values)))


def add_columns(left: pa.Table, right: pl.DataFrame, factor: int) -> pa.Table:
    return pa.table({"sum": pc.add(left["a"], pc.multiply(right["b"].to_arrow(), factor))})


async def test_several_objects_and_arguments(data):
    left = await create_object_from_value({"a": list(range(10))})
    right = await create_object_from_value({"b": list(range(10, 20))})
    short = await create_object_from_value({"b": [1]})
    handle = map(add_columns, left, right, chunk_rows=3, factor=100)
    await run_to_completion(await create_job("two", handle))
    assert await read_result(handle) == {"sum": [a + 100 * (a + 10) for a in range(10)]}
    submitted = await create_job("unequal", map(add_columns, left, short, factor=1, chunk_rows=3))
    assert run_job_test(submitted).status is JobStatus.FAILED


async def test_map_over_views(data):
    numbers = await create_object_from_value({"x": list(range(100))})
    part = map(by_arrow, numbers.view(10, 25), chunk_rows=10)
    chosen = map(by_arrow, numbers.view(1, 3, "x % 10 = 0"), chunk_rows=2)
    await run_to_completion(await create_job("views", [part, chosen]))
    assert await read_result(part) == {"y": [2 * x for x in range(10, 35)]}
    assert await read_result(chosen) == {"y": [20, 40, 60]}


async def test_map_over_no_rows(data):
    empty = (await create_object_from_value({"x": [1]})).view(0, 0)
    handle = map(by_arrow, empty)
    await run_to_completion(await create_job("empty", handle))
    assert await read_result(handle) == {"y": []}


# --- in jobs and in tasks -----------------------------------------------------------------------------------------


@task
async def numbers(count: int) -> Object:
    return await create_object_from_value({"x": list(range(count))})


@task
async def total(values: Object) -> int:
    return await values["y"].sum()


@job
def sums(count: int) -> Any:
    return total(map(by_arrow, numbers(count), chunk_rows=7))


async def test_map_between_tasks(data):
    nodes = sums.build(20)
    await run_to_completion(await create_job("between", nodes))
    assert await read_result(nodes[-1]) == 2 * sum(range(20))


@task
async def returns_a_map(count: int) -> Object:
    values = await create_object_from_value({"x": list(range(count))})
    return map(by_arrow, values, chunk_rows=4)


@task
async def submits_a_map(count: int) -> Object:
    values = await create_object_from_value({"x": list(range(count))})
    first = await map(by_view, values + 1, chunk_rows=4)
    return {"mapped": first, "sum": total(first), "n": count}


@task
async def shape_of(value: dict[str, Any]) -> str:
    return f"{len((await value['mapped'].data())['y'])} {await value['sum'].data()} {value['n']}"


async def test_maps_inside_tasks(data):
    one, two = returns_a_map.task(10), submits_a_map.task(10)
    after = [total.task(one), shape_of.task(two)]
    await run_to_completion(await create_job("inside", after))
    assert await read_result(one) == {"y": [2 * x for x in range(10)]}
    assert await read_result(after[0]) == 90
    assert await read_result(after[1]) == "10 110 10"


def record_rows(rows: pa.Table, word: str) -> None:
    received.append((word, rows["x"].to_pylist()))


async def test_foreach_returns_nothing(data):
    values = await create_object_from_value({"x": list(range(5))})
    handle = foreach(record_rows, values, chunk_rows=2, word="w")
    await run_to_completion(await create_job("each", handle))
    assert sorted(received) == [("w", [0, 1]), ("w", [2, 3]), ("w", [4])]
    assert (await get_task(handle.id)).result is None


def add_up(rows: pa.Table) -> pa.Table:
    received.append(rows.num_rows)
    return pa.table({"x": [pc.sum(rows["x"]).as_py()]})


def return_unchanged(rows: pa.Table) -> pa.Table:
    return rows


async def test_reduce_runs_level_by_level(data):
    values = await create_object_from_value({"x": list(range(100))})
    handle = reduce(add_up, values, chunk_rows=4)
    await run_to_completion(await create_job("tree", handle))
    assert await read_result(handle) == {"x": [4950]}
    assert Counter(received) == Counter([4] * 25 + [4] * 6 + [1] + [4, 3] + [2])


async def test_reduce_that_does_not_shrink_fails(data):
    values = await create_object_from_value({"x": list(range(10))})
    submitted = await create_job("stuck", reduce(return_unchanged, values, chunk_rows=4))
    assert run_job_test(submitted).status is JobStatus.FAILED


# --- failures -----------------------------------------------------------------------------------------------------


def fail_once(rows: pa.Table) -> pa.Table:
    first = rows["x"][0].as_py()
    calls[first] += 1
    if first % 100 == 0 and calls[first] == 1:
        raise RuntimeError("one in a hundred")
    return by_arrow(rows)


@pytest.mark.timeout(240)
async def test_failed_chunks_are_retried_and_rows_stay_in_order(data):
    values = await create_object_from_value({"x": list(range(300))})
    handle = map(fail_once, values, chunk_rows=1, options={"retry_policy": {"base_seconds": 0.01}})
    await run_to_completion(await create_job("fail_once", handle))
    result = await handle.object()
    assert await result.data() == {"y": [2 * x for x in range(300)]}
    assert sum(calls.values()) == 303
    parts = await data.client.read_text(
        "SELECT count() FROM system.parts WHERE active AND database = currentDatabase() AND table = {t:String}",
        {"t": result.table_id},
    )
    assert parts.column(0)[0].as_py() < 150


def fail_on_five(rows: pa.Table) -> pa.Table:
    if 5 in rows["x"].to_pylist() and not received:
        raise ValueError("five")
    return by_arrow(rows)


async def test_failing_chunk_fails_the_map_and_can_be_retried(data):
    values = await create_object_from_value({"x": list(range(9))})
    handle = map(fail_on_five, values, chunk_rows=3, options={"max_attempts": 1})
    after = total.task(handle)
    submitted = await create_job("broken", after)
    assert run_job_test(submitted).status is JobStatus.FAILED
    assert (await get_task(handle.id)).status == "CANCELLED"
    received.append("fixed")
    await retry_failed_tasks(submitted.id)
    await run_to_completion(submitted)
    assert await read_result(after) == 2 * sum(range(9))


# --- invalid arguments --------------------------------------------------------------------------------------------

SOME = create_task("some.function")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: map(by_arrow), "needs at least one Object"),
        (lambda: map(by_arrow, SOME, chunk_rows=0), "chunks of 0 rows"),
        (lambda: map(by_arrow, SOME, options={"retry": 1}), "no options"),
        (lambda: map(lambda rows: rows, SOME), "cannot be run by another process"),
    ],
)
def test_invalid_map_arguments_raise_at_once(call, message):
    with pytest.raises(SubmitError, match=message):
        call()


def test_an_operator_is_an_ordinary_task():
    handle = map(by_arrow, create_task(numbers.function))
    after = create_task(total.function, {"values": handle})
    handle >> after
    assert handle.name.startswith("map ")
