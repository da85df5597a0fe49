"""Values that JSON and tables do not have, as arguments and as results of tasks."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pydantic
import pytest

from aaiclick.data import Object, create_object_from_value
from aaiclick.errors import SubmitError
from aaiclick.orchestration import create_job, create_task, get_task, job, run_job_test, task


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: int
    day: date


class Shop(pydantic.BaseModel):
    name: str
    orders: list[Order] = []
    colour: Colour = Colour.RED


DAY = date(2026, 1, 2)
ORDER = Order(1, DAY)
CASES: dict[str, tuple[Any, Any]] = {
    "date": (DAY, date),
    "datetime": (datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), datetime),
    "naive_datetime": (datetime(2026, 1, 2, 3, 4, 5), datetime),  # noqa: DTZ001
    "time": (time(3, 4, 5), time),
    "timedelta": (timedelta(days=1, microseconds=1), timedelta),
    "decimal": (Decimal("12.340"), Decimal),
    "uuid": (UUID(int=5), UUID),
    "path": (Path("/tmp/x"), Path),
    "enum": (Colour.RED, Colour),
    "dataclass": (ORDER, Order),
    "model": (Shop(name="a", orders=[ORDER]), Shop),
    "pair": ((1, "a"), tuple[int, str]),
    "numbers": ((1, 2, 3), tuple[int, ...]),
    "typed_tuple": ((DAY, ORDER, 3), tuple[date, Order, int]),
    "tuple_of_dicts": (({"a": 1}, {"a": 2}), tuple[dict, dict]),
    "set": ({1, 2}, set[int]),
    "empty_set": (set(), set[int]),
    "frozenset": (frozenset({"a"}), frozenset[str]),
    "integer_keys": ({1: "a", 2: "b"}, dict[int, str]),
    "date_keys": ({DAY: 1}, dict[date, int]),
    "enum_keys": ({Colour.RED: 1}, dict[Colour, int]),
    "dataclasses": ([ORDER, Order(2, DAY)], list[Order]),
    "dataclass_by_name": ({"x": ORDER}, dict[str, Order]),
    "optional_dates": ([None, DAY], list[date | None]),
    "optional": (None, date | None),
    "pairs": ([(1, "a"), (2, "b")], list[tuple[int, str]]),
    "unlike_types": ([{"a": 1}, {"a": "x"}], list[dict]),
}


def make_tasks(name: str, value: Any, annotation: Any) -> tuple[Any, Any]:
    def receive(value: Any) -> None:
        expected = CASES[name][0]
        assert value == expected
        assert type(value) is type(expected)

    def produce() -> Any:
        return value

    receive.__annotations__["value"] = produce.__annotations__["return"] = annotation
    for function in (receive, produce):
        function.__name__ = function.__qualname__ = f"{function.__name__}_{name}"
    return task(retries=0)(receive), task(retries=0)(produce)


TASKS = {name: make_tasks(name, *case) for name, case in CASES.items()}


@job
def pass_values() -> None:
    for name, (receive, produce) in TASKS.items():
        receive(CASES[name][0])
        receive(produce())


@pytest.mark.parametrize("max_literal_bytes", ["-1", "65536"], ids=["tables", "literals"])
def test_values_arrive_with_their_types(aaiclick_env, monkeypatch, max_literal_bytes):
    monkeypatch.setenv("AAICLICK_MAX_LITERAL_BYTES", max_literal_bytes)
    done = run_job_test(asyncio.run(pass_values()))
    assert done.error is None
    assert (done.status, done.total_tasks) == ("COMPLETED", 3 * len(CASES))


@task
def split() -> tuple[int, date]:
    return 1, DAY


@task
async def split_objects() -> tuple[Object, Object]:
    return await create_object_from_value([1, 2]), await create_object_from_value([3])


@task(retries=0)
async def join_items(number: int, day: date, left: Object, right: Object) -> None:
    assert (number, day) == (1, DAY)
    assert (await left.data(), await right.data()) == ([1, 2], [3])


@job
def unpack() -> None:
    number, day = split()
    left, right = split_objects()
    join_items(number, day, left, right)


def test_tuples_are_unpacked_in_a_job(aaiclick_env):
    done = run_job_test(asyncio.run(unpack()))
    assert (done.status, done.error) == ("COMPLETED", None)


@task
def keep_day(day: date) -> None:
    assert day == DAY


def keep_anything(value, count: int = 1) -> None: ...


def test_text_from_json_becomes_the_annotated_type(aaiclick_env):
    created = asyncio.run(create_job("by path", create_task(f"{__name__}.keep_day", {"day": "2026-01-02"})))
    assert run_job_test(created).status == "COMPLETED"


def test_invalid_text_fails_once(aaiclick_env):
    wrong = create_task(f"{__name__}.keep_day", {"day": "soon"})
    assert run_job_test(asyncio.run(create_job("wrong", wrong))).status == "FAILED"
    failed = asyncio.run(get_task(wrong.id))
    assert (failed.attempt, failed.status) == (1, "FAILED")
    assert failed.error is not None
    assert "The argument 'day' is not date: input should be a valid date" in failed.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": DAY}, "argument 'value' is of type date, and the parameter is not annotated"),
        ({"value": {1, 2}}, "argument 'value' is of type set, and the parameter is not annotated"),
        ({"value": object()}, "argument 'value' is of type object"),
        ({"value": split}, "argument 'value' is the function split itself"),
        ({"value": 1, "count": Decimal(1)}, "argument 'count' is of type Decimal"),
        ({"value": [1, {"day": DAY}]}, "argument 'value'[1]['day'] is of type date"),
        ({"value": {1: "a"}}, "argument 'value' has the key 1, which is not a string"),
        ({"value": (1.0, float("nan"))}, "argument 'value'[1] is nan"),
    ],
    ids=["date", "set", "object", "function", "decimal", "nested date", "integer key", "nan"],
)
def test_values_without_annotation_are_refused(arguments, message):
    with pytest.raises(SubmitError, match=re.escape(message)):
        create_task(keep_anything, arguments)


def test_values_of_other_types_are_refused():
    with pytest.raises(SubmitError, match="argument 'day' is not date"):
        keep_day(UUID(int=5))  # pyright: ignore[reportArgumentType]


@task
def return_integer_keys():
    return {1: "a"}


@task
def return_unlike_rows() -> list[dict]:
    return [{"a": 1}, {"a": 1, "b": 2}]


@job
def values_that_would_change() -> None:
    return_integer_keys()
    return_unlike_rows()


@pytest.mark.parametrize(
    ("max_literal_bytes", "failures"),
    [
        ("65536", {"return_integer_keys": "has the key 1 of type int"}),
        (
            "-1",
            {
                "return_integer_keys": "-> dict[int, …]",
                "return_unlike_rows": "'b' is in row 1 and not in row 0",
            },
        ),
    ],
)
def test_results_that_would_change_fail_once(aaiclick_env, monkeypatch, max_literal_bytes, failures):
    monkeypatch.setenv("AAICLICK_MAX_LITERAL_BYTES", max_literal_bytes)
    nodes = values_that_would_change.build()
    run_job_test(asyncio.run(create_job("values", nodes)))
    tasks = [asyncio.run(get_task(node.id)) for node in nodes]
    assert {task.name for task in tasks if task.error} == {f"{__name__}.{name}" for name in failures}
    for ended in tasks:
        if ended.error:
            assert failures[ended.name.rpartition(".")[2]] in ended.error
            assert ended.attempt == 1
