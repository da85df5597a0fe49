"""JSON Schemas of parameters as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_CHOICES = 12
_LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def describe_type(schema: Mapping[str, Any]) -> str:
    """The type of a parameter in a few words, such as "integer >= 1", "a | b" or "date"."""
    if "enum" in schema:
        choices = [choice if isinstance(choice, str) else json.dumps(choice) for choice in schema["enum"]]
        return " | ".join([*choices[:MAX_CHOICES], *(["…"] if len(choices) > MAX_CHOICES else [])])
    if "const" in schema:
        return str(schema["const"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for members in ("anyOf", "oneOf"):
        if members in schema:
            return " | ".join(describe_type(member) for member in schema[members])
    if schema.get("type") == "array":
        return f"list of {describe_type(schema.get('items') or {})}"
    name = str(schema.get("format") or schema.get("type") or "any value")
    limits = [f"{sign} {schema[limit]}" for limit, sign in _LIMITS.items() if limit in schema]
    return " ".join([name, *limits])


def describe_parameters(schema: Mapping[str, Any]) -> str:
    """All parameters with types and defaults, such as "day: date, rows: integer = 5"; "none" without parameters."""
    texts: list[str] = []
    for name, field in schema.get("properties", {}).items():
        default = f" = {json.dumps(field['default'])}" if "default" in field else ""
        texts.append(f"{name}: {describe_type(field)}{default}")
    return ", ".join(texts) or "none"
