"""Data tests of the rows that a task returns."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from aaiclick.data.compile.data_test_queries import DataTest
from aaiclick.errors import SubmitError


def add_tests(function: Callable[..., Any], tests: Sequence[DataTest]) -> Callable[..., Any]:
    """Return the function with tests of its result; it then returns an Object, or raises DataTestError."""
    for test in tests:
        if not isinstance(test, DataTest):  # pyright: ignore[reportUnnecessaryIsInstance]  (of untyped code)
            raise SubmitError(
                f"{test!r:.60} is not a data test.", remedy="Use functions of aaiclick.data.expectations: unique(…)."
            )
        if test.on_failure == "quarantine":
            raise SubmitError(
                f"The test {test.describe_test()!r} of a task cannot quarantine rows: a task has one result.",
                remedy="Use await expect(rows)….split() in the task and return both.",
            )

    async def check(value: object) -> object:
        from aaiclick.data.expectations import check_value  # slow import: Arrow

        return None if value is None else await check_value(await value if inspect.isawaitable(value) else value, tests)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_and_check(*args: Any, **kwargs: Any) -> object:
            return await check(await function(*args, **kwargs))

        return call_and_check

    @functools.wraps(function)
    def call_then_check(*args: Any, **kwargs: Any) -> object:
        return check(function(*args, **kwargs))  # the worker awaits it on the loop

    return call_then_check
