"""Tables behind Objects: their names, their definition, and the handle that keeps them alive.

A table holds `aai_id`, a dense row number from 0 and the sorting key, and the columns. Its comment says what
ClickHouse's
types cannot: whether it holds one value, one unnamed column or several, and which strings are bytes or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from aaiclick.data.errors import ColumnNameError, DataTypeError
from aaiclick.data.frame import KEY, RESERVED
from aaiclick.data.types import DataType, is_text, parse_type, quote_name, quote_text
from aaiclick.snowflake import get_snowflake_id

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext

Shape = Literal["scalar", "column", "table", "record"]
"""What `data()` gives: a value, a list, a dict of lists; a record is a table of one row, given as a dict of values."""

Columns = tuple[tuple[str, DataType], ...]

ENGINES = ("MergeTree", "Memory", "StripeLog", "TinyLog")
VALUE = "value"
"""The name of a column that has none."""

NAMED = "named_"
"""Tables of named Objects begin so, and are no business of the sweeper's."""

_TEMPORARY = re.compile(r"t\d{1,19}")


class Table:
    """A reference to one table; when the last one goes, the lifecycle handler hears of it."""

    __slots__ = ("__weakref__", "columns", "context", "counted", "name", "shape")

    def __init__(self, name: str, columns: Columns, shape: Shape, context: DataContext, *, counted: bool) -> None:
        self.name = name
        self.columns = columns
        self.shape: Shape = shape
        self.context = context
        self.counted = counted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.name == other.name and self.context.target == other.context.target

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Table({self.name})"

    def release(self) -> None:
        """Give the reference back, once."""
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


def named_table(name: Any) -> str:
    """The table of a named Object."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or not is_text(name)
        or len(name.encode()) > 150
        or any(c < " " or c == "\x7f" for c in name)
    ):
        raise ColumnNameError(
            f"{name!r} cannot name an Object.", remedy="Use 1 to 150 bytes of text without control characters."
        )
    return NAMED + name


def check_column_names(names: Iterable[Any]) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or name == "":
            raise ColumnNameError(f"A column cannot be named {name!r}.", remedy="Use a string that is not empty.")
        if name.startswith(RESERVED):
            raise ColumnNameError(
                f"The column name {name!r} is reserved.", remedy=f"Names that begin with {RESERVED!r} are ours."
            )
        if not is_text(name):
            raise ColumnNameError(f"The column name {name!r} is not Unicode: it holds half of a pair.")
        if "\x00" in name:
            raise ColumnNameError(f"The column name {name!r} holds a NUL character.")
        if name in seen:
            raise ColumnNameError(f"Two columns are named {name!r}.", remedy="Rename one.")
        seen.add(name)


def check_columns(columns: Columns) -> None:
    """Refuse what cannot be the columns of a table."""
    check_column_names(column for column, _ in columns)
    untyped = next((column for column, kind in columns if kind.is_unknown), None)
    if untyped is not None:
        raise DataTypeError(
            f"Column {untyped!r} holds only NULL, which has no type.", remedy="Give it one: cast it, or pass schema=."
        )


SOURCE = "aai_source"
"""A column of tables that many have filled at once (`gather`): who wrote a row, the writer's number and its attempt."""

ADD_SOURCE = f"ADD COLUMN {quote_name(SOURCE)} UInt64 CODEC(Delta, LZ4)"


def many(shape: Shape) -> Shape:
    """The shape of several of this one."""
    return "column" if shape == "scalar" else "table" if shape == "record" else shape


def create_statement(name: str, columns: Columns, shape: Shape, engine: str, session: int | None = None) -> str:
    """CREATE TABLE for an Object; identifiers and texts quoted, types written from parsed values."""
    check_columns(columns)
    fields = [f"{quote_name(KEY)} UInt64 CODEC(Delta, LZ4)", *(f"{quote_name(n)} {kind}" for n, kind in columns)]
    sorting = f" ORDER BY {quote_name(KEY)}" if engine.endswith("MergeTree") else ""
    comment = quote_text(comment_for(columns, shape, session))
    return f"CREATE TABLE {quote_name(name)} ({', '.join(fields)}) ENGINE = {engine}{sorting} COMMENT {comment}"


def comment_for(columns: Columns, shape: Shape, session: int | None = None) -> str:
    logical = {name: kind.logical for name, kind in columns if kind.logical}
    note: dict[str, Any] = {"aaiclick": shape}
    if logical:
        note["logical"] = logical
    if session is not None:
        note["session"] = str(session)
    return json.dumps(note)


def read_definition(comment: str, described: Iterable[tuple[str, str]]) -> tuple[Columns, Shape]:
    """Columns and shape of a table from its comment and the types of its columns."""
    note: dict[str, Any] = {}
    with suppress(ValueError):
        note = json.loads(comment) if comment.startswith("{") else {}
    logical: dict[str, str] = note.get("logical", {})
    columns = tuple(
        (name, replace(parse_type(kind), logical=logical.get(name, "")))
        for name, kind in described
        if not name.startswith(RESERVED)
    )
    shape = note.get("aaiclick", "table")
    return columns, shape if shape in ("scalar", "column", "table", "record") else "table"
