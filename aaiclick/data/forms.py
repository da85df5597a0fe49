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
from typing import Any, Literal
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
def forms_of(function: Callable[..., Any]) -> Mapping[str, Form]:
    """The form of each parameter of a function; what has no annotation takes an Object."""
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001  (an annotation may name what only a type checker imports, or be any code at all)
        hints = {}
    forms: dict[str, Form] = {}
    for name, parameter in signature.parameters.items():
        annotation = hints.get(name, parameter.annotation)
        forms[name] = "object" if annotation is parameter.empty else form_of(annotation)
    return forms


def form_of(annotation: Any) -> Form:
    """The form that an annotation asks for; `unknown` if it says nothing of data."""
    leaves = list(_leaves(annotation))
    if any(leaf is Any or (isinstance(leaf, type) and issubclass(leaf, Object)) for leaf in leaves):
        return "object"
    for leaf in leaves:
        module = str(getattr(leaf, "__module__", "")).partition(".")[0]
        if found := _FRAMES.get((module, getattr(leaf, "__name__", ""))):
            return found
    if isinstance(annotation, str):
        return _FRAMES.get(_named(annotation), "object" if annotation in ("View", "Object") else "unknown")
    if typing.get_origin(annotation) in (list, collections.abc.Sequence) and {dict, collections.abc.Mapping} & {
        typing.get_origin(each) or each for each in typing.get_args(annotation)
    }:
        return "rows"
    return "value" if any(leaf in _VALUES or leaf in _ABSTRACT for leaf in leaves) else "unknown"


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
            return await (given.rows() if given.shape == "table" else given.data())
        case "value":
            return await given.data()


def one_batch(table: pa.Table) -> Any:
    batches: Sequence[Any] = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
