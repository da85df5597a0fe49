"""Parameters of a `@job`: their JSON Schema, and the validation of arguments.

Arguments are Python values, or JSON values from a request, a command or a schedule; both are validated strictly: "5" is
no int, but "2026-11-18" is a date. A parameter without annotation, or with one that has no JSON Schema (an Object),
accepts any value.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from pydantic import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic import ValidationError as PydanticValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from aaiclick.errors import ScheduleError, SubmitError
from aaiclick.orchestration.decorator_checks import describe_call_error
from aaiclick.orchestration.graph import Node
from aaiclick.orchestration.parameter_schema_text import describe_parameters
from aaiclick.orchestration.schedule_spec import NominalMarker, NominalType

REF_TEMPLATE = "#/$defs/{model}"
MAX_MISTAKES = 10
_JSON_TYPES = (str, int, float, bool, list, dict, type(None))


@dataclass(frozen=True)
class Parameter:
    """A parameter with its validator; None: any value."""

    name: str
    default: object
    adapter: TypeAdapter[Any] | None
    schema: dict[str, Any]
    nominal_type: NominalType | None = None

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def validate(self, value: object) -> object:
        """The value, converted to the annotated type; raises pydantic's ValidationError."""
        if self.adapter is None or isinstance(value, Node) or hasattr(value, "table_id"):
            return value
        try:
            return self.adapter.validate_python(value, strict=True)
        except PydanticValidationError:
            if not isinstance(value, _JSON_TYPES):
                raise
        return self.adapter.validate_json(json.dumps(value), strict=True)


class JobParameters:
    """The parameters of a function."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._name = getattr(function, "__qualname__", repr(function))
        self.signature = inspect.signature(function)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        try:
            hints = typing.get_type_hints(self._function, include_extras=True)
        except Exception:  # noqa: BLE001  (an annotation may be any code, or name what only type checkers import)
            hints = {}
        return {
            name: _make_parameter(name, parameter.default, hints.get(name, Any))
            for name, parameter in self.signature.parameters.items()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments as one object."""
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            properties[name] = fields = dict(parameter.schema)
            definitions |= fields.pop("$defs", {})
        variadic = any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.signature.parameters.values())
        required = [name for name, parameter in self.parameters.items() if parameter.is_required]
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": variadic}
        return schema | ({"required": required} if required else {}) | ({"$defs": definitions} if definitions else {})

    @property
    def nominal(self) -> Parameter | None:
        """The parameter that receives the nominal time; raises ScheduleError if there are several."""
        nominal = [parameter for parameter in self.parameters.values() if parameter.nominal_type is not None]
        if len(nominal) > 1:
            names = " and ".join(repr(parameter.name) for parameter in nominal)
            raise ScheduleError(f"{self._name}() has two nominal times: {names}.", remedy="Keep one of them.")
        return nominal[0] if nominal else None

    def bind(self, *args: object, **kwargs: object) -> inspect.BoundArguments:
        """Bind and validate arguments; raises SubmitError with a sentence per mistake."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise describe_call_error(self._function, error) from None
        mistakes: list[str] = []
        for name, value in bound.arguments.items():
            if name in self.parameters:
                try:
                    bound.arguments[name] = self.parameters[name].validate(value)
                except PydanticValidationError as error:
                    mistakes += _describe_mistakes(name, error)
                except (RecursionError, ValueError, TypeError) as error:  # no JSON value: it contains itself
                    mistakes.append(f"{name}: {error}.")
        if mistakes:
            more = [f"… and {len(mistakes) - MAX_MISTAKES} more."] if len(mistakes) > MAX_MISTAKES else []
            raise SubmitError(
                f"{self._name}() has wrong arguments: {' '.join([*mistakes[:MAX_MISTAKES], *more])}",
                remedy=f"Its parameters: {describe_parameters(self.schema)}.",
            )
        return bound


def _make_parameter(name: str, default: object, annotation: Any) -> Parameter:
    marker = next((item for item in _iter_metadata(annotation) if isinstance(item, NominalMarker)), None)
    nominal_type = None if marker is None else marker.nominal_type
    adapter: TypeAdapter[Any] | None = None
    schema: dict[str, Any] = {}
    if annotation is not Any:
        try:
            adapter = TypeAdapter(annotation)
            schema = adapter.json_schema(ref_template=REF_TEMPLATE)
        except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError, TypeError):
            adapter = None
    if default is not inspect.Parameter.empty:
        # a default that JSON does not have is not shown
        with suppress(PydanticSerializationError, ValueError, TypeError, RecursionError):
            schema = {**schema, "default": json.loads(json.dumps(to_jsonable_python(default), allow_nan=False))}
    return Parameter(name, default, adapter, schema, nominal_type)


def _iter_metadata(annotation: object) -> Iterator[object]:
    """Metadata of an annotation, and of the members of a union such as `NominalDate | None`."""
    yield from cast("tuple[object, ...]", getattr(annotation, "__metadata__", ()))
    for member in typing.get_args(annotation):
        yield from cast("tuple[object, ...]", getattr(member, "__metadata__", ()))


def _describe_mistakes(name: str, error: PydanticValidationError) -> list[str]:
    mistakes: list[str] = []
    for detail in error.errors(include_url=False):
        path = "".join(f"[{part!r}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
        mistakes.append(f"{name}{path}: {detail['msg']}, not {detail['input']!r:.60}.")
    return mistakes
