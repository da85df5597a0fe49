"""In which form a function takes an Object, by its annotations: as it is, as a frame of some library, or as values."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, cast
from uuid import UUID

import pyarrow as pa

from aaiclick.data.object import Object

Form = Literal["object", "arrow", "batch", "pandas", "polars", "rows", "value", "unknown"]

_FRAMES: dict[tuple[str, str], Form] = {
    ("pyarrow", "Table"): "arrow",
    ("pyarrow", "RecordBatch"): "batch",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
}
_VALUES = (int, float, bool, str, bytes, date, datetime, Decimal, UUID, list, dict, tuple, set, frozenset)
_ABSTRACT = (
    collections.abc.Sequence,
    collections.abc.Mapping,
    collections.abc.Iterable,
    collections.abc.Collection,
)


@lru_cache(maxsize=4096)
def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotation of each parameter of a function, as types where they can be known; Any where there is none."""
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001  (an annotation may name what only a type checker imports, or be any code at all)
        hints = {}
    found: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        annotation = hints.get(name, parameter.annotation)
        found[name] = Any if annotation is parameter.empty else annotation
    return found


def forms_of(function: Callable[..., Any]) -> Mapping[str, Form]:
    """The form of each parameter of a function; what has no annotation takes an Object."""
    return {name: form_of(annotation) for name, annotation in annotations_of(function).items()}


def form_of(annotation: Any) -> Form:
    """The form that an annotation asks for; `unknown` if it says nothing of data."""
    if annotation is Any:
        return "object"
    if isinstance(annotation, str):
        return _FRAMES.get(_named(annotation), "object" if annotation in ("View", "Object") else "unknown")
    leaves = list(_leaves(annotation))
    if any(isinstance(leaf, type) and issubclass(leaf, Object) for leaf in leaves):
        return "object"
    for leaf in leaves:
        module = str(getattr(leaf, "__module__", "")).partition(".")[0]
        if found := _FRAMES.get((module, getattr(leaf, "__name__", ""))):
            return found
    for each in _members(annotation):
        if typing.get_origin(each) in (list, collections.abc.Sequence) and any(
            (typing.get_origin(inner) or inner) in (dict, collections.abc.Mapping) for inner in typing.get_args(each)
        ):
            return "rows"
    return "value" if any(leaf in _VALUES or leaf in _ABSTRACT for leaf in leaves) else "unknown"


def inside(annotation: Any) -> Any:
    """The annotation of what is in a list or dict of this annotation; of a bare one, of plain values."""
    for each in _members(annotation):
        origin, arguments = typing.get_origin(each), typing.get_args(each)
        if origin in (dict, collections.abc.Mapping) and len(arguments) == 2:
            return arguments[1]
        if origin is not None and arguments:
            return arguments[0]
    return annotation


def _members(annotation: Any) -> Sequence[Any]:
    """The alternatives of a union, or the annotation alone."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    return typing.get_args(annotation) if origin in (typing.Union, types.UnionType) else [annotation]


_MODULES = {"pa": "pyarrow", "pd": "pandas", "pl": "polars"}


def _named(annotation: str) -> tuple[str, str]:
    module, _, name = annotation.rpartition(".")
    return _MODULES.get(module, module).partition(".")[0], name


def _leaves(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of: `list[Object] | None` is list, Object and None."""
    origin = typing.get_origin(annotation)
    if origin is None:
        yield annotation
        return
    if origin not in (typing.Union, types.UnionType, typing.Annotated):
        yield origin
    for argument in typing.get_args(annotation):
        yield from _leaves(argument)


async def given_as(value: Any, annotation: Any) -> Any:
    """A value, and what is nested in it, with every Object in the form that its annotation asks for."""
    if isinstance(value, Object):
        return await read_as(value, form_of(annotation))
    if isinstance(value, dict):
        inner = inside(annotation)
        return {name: await given_as(each, inner) for name, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple) and any(isinstance(each, Object | dict | list | tuple) for each in value):
        inner = inside(annotation)
        return [await given_as(each, inner) for each in cast("list[Any]", value)]
    return cast("Any", value)


async def read_as(given: Object, form: Form) -> Any:
    """An Object in the form that a function takes."""
    match form:
        case "object" | "unknown":
            return given
        case "arrow":
            return await given.to_arrow()
        case "batch":
            return one_batch(await given.to_arrow())
        case "pandas":
            return await given.to_pandas()
        case "polars":
            return await given.to_polars()
        case "rows":
            return await (given.rows() if given.shape in ("table", "record") else given.data())
        case "value":
            return await given.data()


def one_batch(table: pa.Table) -> Any:
    batches: Sequence[Any] = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
