"""Arguments of tasks as JSON: Objects and Views by reference, results of other tasks by the task's id, plain values.

An Object or View is what says so by `to_dict()` (this module need not import the data layer to know one). A result is
`{"object_type": "task", "task_id": "…"}`; whoever runs the task puts the upstream's result in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Node, Task
from aaiclick.store.references import RESULT

T = TypeVar("T")
REFERENCES = ("object", "view")
MOST_BYTES = 64 << 20


def serialise(kwargs: Mapping[str, Any], where: str) -> tuple[str, list[Task]]:
    """The JSON text of `kwargs`, and the tasks whose results it needs; raises SubmitError that names the key."""
    if not kwargs:
        return "{}", []
    needed: list[Task] = []
    try:
        fields = {_text(key, where): _value(each, f"{where}: argument {key!r}", needed) for key, each in kwargs.items()}
        return _bounded(json.dumps(fields), where), needed
    except RecursionError:
        raise _refusal(where, "is nested without an end, or too deeply") from None


def serialise_value(value: Any, where: str) -> tuple[str, list[Task]]:
    """The JSON text of one value, and the tasks whose results it needs."""
    needed: list[Task] = []
    try:
        return _bounded(json.dumps(_value(value, where, needed)), where), needed
    except RecursionError:
        raise _refusal(where, "is nested without an end, or too deeply") from None


def _bounded(text: str, where: str) -> str:
    if len(text) > MOST_BYTES:
        raise SubmitError(
            f"{where} has {len(text) >> 20} MB of plain values; the most is {MOST_BYTES >> 20} MB.",
            remedy="Store them as an Object (create_object_from_value) and pass that.",
        )
    return text


def found_in(value: Any, kind: type[T]) -> Iterator[T]:
    """What is of a kind in nested lists and dicts."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from found_in(item, kind)
    elif isinstance(value, list | tuple) and not is_plain(items := cast("list[Any]", value)):
        for item in items:
            yield from found_in(item, kind)


def is_plain(items: Sequence[Any]) -> bool:
    """Whether these are scalars all; a task may return a million of them, and looking at types costs little."""
    return set(map(type, items)) <= _SCALARS


_SCALARS = frozenset({type(None), bool, int, float, str})


def _value(value: Any, where: str, needed: list[Task]) -> Any:
    match value:
        case str():
            return _text(value, where)
        case None | bool() | int():
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
            if set(map(type, items)) <= _WHOLE or (is_plain(items) and all(map(_is_fine, items))):
                return list(items)
            return [_value(item, f"{where}[{index}]", needed) for index, item in enumerate(items)]
        case dict():
            fields = cast("dict[Any, Any]", value)
            for key in fields:
                if not isinstance(key, str):
                    raise _refusal(where, f"has the key {key!r}, which is not a string")
                _text(key, where)
            if fields.keys() == {"object_type", "task_id"} and fields["object_type"] == RESULT:
                raise SubmitError(
                    f"{where} is the form of another task's result, made by hand.", remedy="Pass the task itself."
                )
            return {key: _value(item, f"{where}[{key!r}]", needed) for key, item in fields.items()}
        case _:
            return _reference(value, where)


_WHOLE = frozenset({type(None), bool, int})


def _is_fine(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or (value.isascii() and "\0" not in value)


def _text(value: str, where: str) -> str:
    """PostgreSQL holds neither NUL nor halves of surrogate pairs."""
    if "\0" in value:
        raise _refusal(where, "holds a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _refusal(where, "holds half of a surrogate pair, which is not Unicode") from None
    return value


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
