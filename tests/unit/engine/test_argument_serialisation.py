"""Arguments and options of tasks."""

from __future__ import annotations

import math

import pytest

from aaiclick.errors import SubmitError
from aaiclick.operators import map as map_rows
from aaiclick.orchestration import Task, create_job, create_task, get_job, task
from aaiclick.orchestration.argument_serialisation import iter_instances, serialise_arguments
from aaiclick.orchestration.queue_items import make_items
from aaiclick.orchestration.submit_plan import make_plan
from aaiclick.store.task_options import TaskOptions


@pytest.mark.parametrize(
    "value",
    [
        "a\0b", {"a\0": 1}, ["\ud800"], math.nan, [1.0, math.inf], {1: 2}, object(), {"x": b"bytes"},
        {"object_type": "task", "task_id": "5"}, "x" * (65 << 20),
    ],
)  # fmt: skip
def test_invalid_argument_is_refused_by_name(value):
    with pytest.raises(SubmitError, match=r"argument 'x'|of plain values"):
        serialise_arguments({"x": value}, "Task 'load'")


@pytest.mark.parametrize("value", [[1, None, True], ["é", "a"], [1.5, "x"], {"a": [[1], {"b": "\U0001f600"}]}])
def test_plain_values_are_arguments(value):
    import json

    assert json.loads(serialise_arguments({"x": value}, "")[0]) == {"x": value}


def test_nested_tasks_in_arguments_are_found():
    inner = create_task("m.f")
    assert list(iter_instances({"a": [1, [inner]], "b": (inner,), "c": [1] * 1000}, Task)) == [inner, inner]


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0}, {"max_attempts": -1}, {"max_attempts": 10**6}, {"timeout_seconds": 0},
        {"timeout_seconds": math.nan}, {"timeout_seconds": math.inf}, {"timeout_seconds": -1}, {"priority": 10**6},
        {"concurrency_limit": 0},
    ],
)  # fmt: skip
def test_invalid_task_options_are_refused(options):
    with pytest.raises(SubmitError):
        make_plan([create_task("m.f", None, **options)])


def test_negative_retries_are_refused():
    with pytest.raises(SubmitError, match="tried 0 times"):
        task(retries=-1)(print)
    with pytest.raises(SubmitError, match="tried 0 times"):
        make_plan([create_task("module.never", retries=-1)])


def test_queue_items_are_validated_like_tasks():
    with pytest.raises(SubmitError, match="tried -1 times"):
        make_items("t", [{}], [None], TaskOptions(-1))


@pytest.mark.parametrize("entry", [None, 5, [None], ["m.f"]])
async def test_a_job_is_made_of_tasks(entry):
    with pytest.raises(SubmitError, match="cannot be made of"):
        await create_job("x", entry)


async def test_job_timeout_must_be_positive():
    with pytest.raises(SubmitError, match="timeout_seconds nan"):
        await create_job("x", "m.f", timeout_seconds=math.nan)


def takes_numbers(rows: int) -> int:
    return rows


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((takes_numbers, create_task("m.f")), {}),
        (("m.f", [1, 2, 3]), {}),
        (("m.f", create_task("m.f")), {"chunk_rows": 2.5}),
        ((get_job, create_task("m.f")), {"no_such": 1}),
    ],
)
def test_map_is_validated_before_submission(arguments, options):
    with pytest.raises(Exception, match=r"chunks|takes Objects|cannot be called") as caught:
        map_rows(*arguments, **options)
    assert caught.value.remedy
