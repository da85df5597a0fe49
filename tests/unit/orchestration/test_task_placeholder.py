"""Uses of a task's result before the task has run, and calls of a @job that are not awaited."""

import asyncio
import math
import warnings
from datetime import date
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest

from aaiclick.data import create_object_from_value, delete_object, open_object
from aaiclick.data.errors import NotAwaitedError
from aaiclick.data.pending_result import NotAwaitedWarning
from aaiclick.errors import PlaceholderError, SubmitError
from aaiclick.orchestration import create_task, job, task
from aaiclick.orchestration.graph import Group


class Colour(Enum):
    RED = 1


@task
def load() -> dict[str, int]:
    return {"rows": 1}


@job
def nightly() -> None:
    load()


@job
async def asynchronous() -> None:
    await asyncio.sleep(0)
    load()


@job
def forgetful() -> None:
    create_task(load.function)


@job
def nothing_to_do() -> list[object]:
    return []


class Table:
    """Its comparison has no truth value, as that of a DataFrame."""

    def __eq__(self, other: object) -> object:
        return Table()

    def __bool__(self) -> bool:
        raise ValueError("The truth value is ambiguous.")

    __hash__ = None


@job
def returns_a_table() -> object:
    return Table()


OTHERS = [None, 1, "text", date(2026, 1, 1), Decimal(1), UUID(int=1), Colour.RED, load(), object()]
FIELDS = ["result", "status", "name", "id", "error", "kwargs", "type", "created_at"]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: type(other).__name__)
def test_comparing_a_result_is_refused(other):
    rows = load()
    for compare in (lambda: rows == other, lambda: rows != other, lambda: other == rows):
        with pytest.raises(PlaceholderError, match="cannot be compared here"):
            compare()


@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_a_result_are_not_those_of_its_task(field):
    with pytest.raises(PlaceholderError, match=rf"used with \.{field} here") as refused:
        getattr(load(), field)
    assert f"load.task(…).{field}" in refused.value.remedy
    getattr(load.task(), field)


def read_with(rows):
    with rows:
        pass


def change_item(rows):
    rows["a"] = 1


async def read_asynchronously(rows):
    async for _ in rows:
        pass


async def read_with_asynchronously(rows):
    async with rows:
        pass


USES = {
    "str": str,
    "print": print,
    "percent": lambda rows: "%s" % rows,  # noqa: UP031
    "with": read_with,
    "item": change_item,
    "divmod": lambda rows: divmod(rows, 2),
    "divmod of": lambda rows: divmod(2, rows),
    "async for": lambda rows: asyncio.run(read_asynchronously(rows)),
    "async with": lambda rows: asyncio.run(read_with_asynchronously(rows)),
    "reversed": reversed,
    "complex": complex,
    "floor": math.floor,
}


@pytest.mark.parametrize("use", USES)
def test_uses_of_a_result_are_refused(use):
    with pytest.raises(PlaceholderError):
        USES[use](load())


def test_tasks_are_compared_by_identity():
    one, two, group = load.task(), load.task(), Group("group")
    assert one != two
    assert one != group
    assert two in [one, two]
    result = load()
    assert result == result
    assert repr(result).startswith("Task('load', id=")
    with pytest.raises(SubmitError, match="cannot be declared on 3"):
        one >> 3


def test_dropped_call_of_a_job_names_its_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nightly()  # the line of the warning
    (warning,) = caught
    assert warning.category is NotAwaitedWarning
    assert "nightly(…) was not submitted" in str(warning.message)
    assert "sync.submit(nightly(…))" in str(warning.message)
    assert warning.filename == __file__
    with open(__file__, encoding="utf-8") as file:
        assert "the line of the warning" in file.readlines()[warning.lineno - 1]


DROPPED_CALLS = [
    lambda: create_object_from_value([1]),
    lambda: open_object("name"),
    lambda: delete_object("name"),
]


@pytest.mark.parametrize("call", DROPPED_CALLS)
def test_dropped_call_with_checked_arguments_names_its_line(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, call.__code__.co_firstlineno)


def test_job_that_is_not_awaited_refuses_to_be_used():
    with pytest.raises(NotAwaitedError, match=r"sync\.submit\(nightly"):
        nightly().result()


@pytest.mark.parametrize("function", [nightly, asynchronous])
def test_jobs_are_built_of_the_tasks_that_they_call(function):
    assert [node.name for node in asyncio.run(function.build_async())] == ["load"]


def test_job_without_tasks_is_refused_unless_it_says_so():
    with pytest.raises(SubmitError, match=r"@job forgetful\(\) created no task") as refused:
        forgetful.build()
    assert "create_task" in refused.value.remedy
    assert nothing_to_do.build() == []
    with pytest.raises(SubmitError, match="returned a value of type Table and created no task"):
        returns_a_table.build()
