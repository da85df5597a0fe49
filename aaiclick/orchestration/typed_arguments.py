"""Arguments of types that JSON does not have: plain at submission, restored by the annotations of the function.

Values are checked when the task is created, so that errors name the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from aaiclick.data.errors import ConversionError
from aaiclick.data.io.typed_values import (
    describe_annotation,
    is_value_class,
    restore_value,
    to_plain,
    typed_parameters,
)
from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_serialisation import check_argument, is_reference_value
from aaiclick.orchestration.graph import Node

CONTAINERS = frozenset({list, tuple, dict})
JSON_TYPES = frozenset({type(None), bool, int, float, str}) | CONTAINERS


def to_plain_arguments(function: Callable[..., object], arguments: Mapping[str, object]) -> dict[str, object]:
    """Convert arguments of typed parameters to JSON types; tasks and Objects in them stay."""
    typed = typed_parameters(function)
    plain = dict(arguments)
    name = getattr(function, "__name__", "")
    for parameter, value in arguments.items():
        if parameter in typed:
            plain[parameter] = _to_plain_argument(value, typed[parameter], f"{name}(): argument {parameter!r}")
        elif type(value) in CONTAINERS:
            check_argument(value, f"{name}(): argument {parameter!r}")
        elif type(value) not in JSON_TYPES and not _is_leaf(value):
            _check_type(value, f"{name}(): argument {parameter!r}", parameter)
    return plain


def restore_arguments(function: Callable[..., object], arguments: dict[str, Any]) -> dict[str, Any]:
    """Convert plain arguments to the annotated types of a function; raises ConversionError."""
    typed = typed_parameters(function)
    if not typed:
        return arguments
    return {
        name: restore_value(value, typed[name], f"The argument {name!r}") if name in typed else value
        for name, value in arguments.items()
    }


def _to_plain_argument(value: object, annotation: object, where: str) -> object:
    leaves: list[object] = []

    def is_leaf(item: object) -> bool:
        if _is_leaf(item):
            leaves.append(item)
            return True
        return False

    try:
        plain = to_plain(value, is_leaf)
        restored = value if leaves else restore_value(plain, annotation, where)
    except ConversionError as error:
        what = error.what if error.what.startswith(where) else f"{where}: {error.what}"
        raise SubmitError(what, remedy=error.remedy) from None
    if type(value) not in JSON_TYPES and type(restored) is not type(value):
        raise SubmitError(
            f"{where} is of type {type(value).__name__}, but is annotated as {describe_annotation(annotation)}.",
            remedy="Pass a value of the annotated type.",
        )
    return plain


def _is_leaf(value: object) -> bool:
    return isinstance(value, Node) or is_reference_value(value)


def _check_type(value: object, where: str, parameter: str) -> None:
    """Raise SubmitError for a value that needs an annotation, or that cannot be passed at all."""
    if isinstance(value, tuple(JSON_TYPES)):
        return
    if hasattr(value, "function") and hasattr(value, "task"):
        name = cast("Any", value).function.__name__
        raise SubmitError(f"{where} is the function {name} itself.", remedy=f"Call it to pass its result: {name}(…)")
    type_name = type(value).__name__
    if is_value_class(type(value)) or isinstance(value, set | frozenset):
        raise SubmitError(
            f"{where} is of type {type_name}, and the parameter is not annotated with that type.",
            remedy=f"Annotate it ({parameter}: {type_name}), so that workers restore the value.",
        )
    raise SubmitError(
        f"{where} is of type {type_name}.",
        remedy="Arguments are plain values, dates, Decimals, UUIDs, paths, enums, dataclasses, pydantic models, "
        "Objects, Views and other tasks (their results).",
    )
