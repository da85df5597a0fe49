"""The table of everything an expression can call.

A function is a row: what types it takes, what type it gives, and the ClickHouse expression that computes it. The fluent
API, the types, the compiler, the `where` parser and the page of operations are all driven by this table.
"""

# ruff: noqa: ARG001  (all builders have one signature)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aaiclick.data import sql
from aaiclick.data.errors import DataTypeError
from aaiclick.data.sql import Expression
from aaiclick.data.types import DataType

Types = tuple[DataType, ...]
Params = tuple[Any, ...]
Over = Callable[[Expression], Expression]
"""Puts the window around a bare aggregate call; outside a window it changes nothing."""

Result = Callable[[Types, Params], DataType]
Build = Callable[[list[Expression], Types, Params], Expression]
BuildAggregate = Callable[[list[Expression], Types, Params, Over], Expression]


class Kind(Enum):
    ROW = "row"
    AGGREGATE = "aggregate"
    WINDOW = "window"


@dataclass(frozen=True)
class Function:
    name: str
    kind: Kind
    result: Result
    build: BuildAggregate
    doc: str


class NotDefinedError(Exception):
    """The function does not exist for these types; carries what it would take."""


FUNCTIONS: dict[str, Function] = {}


def lookup(name: str) -> Function:
    return FUNCTIONS[name]


def define(name: str, result: Result, build: Build, doc: str) -> None:
    """A function of one row."""

    def without_window(args: list[Expression], types: Types, params: Params, over: Over) -> Expression:
        return build(args, types, params)

    FUNCTIONS[name] = Function(name, Kind.ROW, result, without_window, doc)


def define_aggregate(name: str, result: Result, build: BuildAggregate, doc: str) -> None:
    FUNCTIONS[name] = Function(name, Kind.AGGREGATE, result, build, doc)


def define_window(name: str, result: Result, build: BuildAggregate, doc: str) -> None:
    FUNCTIONS[name] = Function(name, Kind.WINDOW, result, build, doc)


# --- what a function takes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Takes:
    """A class of types with the words for it."""

    words: str
    test: Callable[[DataType], bool]

    def __call__(self, kind: DataType) -> bool:
        return kind.is_unknown or self.test(kind)


ANY = Takes("anything", lambda _: True)
NUMBER = Takes("a number", lambda kind: kind.is_numeric or kind.is_bool)
INTEGER = Takes("an integer", lambda kind: kind.is_integer)
TEXT = Takes("a string", lambda kind: kind.is_string)
TRUTH = Takes("a boolean", lambda kind: kind.is_bool)
TEMPORAL = Takes("a date or datetime", lambda kind: kind.is_temporal)
LIST = Takes("an array", lambda kind: kind.name == "Array")
MAP = Takes("a map", lambda kind: kind.name == "Map")
STRUCT = Takes("a struct", lambda kind: kind.name == "Tuple")
FLAT = Takes("a plain value (no array, struct or map)", lambda kind: not kind.is_structure)


def check(types: Types, *takes: Takes) -> None:
    for kind, taken in zip(types, takes, strict=False):
        if not taken(kind):
            raise NotDefinedError(f"it takes {taken.words}, not {kind}")


def any_nullable(types: Types) -> bool:
    return any(kind.nullable for kind in types)


def gives(kind: DataType, *takes: Takes) -> Result:
    """Always this type; NULL in, NULL out."""

    def result(types: Types, params: Params) -> DataType:
        check(types, *takes)
        return kind.as_nullable(any_nullable(types))

    return result


def gives_same(*takes: Takes) -> Result:
    """The type of the first argument; NULL in, NULL out."""

    def result(types: Types, params: Params) -> DataType:
        check(types, *takes)
        return types[0].as_nullable(any_nullable(types))

    return result


def calls(clickhouse: str, cast_to: DataType | None = None) -> Build:
    """A ClickHouse function of the same arguments, its result cast where ClickHouse's own type would surprise."""

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        tree = sql.call(clickhouse, *args)
        return tree if cast_to is None else sql.cast(tree, cast_to.as_nullable(any_nullable(types)))

    return build


def unsupported(function: str, described: list[str], types: Types, why: str) -> DataTypeError:
    """The error for a call on types it does not take: names the columns and their types."""
    parts = ", ".join(f"{text} is {kind}" for text, kind in zip(described, types, strict=True))
    return DataTypeError(
        f"{function} is not defined here: {parts}; {why}.", remedy="Convert with .cast(…) if that is meant."
    )
