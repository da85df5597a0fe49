"""Registry of the functions of expressions.

An entry holds the accepted types, the result type, and a builder of the ClickHouse expression. The fluent API, type
checks, the compiler and the `where` parser use this registry.
"""

# ruff: noqa: ARG001  (all builders have one signature)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.errors import DataTypeError
from aaiclick.data.types import DataType

Types = tuple[DataType, ...]
Params = tuple[Any, ...]
Over = Callable[[Expression], Expression]
"""Adds the OVER clause to an aggregate call; identity outside of a window."""

Result = Callable[[Types, Params], DataType]
Build = Callable[[list[Expression], Types, Params], Expression]
BuildAggregate = Callable[[list[Expression], Types, Params, Over], Expression]


class FunctionKind(Enum):
    ROW = "row"
    AGGREGATE = "aggregate"
    WINDOW = "window"


@dataclass(frozen=True)
class Function:
    name: str
    kind: FunctionKind
    result: Result
    build: BuildAggregate
    doc: str


class NotDefinedError(Exception):
    """The function does not accept these types; the message says which it accepts."""


FUNCTIONS: dict[str, Function] = {}


def define_function(name: str, result: Result, build: Build, doc: str) -> None:
    """Register a function of the values of one row."""

    def without_window(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return build(args, types, params)

    FUNCTIONS[name] = Function(name, FunctionKind.ROW, result, without_window, doc)


def define_aggregate(name: str, result: Result, build: BuildAggregate, doc: str) -> None:
    FUNCTIONS[name] = Function(name, FunctionKind.AGGREGATE, result, build, doc)


def define_window(name: str, result: Result, build: BuildAggregate, doc: str) -> None:
    FUNCTIONS[name] = Function(name, FunctionKind.WINDOW, result, build, doc)


def extend_function(name: str, applies: Callable[[Types, Params], bool], result: Result, build: BuildAggregate) -> None:
    """Give a registered function another result type and builder for the types to which `applies` returns true."""
    general = FUNCTIONS[name]

    def extended_result(types: Types, params: Params) -> DataType:
        return (result if applies(types, params) else general.result)(types, params)

    def extended_build(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return (build if applies(types, params) else general.build)(args, types, params, over)

    FUNCTIONS[name] = replace(general, result=extended_result, build=extended_build)


# --- argument types ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypeClass:
    """A set of accepted types with its description for error messages."""

    description: str
    test: Callable[[DataType], bool]

    def __call__(self, dtype: DataType) -> bool:
        return dtype.is_unknown or self.test(dtype)


ANY = TypeClass("anything", lambda _: True)
NUMBER = TypeClass("a number", lambda dtype: dtype.is_numeric or dtype.is_bool)
INTEGER = TypeClass("an integer", lambda dtype: dtype.is_integer)
TEXT = TypeClass("a string", lambda dtype: dtype.is_string)
TRUTH = TypeClass("a boolean", lambda dtype: dtype.is_bool)
TEMPORAL = TypeClass("a date or datetime", lambda dtype: dtype.is_temporal)
SPAN = TypeClass("a duration", lambda dtype: dtype.is_duration)
LIST = TypeClass("an array", lambda dtype: dtype.name == "Array")
MAP = TypeClass("a map", lambda dtype: dtype.name == "Map")
STRUCT = TypeClass("a struct", lambda dtype: dtype.name == "Tuple")
FLAT = TypeClass("a plain value (no array, struct or map)", lambda dtype: not dtype.is_structure)


def check_types(types: Types, *type_classes: TypeClass) -> None:
    for dtype, type_class in zip(types, type_classes, strict=False):
        if not type_class(dtype):
            raise NotDefinedError(f"it takes {type_class.description}, not {dtype}")


def any_nullable(types: Types) -> bool:
    return any(dtype.nullable for dtype in types)


def fixed_type(dtype: DataType, *type_classes: TypeClass) -> Result:
    """Return a result-type function for a fixed type, nullable if an argument is."""

    def result(types: Types, params: Params) -> DataType:
        check_types(types, *type_classes)
        return dtype.as_nullable(any_nullable(types))

    return result


def first_argument_type(*type_classes: TypeClass) -> Result:
    """Return a result-type function for the type of the first argument, nullable if an argument is."""

    def result(types: Types, params: Params) -> DataType:
        check_types(types, *type_classes)
        return types[0].as_nullable(any_nullable(types))

    return result


def build_call(clickhouse: str, cast_to: DataType | None = None) -> Build:
    """Return a builder that calls a ClickHouse function, and casts its result to `cast_to` if given."""

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        tree = sql.call(clickhouse, *args)
        return tree if cast_to is None else sql.cast(tree, cast_to.as_nullable(any_nullable(types)))

    return build


def raise_where(condition: Expression, message: str) -> Expression:
    """Build a condition that is never true: it raises an error where the given one is."""
    return sql.call("throwIf", sql.call("ifNull", condition, sql.number(0)), sql.string(message))


def unsupported_types_error(function: str, described: list[str], types: Types, why: str) -> DataTypeError:
    """Build the error for a call with unsupported types, with the columns and their types."""
    parts = ", ".join(f"{text} is {dtype}" for text, dtype in zip(described, types, strict=True))
    return DataTypeError(
        f"{function} is not defined here: {parts}; {why}.", remedy="Convert with .cast(…) if necessary."
    )
