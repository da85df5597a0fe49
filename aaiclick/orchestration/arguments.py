"""Arguments of tasks as JSON: Objects and Views by reference, results of other tasks by the task's id, plain values.

An Object or View is what says so by `to_dict()` (this module need not import the data layer to know one). A result is
`{"object_type": "task", "task_id": "…"}`; whoever runs the task puts the upstream's result in its place (`resolve`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Node, Task

REFERENCES = ("object", "view")
RESULT = "task"


def serialise(kwargs: Mapping[str, Any], where: str) -> tuple[str, list[Task]]:
    """The JSON text of `kwargs`, and the tasks whose results it needs; raises SubmitError that names the key."""
    if not kwargs:
        return "{}", []
    needed: list[Task] = []
    return json.dumps(
        {key: _value(value, f"{where}: argument {key!r}", needed) for key, value in kwargs.items()}
    ), needed


def tasks_in(value: Any) -> Iterator[Task]:
    """The tasks whose results an argument needs."""
    if isinstance(value, Task):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from tasks_in(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from tasks_in(item)


def _value(value: Any, where: str, needed: list[Task]) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise _refusal(where, f"is {value}, which JSON does not have")
            return value
        case Task():
            needed.append(value)
            return {"object_type": RESULT, "task_id": str(value.id)}
        case Node():
            raise _refusal(where, f"is {value!r}: a group has no result")
        case list() | tuple():
            items = cast("list[Any]", value)
            return [_value(item, f"{where}[{index}]", needed) for index, item in enumerate(items)]
        case dict():
            fields = cast("dict[Any, Any]", value)
            for key in fields:
                if not isinstance(key, str):
                    raise _refusal(where, f"has the key {key!r}, which is not a string")
            return {key: _value(item, f"{where}[{key!r}]", needed) for key, item in fields.items()}
        case _:
            return _reference(value, where)


def _reference(value: Any, where: str) -> Any:
    to_dict: Callable[[], Any] | None = getattr(value, "to_dict", None)
    form = to_dict() if callable(to_dict) and hasattr(value, "table_id") else None
    if isinstance(form, dict) and cast("dict[str, Any]", form).get("object_type") in REFERENCES:
        return cast("dict[str, Any]", form)
    raise _refusal(where, f"is of type {type(value).__name__}")


def _refusal(where: str, what: str) -> SubmitError:
    return SubmitError(
        f"{where} {what}.", remedy="Arguments are Objects, Views, other tasks (their results) and plain JSON values."
    )


def results_needed(kwargs: Any) -> set[int]:
    """Ids of the tasks whose results appear in deserialised `kwargs`."""
    found: set[int] = set()
    resolve(kwargs, _Collector(found))
    return found


class _Collector(dict[int, Any]):
    def __init__(self, found: set[int]) -> None:
        super().__init__()
        self._found = found

    def __missing__(self, key: int) -> None:
        self._found.add(key)


def resolve(value: Any, results: Mapping[int, Any]) -> Any:
    """Deserialised kwargs with every upstream result in its place; `results` are deserialised too."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("object_type") == RESULT and set(fields) == {"object_type", "task_id"}:
            return results[int(fields["task_id"])]
        return {key: resolve(item, results) for key, item in fields.items()}
    if isinstance(value, list):
        return [resolve(item, results) for item in cast("list[Any]", value)]
    return value
