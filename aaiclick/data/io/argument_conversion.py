"""Conversion of Object arguments to the type that a function's annotations name.

The types are Object, Arrow, pandas, polars, rows and Python values.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, cast
from uuid import UUID

import pyarrow as pa

from aaiclick.concurrent_map import map_concurrently
from aaiclick.data.context import get_data_context
from aaiclick.data.io.from_arrow import normalise, to_pandas, to_polars, to_python
from aaiclick.data.io.literal_result_codec import EncodedLiteral
from aaiclick.data.io.typed_values import annotations_of, is_record_class, is_value_class
from aaiclick.data.object import Object

Form = Literal["object", "arrow", "batch", "pandas", "polars", "rows", "value", "unknown"]

_FRAMES: dict[tuple[str, str], Form] = {
    ("pyarrow", "Table"): "arrow",
    ("pyarrow", "RecordBatch"): "batch",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
}
_VALUES = (int, float, bool, str, bytes, date, datetime, timedelta, Decimal, UUID, list, dict, tuple, set, frozenset)
_ABSTRACT = (
    collections.abc.Sequence,
    collections.abc.Mapping,
    collections.abc.Iterable,
    collections.abc.Collection,
)


def list_argument_forms(function: Callable[..., object]) -> Mapping[str, Form]:
    """Return the form of each parameter of a function; a parameter without annotation takes an Object."""
    return {name: argument_form(annotation) for name, annotation in annotations_of(function).items()}


def argument_form(annotation: object) -> Form:
    """Return the form that an annotation names; `unknown` if it is not a type of data."""
    if annotation is Any:
        return "object"
    if isinstance(annotation, str):
        return _FRAMES.get(_resolve_name(annotation), "object" if annotation in ("View", "Object") else "unknown")
    leaves = list(_iter_leaf_types(annotation))
    if any(isinstance(leaf, type) and issubclass(leaf, Object) for leaf in leaves):
        return "object"
    for leaf in leaves:
        module = str(getattr(leaf, "__module__", "")).partition(".")[0]
        if form := _FRAMES.get((module, getattr(leaf, "__name__", ""))):
            return form
    for member in _union_members(annotation):
        if typing.get_origin(member) in (list, tuple, collections.abc.Sequence) and any(
            (typing.get_origin(inner) or inner) in (dict, collections.abc.Mapping) or is_record_class(inner)
            for inner in typing.get_args(member)
        ):
            return "rows"
    is_value = any(leaf in _VALUES or leaf in _ABSTRACT or is_value_class(leaf) for leaf in leaves)
    return "value" if is_value else "unknown"


def element_annotation(annotation: object) -> object:
    """Return the annotation of the elements of a list or dict; any other annotation is returned unchanged."""
    for member in _union_members(annotation):
        origin, arguments = typing.get_origin(member), typing.get_args(member)
        if origin in (dict, collections.abc.Mapping) and len(arguments) == 2:
            return arguments[1]
        if origin is not None and arguments:
            return arguments[0]
    return annotation


def _union_members(annotation: object) -> Sequence[Any]:
    """Return the members of a union, or the annotation itself."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _union_members(typing.get_args(annotation)[0])
    return typing.get_args(annotation) if origin in (typing.Union, types.UnionType) else [annotation]


_MODULES = {"pa": "pyarrow", "pd": "pandas", "pl": "polars"}


def _resolve_name(annotation: str) -> tuple[str, str]:
    module, _, name = annotation.rpartition(".")
    return _MODULES.get(module, module).partition(".")[0], name


def _iter_leaf_types(annotation: object) -> Iterator[Any]:
    """Yield the types in an annotation: for `list[Object] | None`, list, Object and None."""
    origin = typing.get_origin(annotation)
    if origin is None:
        yield annotation
        return
    if origin not in (typing.Union, types.UnionType, typing.Annotated):
        yield origin
    for argument in typing.get_args(annotation):
        yield from _iter_leaf_types(argument)


async def convert_argument(value: object, annotation: object) -> object:
    """Convert every Object in a value, nested ones too, to the form that the annotation names."""
    if isinstance(value, Object):
        return await read_object_as(value, argument_form(annotation))
    if isinstance(value, EncodedLiteral):
        return read_literal_as(value, annotation)
    if isinstance(value, dict):
        inner = element_annotation(annotation)
        return {name: await convert_argument(item, inner) for name, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        if any(isinstance(item, Object | EncodedLiteral | dict | list | tuple) for item in items):
            inner = element_annotation(annotation)
            return await map_concurrently(lambda item: convert_argument(item, inner), items)
    return cast("Any", value)


async def read_object_as(obj: Object, form: Form) -> object:
    """Read an Object in the given form."""
    match form:
        case "object" | "unknown":
            return obj
        case "arrow":
            return await obj.to_arrow()
        case "batch":
            return to_single_batch(await obj.to_arrow())
        case "pandas":
            return await obj.to_pandas()
        case "polars":
            return await obj.to_polars()
        case "rows":
            return await (obj.rows() if obj.shape in ("table", "record") else obj.data())
        case "value":
            return await obj.data()


def read_literal_as(literal: EncodedLiteral, annotation: object) -> object:
    """Read a literal in the form that an annotation names, without ClickHouse unless the form is an Object."""
    form = argument_form(annotation)
    if form in ("object", "unknown"):
        return Object.from_table(get_data_context().open_literal(literal))
    if literal.is_plain and form in ("value", "rows"):
        value = literal.plain_value()
        if _accepts_plain(value, form, annotation):
            return value
    rows = literal.rows()
    table = normalise(rows.table, rows.columns)
    match form:
        case "arrow":
            return table
        case "batch":
            return to_single_batch(table)
        case "pandas":
            return to_pandas(table)
        case "polars":
            return to_polars(table)
        case "rows" if rows.shape in ("table", "record"):
            columns: dict[str, list[object]] = to_python(table, rows.columns, "table")
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        case _:
            return to_python(table, rows.columns, rows.shape)


def _accepts_plain(value: object, form: Form, annotation: object) -> bool:
    """Whether a value has the structure that an annotation names; a list of dicts is also a dict of columns."""
    if isinstance(value, dict):
        return form == "value"
    if not isinstance(value, list) or not any(isinstance(item, dict) for item in cast("list[object]", value)):
        return True
    origins = {typing.get_origin(member) or member for member in _union_members(annotation)}
    return not origins <= {dict, collections.abc.Mapping, type(None)}


def to_single_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
