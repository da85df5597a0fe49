"""Values of Python types that JSON and tables do not have, restored by annotation.

Dates, timedeltas, Decimals, UUIDs, paths, enums, dataclasses, pydantic models, tuples, sets and dicts with other keys
than text are stored as plain values, without pickle. The annotation of the parameter that receives the value restores
its type, so a value from JSON (`"2026-11-18"` for a `date`) is accepted as well.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from aaiclick.data.errors import ConversionError

SCALARS = (date, datetime, time, timedelta, Decimal, UUID, PurePath, Enum)
COLUMN_SCALARS = (date, datetime, Decimal, UUID)
"""Scalars that a column of a table stores with their type."""

COLLECTIONS: tuple[object, ...] = (tuple, set, frozenset)
MAPPINGS: tuple[object, ...] = (dict, collections.abc.Mapping)
JSON_KEYS = (str, Any, object)
NO_VALUES: tuple[object, ...] = (typing.Literal, type)


def is_value_class(annotation: object) -> bool:
    """Whether a type is restored from plain values: a scalar, a dataclass or a pydantic model."""
    return (isinstance(annotation, type) and issubclass(cast("type[object]", annotation), SCALARS)) or is_record_class(
        annotation
    )


def is_record_class(annotation: object) -> bool:
    """Whether instances of a type have the structure of a row: a dataclass or a pydantic model."""
    return isinstance(annotation, type) and (
        issubclass(cast("type[object]", annotation), BaseModel) or dataclasses.is_dataclass(cast("Any", annotation))
    )


@lru_cache(maxsize=4096)
def find_adapter(annotation: object) -> TypeAdapter[Any] | None:
    """Adapter that restores values of an annotation; None if JSON keeps them, or if it is not a type of values."""
    if isinstance(annotation, str) or not _needs_restoring(annotation):
        return None
    try:
        return TypeAdapter(cast("Any", annotation))
    except Exception:  # noqa: BLE001  (an annotation may contain classes that pydantic does not know)
        return None


def _needs_restoring(annotation: object) -> bool:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return annotation in COLLECTIONS or is_value_class(annotation)
    if origin in COLLECTIONS:
        return True
    if origin in MAPPINGS and arguments and arguments[0] not in JSON_KEYS:
        return True
    if origin in NO_VALUES:
        return False
    return any(_needs_restoring(argument) for argument in arguments if not isinstance(argument, types.EllipsisType))


def restore_value(value: object, annotation: object, where: str) -> Any:
    """Convert a plain value to the type of an annotation; values of that type are returned as they are."""
    adapter = find_adapter(annotation)
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        details = "; ".join(_describe_problem(problem) for problem in error.errors()[:3])
        raise ConversionError(
            f"{where} is not {describe_annotation(annotation)}: {details}.",
            remedy="Correct the value or the annotation.",
        ) from None


def _describe_problem(problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    message = str(problem["msg"])
    return f"{path}: {message}" if path else message[:1].lower() + message[1:]


def describe_annotation(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def to_plain(value: object, is_leaf: Callable[[object], bool] | None = None) -> Any:
    """Convert a value to JSON types; values that match `is_leaf` stay. Raises ConversionError for other types."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if is_leaf is not None and is_leaf(value):
        return value
    if isinstance(value, float):
        return _check_finite(value)
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return {_to_key(key): to_plain(item, is_leaf) for key, item in fields.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, is_leaf) for item in cast("Iterable[object]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(item, is_leaf) for name, item in _iter_fields(value)}
    if isinstance(value, (*SCALARS, BaseModel)):
        try:
            return to_jsonable_python(value)
        except PydanticSerializationError as error:
            raise ConversionError(f"A {type(value).__name__} cannot be stored: {error}.") from None
    raise ConversionError(
        f"A value of type {type(value).__name__} cannot be stored.",
        remedy="Use plain values, dates, Decimals, UUIDs, paths, enums, dataclasses, pydantic models, or Objects.",
    )


def to_columns(value: object) -> Any:
    """Convert dataclasses, models, enums, paths, timedeltas and keys in a value; what a table can store stays."""
    if isinstance(value, Enum):
        return to_columns(value.value)
    if value is None or isinstance(value, (str, int, float, *COLUMN_SCALARS)):
        return value
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return {_to_key(key): to_columns(item) for key, item in fields.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = cast("Iterable[object]", value)
        return [to_columns(item) for item in items]
    if isinstance(value, BaseModel):
        return to_columns(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_columns(item) for name, item in _iter_fields(value)}
    return to_plain(value) if isinstance(value, PurePath | timedelta | time) else value


def contains_typed_value(value: object) -> bool:
    """Whether a value contains instances that neither JSON nor tables have."""
    if isinstance(value, (Enum, PurePath, timedelta, time, BaseModel)):
        return True
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return any(not isinstance(key, str) or contains_typed_value(item) for key, item in fields.items())
    if isinstance(value, list | tuple | set | frozenset):
        items = cast("Iterable[object]", value)
        return any(contains_typed_value(item) for item in _iter_unlike(items))
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def iter_other_keys(value: object) -> Iterator[object]:
    """Keys of the dicts in a value that are not text."""
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        yield from (key for key in fields if not isinstance(key, str))
        for item in fields.values():
            yield from iter_other_keys(item)
    elif isinstance(value, list | tuple):
        for item in _iter_unlike(cast("Iterable[object]", value)):
            yield from iter_other_keys(item)


def return_annotation_of(function: Callable[..., object]) -> Any:
    """Annotation of the returned value, as a type where it can be resolved; None where there is none."""
    try:
        return typing.get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001  (an annotation may be any code)
        return None


def _iter_unlike(items: Iterable[object]) -> Iterator[object]:
    """Yield the items that are not scalars of JSON: lists of a million numbers are skipped by their types."""
    return iter(()) if set(map(type, items)) <= _JSON_SCALARS else iter(items)


_JSON_SCALARS = frozenset({type(None), bool, int, float, str})


def _iter_fields(value: Any) -> Iterator[tuple[str, object]]:
    return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _to_key(key: object) -> str:
    if isinstance(key, str) and not isinstance(key, Enum):
        return key
    if isinstance(key, (bool, int, *SCALARS)):
        return str(to_jsonable_python(key)) if not isinstance(key, bool) else str(key).lower()
    raise ConversionError(
        f"A dict has the key {key!r:.60} of type {type(key).__name__}.",
        remedy="Keys are text, numbers, dates, UUIDs or enums.",
    )


def _check_finite(value: float) -> float:
    if not math.isfinite(value):
        raise ConversionError(f"{value} cannot be stored as JSON.", remedy="Use None, or an Object with the value.")
    return value


@lru_cache(maxsize=4096)
def annotations_of(function: Callable[..., object]) -> Mapping[str, Any]:
    """Return the annotation of each parameter, as a type where it can be resolved; Any where there is none."""
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001  (an annotation may be any code, or name what only type checkers import)
        hints = {}
    types_by_name: dict[str, object] = {}
    for name, parameter in signature.parameters.items():
        annotation = hints.get(name, parameter.annotation)
        types_by_name[name] = Any if annotation is parameter.empty else annotation
    return types_by_name


@lru_cache(maxsize=4096)
def typed_parameters(function: Callable[..., object]) -> Mapping[str, object]:
    """Annotations of the parameters that receive restored values."""
    annotations = annotations_of(function)
    return {name: annotation for name, annotation in annotations.items() if find_adapter(annotation) is not None}
