"""View: a part of an Object's rows, described and not copied. What a task gets to work on."""

from __future__ import annotations

from typing import Any, cast

from aaiclick.data.column import Column
from aaiclick.data.context import get_data_context
from aaiclick.data.errors import ConversionError, DataError, WhereError
from aaiclick.data.execute import is_table, strip
from aaiclick.data.nodes import Node, bind
from aaiclick.data.object import Object
from aaiclick.data.relations import Scan
from aaiclick.data.tables import Table
from aaiclick.data.where import parse_where, where_text

FORM_KEYS = {"object_type", "table_id", "offset", "limit", "where"}


class View(Object):
    """Rows `offset` to `offset + limit` of an Object (of those that match `where`), in order.

    It reads its rows by their keys: a View costs what its rows cost, wherever in the Object they lie.
    """

    def __init__(
        self, table: Table | Object, offset: int = 0, limit: int | None = None, where: str | Column | None = None
    ) -> None:
        source = _table_of(table)
        offset = _whole("offset", offset, 0)
        limit = None if limit is None else _whole("limit", limit, 0)
        condition = _condition(where, source)
        self._where = None if condition is None else where_text(condition)
        super().__init__(
            Scan(source, offset, limit, condition),
            "column" if source.shape == "scalar" else source.shape,
            source.context,
        )
        self._scan = Scan(source, offset, limit, condition)

    @property
    def offset(self) -> int:
        return self._scan.offset

    @property
    def limit_rows(self) -> int | None:
        return self._scan.limit

    @property
    def where_condition(self) -> str | None:
        """The condition as it is serialised."""
        return self._where

    @property
    def table_id(self) -> str:
        return self._scan.table.name

    def to_dict(self) -> dict[str, Any]:
        """The serialised form."""
        return {
            "object_type": "view",
            "table_id": self._scan.table.name,
            "offset": self._scan.offset,
            "limit": self._scan.limit,
            "where": self._where,
        }

    def slice(self, offset: int, length: int | None = None) -> View:
        """A part of this part."""
        own = self._scan.limit
        rest = None if own is None else max(0, own - offset)
        limit = rest if length is None else length if rest is None else min(length, rest)
        return View(self._scan.table, self._scan.offset + offset, limit, self._where)


def _table_of(source: Table | Object) -> Table:
    if isinstance(source, Table):
        return source
    relation = strip(source.relation)
    if isinstance(relation, Scan) and is_table(relation):
        return relation.table
    raise DataError(
        "A View is a part of a table, and this Object is an expression.", remedy="Use `obj = await obj` first."
    )


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or value >= 1 << 63:
        raise ConversionError(f"A View's {name} is a whole number from {least} on, not {value!r}.")
    return value


def _condition(where: str | Column | None, table: Table) -> Node | None:
    if where is None:
        return None
    schema = dict(table.columns)
    node = bind(where.node, schema) if isinstance(where, Column) else parse_where(where, schema)
    if not node.type.is_bool:
        raise WhereError(f"The condition gives {node.type}, not true or false.", remedy="Compare it with something.")
    # What is serialised is what runs: read the text back.
    return parse_where(where_text(node), schema)


async def open_reference(form: Any) -> Object:
    """The Object or View that a serialised form describes."""
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    kind, table_id = fields.get("object_type"), fields.get("table_id")
    if kind not in ("object", "view") or not isinstance(table_id, str):
        raise ConversionError(
            f"{form!r:.200} describes neither an Object nor a View.", remedy='It needs "object_type" and "table_id".'
        )
    unknown = set(fields) - (FORM_KEYS if kind == "view" else {"object_type", "table_id"})
    if unknown:
        raise ConversionError(
            f"A serialised {kind} has no {sorted(unknown)}.", remedy=f"Its keys are {sorted(FORM_KEYS)}."
        )
    table = await get_data_context().open_table(table_id)
    if kind == "object":
        return Object.from_table(table)
    offset = fields.get("offset")
    return View(table, 0 if offset is None else offset, fields.get("limit"), fields.get("where"))


def is_reference(form: Any) -> bool:
    """Whether a JSON value is a serialised Object or View."""
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    return fields.get("object_type") in ("object", "view") and "table_id" in fields
