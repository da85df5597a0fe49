"""Selectors: expressions over several columns, chosen by name or type when the Object is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from aaiclick.data.errors import DataTypeError, column_not_found
from aaiclick.data.expressions.nodes import ExpressionNode, Ref, rewrite_node, walk_nodes
from aaiclick.data.types import NOTHING, DataType, user_type

_BY_TYPE: dict[str, Callable[[DataType], bool]] = {
    "int": lambda dtype: dtype.is_integer,
    "float": lambda dtype: dtype.is_float,
    "Decimal": lambda dtype: dtype.is_decimal,
    "numeric": lambda dtype: dtype.is_numeric,
    "bool": lambda dtype: dtype.is_bool,
    "str": lambda dtype: dtype.is_string and dtype.logical != "bytes",
    "bytes": lambda dtype: dtype.is_string and dtype.logical == "bytes",
    "date": lambda dtype: dtype.is_date,
    "datetime": lambda dtype: dtype.is_temporal and not dtype.is_date,
    "temporal": lambda dtype: dtype.is_temporal,
    "timedelta": lambda dtype: dtype.is_duration,
    "list": lambda dtype: dtype.name == "Array",
    "dict": lambda dtype: dtype.name in ("Tuple", "Map"),
}


@dataclass(frozen=True)
class Selector(ExpressionNode):
    """Columns by name, by type, or all but some; replaced by one column reference each before a query is built."""

    names: tuple[str, ...] = ()
    types: tuple[str | type, ...] = ()
    excluded: tuple[str, ...] = ()

    @cached_property
    def type(self) -> DataType:
        return NOTHING

    def choose_columns(self, schema: Mapping[str, DataType]) -> list[str]:
        for name in (*self.names, *self.excluded):
            if name not in schema:
                raise column_not_found(name, schema)
        if self.names:
            return list(self.names)
        if self.types:
            return [
                name for name, dtype in schema.items() if any(_has_type(dtype, type_label) for type_label in self.types)
            ]
        return [name for name in schema if name not in self.excluded]


def _has_type(dtype: DataType, type_label: str | type) -> bool:
    label = type_label if isinstance(type_label, str) else type_label.__name__
    if label in _BY_TYPE:
        return _BY_TYPE[label](dtype)
    return dtype.as_required() == user_type(label).as_required()


def find_selector(node: ExpressionNode) -> Selector | None:
    """Return the selector of an expression; raise DataTypeError if there are different ones."""
    selectors = {part for part in walk_nodes(node) if isinstance(part, Selector)}
    if len(selectors) > 1:
        raise DataTypeError(
            "An expression has two different groups of columns.", remedy="Use one group per expression."
        )
    return next(iter(selectors), None)


def replace_selector(node: ExpressionNode, name: str) -> ExpressionNode:
    """Replace the selector by one column."""
    return rewrite_node(node, lambda part: Ref(name) if isinstance(part, Selector) else None)


def check_names(names: Iterable[object], label: str) -> tuple[str, ...]:
    """Return column names, also of a list; raise DataTypeError for anything that is not a text."""
    result: list[str] = []
    for name in flatten_lists(names):
        if not isinstance(name, str):
            raise DataTypeError(f"{label} takes names of columns, not {name!r:.60}.", remedy='For example "x".')
        result.append(name)
    return tuple(result)


def flatten_lists(values: Iterable[object]) -> list[object]:
    """Return the values, with lists and tuples replaced by their elements."""
    result: list[object] = []
    for value in values:
        if isinstance(value, list | tuple):
            result.extend(value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            result.append(value)
    return result


def check_types(types: Iterable[str | type]) -> tuple[str | type, ...]:
    """Return types; raise DataTypeError for one that is unknown."""
    for type_label in types:
        if not isinstance(type_label, str | type):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataTypeError(
                f"{type_label!r:.60} is not a type.", remedy=f"Use {', '.join(_BY_TYPE)}, or a ClickHouse type."
            )
        _has_type(NOTHING, type_label)
    return tuple(types)


def check_mapping(value: object, method: str) -> dict[Any, Any]:
    """Return a dict; raise DataTypeError for anything else."""
    if not isinstance(value, Mapping):
        raise DataTypeError(f"{method} takes a dict, not {value!r:.60}.", remedy='For example {"x": …}.')
    return dict(cast("Mapping[Any, Any]", value))
