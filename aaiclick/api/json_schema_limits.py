"""Limits of the JSON Schemas of parameters, which workers register and servers validate arguments by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, cast

from pydantic import AfterValidator

MAX_CHARACTERS = 50_000
MAX_VALUES = 5_000
MAX_DEPTH = 40
MAX_PARAMETERS = 200

_NAMED = ("properties", "$defs")
_LISTED = ("anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")
_KEYWORD_TYPES: dict[str, type | tuple[type, ...]] = {
    "$ref": str, "type": (str, list), "enum": list, "required": list, "format": str, "title": str, "description": str,
    **dict.fromkeys(_NAMED, dict), **dict.fromkeys(_LISTED, list), **dict.fromkeys(_SINGLE, (dict, bool)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (int, float)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), int),
}  # fmt: skip


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Refuse a schema that is larger than those of annotations, or malformed; raises ValueError."""
    for count, depth in count_values(schema):
        if count > MAX_VALUES or depth > MAX_DEPTH:
            raise ValueError(f"the schema has more than {MAX_VALUES:,} values, or more than {MAX_DEPTH} levels")
    if len(json.dumps(schema)) > MAX_CHARACTERS or len(schema.get("properties", ())) > MAX_PARAMETERS:
        raise ValueError(
            f"the schema has more than {MAX_CHARACTERS:,} characters, or more than {MAX_PARAMETERS} parameters"
        )
    _check_keywords(schema)
    return schema


def count_values(value: object) -> Iterator[tuple[int, int]]:
    """The number of values so far and the depth of each value, without recursion."""
    stack: list[tuple[object, int]] = [(value, 1)]
    count = 0
    while stack:
        item, depth = stack.pop()
        count += 1
        yield count + len(stack), depth
        if isinstance(item, dict):
            stack += ((member, depth + 1) for member in cast("dict[str, object]", item).values())
        elif isinstance(item, list):
            stack += ((member, depth + 1) for member in cast("list[object]", item))


def _check_keywords(schema: object) -> None:
    if not isinstance(schema, dict):
        raise ValueError("a member of the schema is no JSON object")
    fields = cast("Mapping[str, Any]", schema)
    for name, allowed in _KEYWORD_TYPES.items():
        if name in fields and not isinstance(fields[name], allowed):
            raise ValueError(f"the schema has a malformed keyword {name!r}")
    for name in ("type", "required"):
        if not all(isinstance(member, str) for member in fields.get(name, ())):
            raise ValueError(f"the schema has a malformed keyword {name!r}")
    members = [member for name in _NAMED for member in fields.get(name, {}).values()]
    members += [member for name in _LISTED for member in fields.get(name, [])]
    members += [fields[name] for name in _SINGLE if isinstance(fields.get(name), dict)]
    for member in members:
        _check_keywords(member)


ParameterSchema = Annotated[dict[str, Any], AfterValidator(check_schema)]
"""The JSON Schema of the parameters of a function."""
