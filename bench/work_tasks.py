"""Tasks of `bench.work`: what tasks of users do, without the work itself."""

from __future__ import annotations

import pandas as pd

from aaiclick.data import Object, create_object_from_value


async def nothing() -> None: ...


def nothing_in_a_thread() -> None: ...


async def take_arguments(number: int, text: str, items: list[int]) -> None: ...


async def print_line() -> None:
    print("one line")


async def return_int() -> int:
    return 42


async def return_dict() -> dict[str, object]:
    return {"name": "pen", "price": 2.5, "count": 7}


async def return_list() -> list[int]:
    return list(range(100))


async def return_frame() -> pd.DataFrame:
    return pd.DataFrame({"number": range(100), "text": ["x"] * 100})


def make_columns(rows: int) -> dict[str, list[int]]:
    return {"number": list(range(rows)), "square": [n * n for n in range(rows)]}


async def return_object(rows: int) -> Object:
    return await create_object_from_value(make_columns(rows))


async def fail_first(marker: int) -> int:
    """Fail in the first attempt, and return a value in the second."""
    from aaiclick.orchestration.task_context import current_scope

    scope = current_scope()
    assert scope is not None
    if scope.lease.attempt == 1:
        raise OSError("the first time never works")
    return marker


async def pass_none(previous: None = None) -> None: ...


async def pass_int(number: int) -> int:
    return number + 1


async def add_up(numbers: list[int]) -> int:
    return sum(numbers)
