"""Field types of values that are JSON outside of a process: requests of workers, events of functions, pipes.

Pydantic reads and writes dataclasses with these types, without codecs.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, TypeAdapter, WithJsonSchema

_DIGITS = r"^(0|[1-9][0-9]{0,18})$"
_digits: TypeAdapter[str] = TypeAdapter(Annotated[str, StringConstraints(pattern=_DIGITS)])


def _parse_integer(value: object) -> int:
    return value if type(value) is int else int(_digits.validate_python(value))


BigInt = Annotated[
    int,
    BeforeValidator(_parse_integer),
    Field(ge=0, le=2**63 - 1),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _DIGITS}),
]
"""A string in JSON, since JavaScript loses the last digits of large numbers."""

SnowflakeId = Annotated[
    BigInt,
    Field(ge=1),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "examples": ["7265312768204800"]}),
]

JsonText = Annotated[
    str, BeforeValidator(json.dumps), PlainSerializer(json.loads, when_used="json"), WithJsonSchema({})
]
"""JSON text in the store; nested JSON, not a string, in JSON."""
