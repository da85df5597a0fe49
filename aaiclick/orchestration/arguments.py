"""Arguments of tasks as JSON: Objects and Views by reference, results of other tasks by the task's id, plain values.

An Object or View is what says so by `to_dict()` (this module need not import the data layer to know one). A result is
`{"object_type": "task", "task_id": "…"}`; whoever runs the task puts the upstream's result in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Node, Task
from aaiclick.store.references import RESULT

REFERENCES = ("object", "view")


def serialise(kwargs: Mapping[str, Any], where: str) -> tuple[str, list[Task]]:
    """The JSON text of `kwargs`, and the tasks whose results it needs; raises SubmitError that names the key."""
    if not kwargs:
        return "{}", []
    needed: list[Task] = []
    return json.dumps(
        {key: _value(value, f"{where}: argument {key!r}", needed) for key, value in kwargs.items()}
    ), needed


def serialise_value(value: Any, where: str) -> tuple[str, list[Task]]:
    """The JSON text of one value, and the tasks whose results it needs."""
    needed: list[Task] = []
    return json.dumps(_value(value, where, needed)), needed


def tasks_in(value: Any) -> Iterator[Task]:
    """The tasks whose results a value needs."""
    if isinstance(value, Task):
        yield value
    elif isinstance(value, dict):
        yield from _tasks_among(list(cast("dict[Any, Any]", value).values()))
    elif isinstance(value, list | tuple):
        yield from _tasks_among(cast("list[Any]", value))


def _tasks_among(items: Sequence[Any]) -> Iterator[Task]:
    # A task may return a million numbers: looking at their types first costs little.
    if any(issubclass(kind, Task | dict | list | tuple) for kind in set(map(type, items))):
        for item in items:
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
