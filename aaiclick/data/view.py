"""View: a range or filtered part of a table's rows, without a copy. Tasks receive Views as chunks."""

from __future__ import annotations

from typing import Any, cast

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.compile.relation_nodes import Scan
from aaiclick.data.context import get_data_context
from aaiclick.data.errors import ConversionError, DataError, WhereError, check_integer
from aaiclick.data.expressions.column import Column
from aaiclick.data.expressions.nodes import ExpressionNode, FunctionCall, bind_columns
from aaiclick.data.expressions.where_parser import format_where, parse_where
from aaiclick.data.object import Object
from aaiclick.data.pending_result import explain_await
from aaiclick.data.relational_methods import TableMethods
from aaiclick.data.runtime.execute import is_table, strip_identity
from aaiclick.data.runtime.tables import Table

REFERENCE_KEYS = {"object_type", "table_id", "offset", "limit", "where"}


@check_methods
class View(Object):
    """Rows `offset` to `offset + limit` of a table (or of its rows that match `where`), in order.

    Rows are read by a range of keys, so that the cost depends on the number of rows and not on their position.

    ```python
    await View(await numbers, offset=1, limit=1).data()  # {'x': [3]}
    ```
    """

    def __init__(
        self, table: Table | Object, offset: int = 0, limit: int | None = None, where: str | Column | None = None
    ) -> None:
        source = _table_of(table)
        offset = _check_count("offset", offset, 0)
        limit = None if limit is None else _check_count("limit", limit, 0)
        condition = _parse_condition(where, source)
        self._where = None if condition is None else format_where(condition)
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
    def where_condition(self) -> str | None:
        """The condition in its serialised form."""
        return self._where

    @property
    def table_id(self) -> str:
        return self._scan.table.name

    def to_dict(self) -> dict[str, Any]:
        """Serialise to a reference that another process can open with `open_reference`."""
        return {
            "object_type": "view",
            "table_id": self._scan.table.name,
            "offset": self._scan.offset,
            "limit": self._scan.limit,
            "where": self._where,
        }

    def slice(self, offset: int, length: int | None = None) -> Object:
        """Return a View of a part of this View; from the end, if the offset is negative, an Object."""
        if check_integer(offset, "The offset") < 0:
            return TableMethods.slice(self, offset, length)
        return self.take_range(offset, length)

    def view(self, offset: int = 0, limit: int | None = None, where: str | Column | None = None) -> View:
        """Return a View of some rows of this View."""
        if where is None:
            return self.take_range(
                _check_count("offset", offset, 0), None if limit is None else _check_count("limit", limit, 0)
            )
        if self._scan.offset or self._scan.limit is not None:
            raise DataError(
                "A View of a range of rows has no further condition.",
                remedy="Use filter(…), or `view = await view.materialize()` first.",
            )
        condition = _parse_condition(where, self._scan.table)
        own = self._scan.where
        both = condition if own is None or condition is None else FunctionCall("and", (own, condition))
        return View(self._scan.table, offset, limit, None if both is None else format_where(both))

    def take_range(self, offset: int, length: int | None) -> View:
        """Return a View of the rows of this View from `offset` on."""
        own = self._scan.limit
        rest = None if own is None else max(0, own - offset)
        limit = rest if length is None else length if rest is None else min(length, rest)
        return View(self._scan.table, self._scan.offset + offset, limit, self._where)


def _table_of(source: Table | Object) -> Table:
    if isinstance(source, Table):
        return source
    relation = strip_identity(source.relation)
    if isinstance(relation, Scan) and is_table(relation):
        return relation.table
    raise DataError(
        "A View needs a table, and this Object is a lazy expression.", remedy="Use `obj = await obj` first."
    )


def _check_count(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or value >= 1 << 63:
        raise ConversionError(f"A View's {name} must be an integer of at least {least}, not {value!r}.")
    return value


def _parse_condition(where: str | Column | None, table: Table) -> ExpressionNode | None:
    if where is None:
        return None
    schema = dict(table.columns)
    node = bind_columns(where.node, schema) if isinstance(where, Column) else parse_where(where, schema)
    if not node.type.is_bool:
        raise WhereError(f"The condition has type {node.type}, not Bool.", remedy="Compare it with a value.")
    # Parse the serialised text, so that the condition that runs is the one that is sent.
    return parse_where(format_where(node), schema)


@explain_await
async def open_reference(form: object) -> Object:
    """Open the Object or View of a serialised reference.

    ```python
    view = View(await numbers, offset=1)
    await (await open_reference(view.to_dict())).count()  # 2
    ```
    """
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    object_type, table_id = fields.get("object_type"), fields.get("table_id")
    if object_type not in ("object", "view") or not isinstance(table_id, str):
        raise ConversionError(
            f"{form!r:.200} is not a reference to an Object or View.", remedy='It needs "object_type" and "table_id".'
        )
    unknown = set(fields) - (REFERENCE_KEYS if object_type == "view" else {"object_type", "table_id"})
    if unknown:
        raise ConversionError(
            f"A reference to an {object_type} has unknown keys: {sorted(unknown)}.",
            remedy=f"Allowed keys: {sorted(REFERENCE_KEYS)}.",
        )
    table = await get_data_context().open_table(table_id)
    if object_type == "object":
        return Object.from_table(table)
    offset = fields.get("offset")
    return View(table, 0 if offset is None else offset, fields.get("limit"), fields.get("where"))


def is_reference(form: object) -> bool:
    """Whether a JSON value is a reference to an Object or View.

    ```python
    is_reference({"object_type": "object", "table_id": "t1"})  # True
    ```
    """
    fields = cast("dict[str, Any]", form) if isinstance(form, dict) else {}
    return fields.get("object_type") in ("object", "view") and "table_id" in fields
