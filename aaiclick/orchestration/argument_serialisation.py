"""Serialise arguments of tasks to JSON: Objects and Views by reference, results of other tasks by task id, and values.

Objects and Views are recognised by `to_dict()`, without importing the data layer. A result is the placeholder
`{"object_type": "task", "task_id": "…"}`, which the worker replaces by the result of that task.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.failure_argument import TaskFailure
from aaiclick.orchestration.graph import Job, Node, Task
from aaiclick.store.engine.leases_and_outcomes import WAIT_ARGUMENT
from aaiclick.store.engine.result_placeholders import TASK_RESULT

T = TypeVar("T")
REFERENCES = ("object", "view")
MAX_BYTES = 64 << 20

FAILURE = "failure"
WAIT_FOR_JOB = "aaiclick.orchestration.waits.run_wait_for_job"


class FailureArgument:
    """Stands for the failure that a handler runs after; the engine replaces it when the handler starts."""


FAILURE_ARGUMENT = FailureArgument()


def serialise_arguments(kwargs: Mapping[str, object], where: str) -> tuple[str, list[Task]]:
    """JSON text of `kwargs`, and the tasks that provide results for it; raises SubmitError with the key."""
    if not kwargs:
        return "{}", []
    if WAIT_ARGUMENT in kwargs:
        raise SubmitError(f"{where} has an argument {WAIT_ARGUMENT!r}.", remedy="Rename it: waits use this name.")
    required_tasks: list[Task] = []
    try:
        fields = {
            _check_text(key, where): _encode_value(argument, f"{where}: argument {key!r}", required_tasks)
            for key, argument in kwargs.items()
        }
        return _check_size(json.dumps(fields), where), required_tasks
    except RecursionError:
        raise _argument_error(where, "is nested too deeply, or contains itself") from None


def serialise_value(value: object, where: str) -> tuple[str, list[Task]]:
    """JSON text of one value, and the tasks that provide results for it."""
    required_tasks: list[Task] = []
    try:
        return _check_size(json.dumps(_encode_value(value, where, required_tasks)), where), required_tasks
    except RecursionError:
        raise _argument_error(where, "is nested too deeply, or contains itself") from None


def check_argument(value: object, where: str) -> None:
    """Raise SubmitError if a value, or one inside of it, cannot be an argument."""
    try:
        _encode_value(value, where, [])
    except RecursionError:
        raise _argument_error(where, "is nested too deeply, or contains itself") from None


def _check_size(text: str, where: str) -> str:
    if len(text) > MAX_BYTES:
        raise SubmitError(
            f"{where} has {len(text) >> 20} MB of plain values; the most is {MAX_BYTES >> 20} MB.",
            remedy="Store them as an Object (create_object_from_value) and pass that.",
        )
    return text


def iter_instances(value: object, value_type: type[T]) -> Iterator[T]:
    """Instances of a type in nested lists and dicts."""
    if isinstance(value, value_type):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[object, object]", value).values():
            yield from iter_instances(item, value_type)
    elif isinstance(value, list | tuple) and not is_plain(items := cast("list[object]", value)):
        for item in items:
            yield from iter_instances(item, value_type)


def await_jobs(value: Any) -> Any:
    """The value with a task that waits for the result in place of each job, in nested lists and dicts."""
    if next(iter_instances(value, Job), None) is None:
        return value
    if isinstance(value, Job):
        return Task(WAIT_FOR_JOB, {"job_id": str(value.id)}, name=value.name)
    if isinstance(value, dict):
        return {key: await_jobs(item) for key, item in cast("dict[Any, Any]", value).items()}
    return [await_jobs(item) for item in cast("list[Any]", value)]


def is_plain(items: Sequence[object]) -> bool:
    """Whether all items are scalars; a check of types is fast for lists of a million."""
    return set(map(type, items)) <= _SCALARS


_SCALARS = frozenset({type(None), bool, int, float, str})


def _encode_value(value: object, where: str, required_tasks: list[Task]) -> object:
    match value:
        case str():
            return _check_text(value, where)
        case None | bool() | int():
            return value
        case float():
            if not math.isfinite(value):
                raise _argument_error(where, f"is {value}, which JSON does not have")
            return value
        case Task():
            required_tasks.append(value)
            return {"object_type": TASK_RESULT, "task_id": str(value.id)}
        case FailureArgument():
            return {"object_type": FAILURE}
        case TaskFailure():
            return {"object_type": FAILURE} | value.to_json()
        case Node():
            raise _argument_error(where, f"is {value!r}: a group has no result")
        case list() | tuple():
            items = cast("list[object]", value)
            if set(map(type, items)) <= _INTEGERS or (is_plain(items) and all(map(_is_storable, items))):
                return list(items)
            return [_encode_value(item, f"{where}[{index}]", required_tasks) for index, item in enumerate(items)]
        case dict():
            fields = cast("dict[object, object]", value)
            for key in fields:
                if not isinstance(key, str):
                    raise _argument_error(where, f"has the key {key!r}, which is not a string")
                _check_text(key, where)
            if fields.keys() == {"object_type", "task_id"} and fields["object_type"] == TASK_RESULT:
                raise SubmitError(f"{where} has the format of a task's result.", remedy="Pass the task itself.")
            return {key: _encode_value(item, f"{where}[{key!r}]", required_tasks) for key, item in fields.items()}
        case _:
            return _encode_reference(value, where)


_INTEGERS = frozenset({type(None), bool, int})


def _is_storable(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or (value.isascii() and "\0" not in value)


def _check_text(value: str, where: str) -> str:
    """Raise SubmitError for text that PostgreSQL cannot store: NUL characters and lone surrogates."""
    if "\0" in value:
        raise _argument_error(where, "contains a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _argument_error(where, "contains a lone surrogate, which is not valid Unicode") from None
    return value


def _encode_reference(value: object, where: str) -> object:
    reference = cast("Any", value).to_dict() if is_reference_value(value) else None
    if isinstance(reference, dict) and cast("dict[str, object]", reference).get("object_type") in REFERENCES:
        return cast("dict[str, object]", reference)
    raise _argument_error(where, f"is of type {type(value).__name__}")


def is_reference_value(value: object) -> bool:
    """Whether a value is an Object or a View."""
    return hasattr(value, "table_id") and callable(getattr(value, "to_dict", None))


def _argument_error(where: str, what: str) -> SubmitError:
    return SubmitError(
        f"{where} {what}.",
        remedy="Arguments are Objects, Views, other tasks (their results), plain JSON values, and values of other "
        "types if the parameter is annotated with them (dict[str, date]).",
    )
