"""Validate JSON values against a JSON Schema, for processes that cannot import the code of a job.

Supports what annotations become; `pattern` is left to the worker, since an expression of a tenant could take forever.
Schemas come from workers and values from requests: the number of steps is limited, and a step takes constant time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from functools import partial
from itertools import islice
from typing import Any, cast
from uuid import UUID

from aaiclick.errors import SubmitError
from aaiclick.orchestration.parameter_schema_text import describe_parameters, describe_type

MAX_MISTAKES = 10
MAX_DEPTH = 40
MAX_STEPS = 500_000
"""Maximum number of comparisons of a value with a schema, and of items, choices and required names."""

MAX_FORMATTED = 100
"""Maximum length of a date, time or UUID."""

SHOWN_CHARACTERS = 60
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

Path = tuple[Any, str | int] | None
"""The path of the parent, and a name or index."""

Mistake = Callable[[], str]
"""Describes a mistake; members of a union make many that are not shown."""


class TooManyStepsError(SubmitError):
    """Arguments that take too many steps to validate."""


def check_arguments(
    entrypoint: str, schema: Mapping[str, Any], arguments: Mapping[str, object], *, max_steps: int = MAX_STEPS
) -> None:
    """Raise SubmitError with a sentence per mistake if a job's arguments do not match its schema."""
    validation = _Validation(entrypoint, schema, max_steps)
    mistakes = [describe() for describe in islice(validation.find_mistakes(arguments), MAX_MISTAKES + 1)]
    if mistakes:
        more = ["… and more."] if len(mistakes) > MAX_MISTAKES else []
        raise SubmitError(
            f"{entrypoint} has wrong arguments: {' '.join([*mistakes[:MAX_MISTAKES], *more])}",
            remedy=f"Its parameters: {describe_parameters(schema)}.",
        )


class _Validation:
    """Validation of the arguments of one job. Mistakes are generated, so that the first ones cost no more."""

    def __init__(self, entrypoint: str, root: Mapping[str, Any], max_steps: int) -> None:
        self._entrypoint = entrypoint
        self._root = root
        self._max_steps = max_steps
        self._steps = 0
        self._choices: dict[int, Collection[object]] = {}
        """Frozen choices by the id of their list, which the schema keeps alive."""

    def find_mistakes(self, arguments: Mapping[str, object]) -> Iterator[Mistake]:
        return self._check_object(None, arguments, self._root, 0)

    def _charge(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > self._max_steps:
            raise TooManyStepsError(
                f"The arguments of {self._entrypoint} take more than {self._max_steps:,} steps to validate.",
                remedy="Pass fewer values, or simplify the annotations of its parameters.",
            )

    def _check(self, path: Path, value: object, schema: Mapping[str, Any], depth: int) -> Iterator[Mistake]:
        """Mistakes of a value."""
        self._charge()
        if depth > MAX_DEPTH:
            yield partial(_describe, path, "it is nested too deeply.")
            return
        if _is_reference(value):
            return
        if "$ref" in schema:
            schema = self._root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
        for members in ("anyOf", "oneOf"):
            if members in schema:
                checks = (self._check(path, value, member, depth + 1) for member in schema[members])
                if not any(next(mistakes, None) is None for mistakes in checks):
                    yield partial(_expected, path, schema, value)
                return
        if not (self._has_type(value, schema.get("type")) and self._is_chosen(value, schema)):
            yield partial(_expected, path, schema, value)
            return
        if not _fits(value, schema):
            yield partial(_expected, path, schema, value)
        if isinstance(value, dict):
            yield from self._check_object(path, cast("dict[str, object]", value), schema, depth)
        elif isinstance(value, list):
            yield from self._check_items(path, cast("list[object]", value), schema, depth)

    def _has_type(self, value: object, expected: str | Sequence[str] | None) -> bool:
        if expected is None:
            return True
        names = [expected] if isinstance(expected, str) else expected
        self._charge(len(names) - 1)
        if isinstance(value, bool):
            return "boolean" in names
        return any(isinstance(value, _TYPES.get(name, (object,))) for name in names)

    def _is_chosen(self, value: object, schema: Mapping[str, Any]) -> bool:
        """Whether a value is among the choices of a schema."""
        return ("enum" not in schema or self._is_one_of(value, schema["enum"])) and (
            "const" not in schema or self._freeze(value) == self._freeze(schema["const"])
        )

    def _is_one_of(self, value: object, choices: Sequence[object]) -> bool:
        if id(choices) not in self._choices:
            self._choices[id(choices)] = frozenset(self._freeze(choice) for choice in choices)
        return self._freeze(value) in self._choices[id(choices)]

    def _freeze(self, value: object) -> object:
        """A hashable value that is equal to those of equal JSON; True is not 1."""
        self._charge()
        if isinstance(value, bool):
            return bool, value
        if isinstance(value, list):
            return tuple(self._freeze(item) for item in cast("list[object]", value))
        if isinstance(value, dict):
            return frozenset((name, self._freeze(item)) for name, item in cast("dict[str, object]", value).items())
        return value

    def _check_object(
        self, path: Path, value: Mapping[str, object], schema: Mapping[str, Any], depth: int
    ) -> Iterator[Mistake]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        other_schema = schema.get("additionalProperties", True)
        required: Sequence[str] = schema.get("required", [])
        self._charge(len(value) + len(required))
        for name, item in value.items():
            if name in properties:
                yield from self._check((path, name), item, properties[name], depth + 1)
            elif other_schema is False:
                text = "there is no such parameter." if path is None else "unexpected field."
                yield partial(_describe, (path, name), text)
            elif isinstance(other_schema, dict):
                yield from self._check((path, name), item, cast("dict[str, Any]", other_schema), depth + 1)
        for name in required:
            if name not in value:
                yield partial(_describe, (path, name), "it is missing.")

    def _check_items(self, path: Path, value: list[object], schema: Mapping[str, Any], depth: int) -> Iterator[Mistake]:
        first: Sequence[Any] = schema.get("prefixItems", [])
        other_schema = schema.get("items", {})
        if not first and not other_schema:
            return
        self._charge(len(value))
        for index, item in enumerate(value):
            item_schema = first[index] if index < len(first) else other_schema
            if isinstance(item_schema, dict):
                yield from self._check((path, index), item, cast("dict[str, Any]", item_schema), depth + 1)


def _is_reference(value: object) -> bool:
    """Whether a value stands for the result of a task or a table, which only a worker can read."""
    return isinstance(value, dict) and "object_type" in value


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value is within the limits and has the format of a schema."""
    if isinstance(value, str) and schema.get("format") in _FORMATS:
        try:
            if len(value) > MAX_FORMATTED:
                return False
            _FORMATS[schema["format"]](value)
        except ValueError:
            return False
    for name, is_within in _BOUNDS.items():
        if name in schema:
            with suppress(TypeError):  # a limit of another type
                if not is_within(value, schema[name]):
                    return False
    return True


def _format_path(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        text = f"{part:.{SHOWN_CHARACTERS}}" if isinstance(part, str) else f"[{part}]"
        parts.append(f".{text}" if isinstance(part, str) and path is not None else text)
    return "".join(reversed(parts))


def _describe_value(value: object) -> str:
    """The first characters of a value as JSON."""
    text = ""
    for part in json.JSONEncoder(default=str).iterencode(value):
        text += part[:SHOWN_CHARACTERS]
        if len(text) >= SHOWN_CHARACTERS:
            break
    return text[:SHOWN_CHARACTERS]


def _describe(path: Path, text: str) -> str:
    return f"{_format_path(path)}: {text}"


def _expected(path: Path, schema: Mapping[str, Any], value: object) -> str:
    return f"{_format_path(path)}: Input should be {describe_type(schema)}, not {_describe_value(value)}."
