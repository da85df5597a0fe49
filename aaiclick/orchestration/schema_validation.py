"""Validate JSON values against a JSON Schema, for processes that cannot import the code of a job.

Supports what annotations become; `pattern` is left to the worker, since an expression of a tenant could take forever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from typing import Any, cast
from uuid import UUID

from aaiclick.errors import SubmitError
from aaiclick.orchestration.parameter_schema import describe_parameters, describe_type

MAX_MISTAKES = 10
MAX_DEPTH = 40
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_FORMATS: dict[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
}
_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "minLength": lambda value, bound: len(value) >= bound,
    "maxLength": lambda value, bound: len(value) <= bound,
    "minItems": lambda value, bound: len(value) >= bound,
    "maxItems": lambda value, bound: len(value) <= bound,
}


def check_arguments(entrypoint: str, schema: Mapping[str, Any], arguments: Mapping[str, object]) -> None:
    """Raise SubmitError with a sentence per mistake if a job's arguments do not match its schema."""
    mistakes: list[str] = []
    _check_object("", dict(arguments), schema, schema, mistakes, 0)
    if mistakes:
        more = [f"… and {len(mistakes) - MAX_MISTAKES} more."] if len(mistakes) > MAX_MISTAKES else []
        raise SubmitError(
            f"{entrypoint} has wrong arguments: {' '.join([*mistakes[:MAX_MISTAKES], *more])}",
            remedy=f"Its parameters: {describe_parameters(schema)}.",
        )


def _check(path: str, value: object, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[str]:
    """Mistakes of a value."""
    if depth > MAX_DEPTH:
        return [f"{path}: it is nested too deeply."]
    if _is_reference(value):
        return []
    if "$ref" in schema:
        schema = root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
    for members in ("anyOf", "oneOf"):
        if members in schema:
            results = [_check(path, value, member, root, depth + 1) for member in schema[members]]
            return [] if any(not result for result in results) else [_expected(path, schema, value)]
    expected: str | Sequence[str] | None = schema.get("type")
    if expected is not None and not _has_type(value, expected):
        return [_expected(path, schema, value)]
    if ("enum" in schema and not _is_one_of(value, schema["enum"])) or (
        "const" in schema and not _is_one_of(value, [schema["const"]])
    ):
        return [_expected(path, schema, value)]
    mistakes = [] if _fits(value, schema) else [_expected(path, schema, value)]
    if isinstance(value, dict):
        _check_object(path, cast("dict[str, object]", value), schema, root, mistakes, depth)
    elif isinstance(value, list):
        _check_items(path, cast("list[object]", value), schema, root, mistakes, depth)
    return mistakes


def _is_reference(value: object) -> bool:
    """Whether a value stands for the result of a task or a table, which only a worker can read."""
    return isinstance(value, dict) and "object_type" in value


def _has_type(value: object, expected: str | Sequence[str]) -> bool:
    names = [expected] if isinstance(expected, str) else expected
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES.get(name, (object,))) for name in names)


def _is_one_of(value: object, choices: Sequence[object]) -> bool:
    """Whether a value is among choices; True is not 1."""
    return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in choices)


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value is within the limits and has the format of a schema."""
    if isinstance(value, str) and schema.get("format") in _FORMATS:
        try:
            _FORMATS[schema["format"]](value)
        except ValueError:
            return False
    for name, is_within in _BOUNDS.items():
        if name in schema:
            with suppress(TypeError):  # a limit of another type
                if not is_within(value, schema[name]):
                    return False
    return True


def _check_object(
    path: str,
    value: dict[str, object],
    schema: Mapping[str, Any],
    root: Mapping[str, Any],
    mistakes: list[str],
    depth: int,
) -> None:
    properties: Mapping[str, Any] = schema.get("properties", {})
    other_schema = schema.get("additionalProperties", True)
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if name in properties:
            mistakes += _check(where, item, properties[name], root, depth + 1)
        elif other_schema is False:
            mistakes.append(f"{where}: there is no such parameter." if not path else f"{where}: unexpected field.")
        elif isinstance(other_schema, dict):
            mistakes += _check(where, item, cast("dict[str, Any]", other_schema), root, depth + 1)
    for name in schema.get("required", []):
        if name not in value:
            mistakes.append(f"{path}.{name}: it is missing." if path else f"{name}: it is missing.")


def _check_items(
    path: str,
    value: list[object],
    schema: Mapping[str, Any],
    root: Mapping[str, Any],
    mistakes: list[str],
    depth: int,
) -> None:
    first: Sequence[Any] = schema.get("prefixItems", [])
    other_schema = schema.get("items", {})
    for index, item in enumerate(value):
        item_schema = first[index] if index < len(first) else other_schema
        if isinstance(item_schema, dict):
            mistakes += _check(f"{path}[{index}]", item, cast("dict[str, Any]", item_schema), root, depth + 1)
        if len(mistakes) > MAX_MISTAKES:
            return


def _describe_value(value: object) -> str:
    try:
        return json.dumps(value, default=str)[:60]
    except RecursionError:
        return "a deeply nested value"


def _expected(path: str, schema: Mapping[str, Any], value: object) -> str:
    return f"{path}: Input should be {describe_type(schema)}, not {_describe_value(value)}."
