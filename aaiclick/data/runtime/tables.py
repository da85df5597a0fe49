"""Tables of Objects: names, definitions and reference handles.

A table has `aai_id`, a dense row number from 0 and the sorting key, and the columns. Its comment stores what
ClickHouse's types cannot express: whether it has one value, one unnamed column or several, which strings are bytes
or JSON, and which arrays, tuples and maps may be NULL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from aaiclick.data.compile.select_builder import KEY, RESERVED_PREFIX
from aaiclick.data.errors import ColumnNameError, DataTypeError
from aaiclick.data.types import (
    DataType,
    declared_text,
    is_encodable,
    needs_declaration,
    parse_type,
    quote_name,
    quote_text,
    storage_type,
)
from aaiclick.snowflake import get_snowflake_id

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext
    from aaiclick.data.runtime.literal_result_rows import LiteralRows

Shape = Literal["scalar", "column", "table", "record"]
"""What `data()` returns: a value, a list, a dict of lists, or (record, a table of one row) a dict of values."""

Columns = tuple[tuple[str, DataType], ...]

ENGINES = ("MergeTree", "Memory", "StripeLog", "TinyLog")
VALUE = "value"
"""The name of an unnamed column."""

NAMED = "named_"
"""Prefix of the tables of named Objects, which the sweeper ignores."""

_TEMPORARY = re.compile(r"t\d{1,19}")


class Table:
    """A counted reference to a table; the lifecycle handler is notified when it is released.

    `literal` has the rows of a table that does not exist in ClickHouse: they become part of the queries.
    """

    __slots__ = ("__weakref__", "columns", "context", "counted", "literal", "name", "shape")

    def __init__(
        self,
        name: str,
        columns: Columns,
        shape: Shape,
        context: DataContext,
        *,
        counted: bool,
        literal: LiteralRows | None = None,
    ) -> None:
        self.name = name
        self.columns = columns
        self.shape: Shape = shape
        self.context = context
        self.counted = counted
        self.literal = literal

    @property
    def is_distributed(self) -> bool:
        """Whether its rows are on the nodes of a cluster."""
        return bool(self.context.endpoint.cluster)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.name == other.name and self.context.endpoint == other.context.endpoint

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Table({self.name})"

    def release(self) -> None:
        """Release the reference, once."""
        if self.counted:
            self.counted = False
            self.context.lifecycle.decref(self.name)

    def __del__(self) -> None:
        if getattr(self, "counted", False):
            self.release()


def new_table_name() -> str:
    return f"t{get_snowflake_id()}"


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def named_table(name: object) -> str:
    """Return the table name of a named Object."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or not is_encodable(name)
        or len(name.encode()) > 150
        or any(c < " " or c == "\x7f" for c in name)
    ):
        raise ColumnNameError(
            f"{name!r} cannot name an Object.", remedy="Use 1 to 150 bytes of text without control characters."
        )
    return NAMED + name


VIRTUAL_COLUMNS = frozenset({"_row_exists", "_block_number", "_block_offset"})
"""Columns that MergeTree tables have of their own and store."""


def check_column_names(names: Iterable[object]) -> None:
    used_names: set[str] = set()
    for name in names:
        if not isinstance(name, str) or name == "":
            raise ColumnNameError(f"A column cannot be named {name!r}.", remedy="Use a string that is not empty.")
        if name.startswith(RESERVED_PREFIX):
            raise ColumnNameError(
                f"The column name {name!r} is reserved.", remedy=f"Use a name that does not begin {RESERVED_PREFIX!r}."
            )
        if name in VIRTUAL_COLUMNS:
            raise ColumnNameError(f"The column name {name!r} is reserved by ClickHouse.", remedy="Use another name.")
        if not is_encodable(name):
            raise ColumnNameError(f"The column name {name!r} is not valid Unicode: it has a lone surrogate.")
        if "\x00" in name:
            raise ColumnNameError(f"The column name {name!r} contains a NUL character.")
        if name in used_names:
            raise ColumnNameError(f"Two columns are named {name!r}.", remedy="Rename one.")
        used_names.add(name)


def check_columns(columns: Columns) -> None:
    """Raise an error for invalid column names and for columns without a type."""
    check_column_names(column for column, _ in columns)
    untyped = next((column for column, dtype in columns if dtype.is_unknown), None)
    if untyped is not None:
        raise DataTypeError(
            f"Column {untyped!r} holds only NULL, which has no type.", remedy="Give it one: cast it, or pass schema=."
        )


SOURCE = "aai_source"
"""Column of tables with parallel writers (`parallel_write`): number and attempt of the writer of a row."""

ADD_SOURCE = f"ADD COLUMN {quote_name(SOURCE)} UInt64 CODEC(Delta, LZ4)"


def shape_of_many(shape: Shape) -> Shape:
    """Return the shape of several values of this shape."""
    return "column" if shape == "scalar" else "table" if shape == "record" else shape


def create_statement(name: str, columns: Columns, shape: Shape, engine: str, session: int | None = None) -> str:
    """Return CREATE TABLE for an Object; identifiers and texts are quoted, types are formatted from parsed values."""
    check_columns(columns)
    fields = [
        f"{quote_name(KEY)} UInt64 CODEC(Delta, LZ4)",
        *(f"{quote_name(n)} {storage_type(dtype)}" for n, dtype in columns),
    ]
    sorting = f" ORDER BY {quote_name(KEY)}" if engine.endswith("MergeTree") else ""
    comment = quote_text(comment_for(columns, shape, session))
    return f"CREATE TABLE {quote_name(name)} ({', '.join(fields)}) ENGINE = {engine}{sorting} COMMENT {comment}"


def comment_for(columns: Columns, shape: Shape, session: int | None = None) -> str:
    logical = {name: dtype.logical for name, dtype in columns if dtype.logical}
    declared = {name: declared_text(dtype) for name, dtype in columns if needs_declaration(dtype)}
    note: dict[str, object] = {"aaiclick": shape}
    if logical:
        note["logical"] = logical
    if declared:
        note["types"] = declared
    if session is not None:
        note["session"] = str(session)
    return json.dumps(note)


def read_definition(comment: str, described: Iterable[tuple[str, str]]) -> tuple[Columns, Shape]:
    """Return columns and shape of a table, from its comment and its column types."""
    note: dict[str, Any] = {}
    with suppress(ValueError):
        note = json.loads(comment) if comment.startswith("{") else {}
    logical: dict[str, str] = note.get("logical", {})
    declared: dict[str, str] = note.get("types", {})
    columns = tuple(
        (name, replace(parse_type(declared.get(name, type_text)), logical=logical.get(name, "")))
        for name, type_text in described
        if not name.startswith(RESERVED_PREFIX)
    )
    shape = note.get("aaiclick", "table")
    return columns, shape if shape in ("scalar", "column", "table", "record") else "table"
