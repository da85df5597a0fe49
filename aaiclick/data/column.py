"""Column expressions: `col("x") + 1`, to be used in `select`, `filter`, `agg`, … of any Object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, cast

from aaiclick.data.errors import ConversionError, DataTypeError
from aaiclick.data.expressive import Expressive
from aaiclick.data.functions import FUNCTIONS, Kind
from aaiclick.data.literals import literal_type
from aaiclick.data.nodes import Call, Literal, Node, Over, Ref, RowIndex, SortKey, walk


class Column(Expressive):
    """An expression over the columns of whatever Object it is used with."""

    __slots__ = ("name", "node")

    def __init__(self, node: Node, name: str = "") -> None:
        self.node = node
        self.name = name or default_name(node)

    def alias(self, name: str) -> Column:
        """The same under another name."""
        return Column(self.node, name)

    def count(self) -> Column:
        """Number of values that are not NULL."""
        return self._call("count")

    def unique(self) -> Column:
        """The different values as an array, in order of first appearance."""
        return self.collect().list.unique()

    def over(
        self,
        *partition_by: str | Column,
        order_by: str | Column | Iterable[str | Column] | None = None,
        descending: bool = False,
        rows: tuple[int | None, int | None] | None = None,
    ) -> Column:
        """An aggregate beside every row, over the rows with equal `partition_by` values.

        With `order_by` it runs over the rows up to the current one; `rows=(2, 0)` limits it to two rows before and
        none after
        (None: no limit).
        """
        call = self.node.call if isinstance(self.node, Over) else self.node
        if not isinstance(call, Call) or call.kind is Kind.ROW:
            raise DataTypeError(
                "Only an aggregate or window function has an over(…).", remedy='For example col("x").sum().over("k").'
            )
        partition = tuple(column_node(each) for each in partition_by)
        earlier = self.node if isinstance(self.node, Over) else None
        keys = _sort_keys(order_by, descending) or (earlier.order if earlier else ())
        frame = _rows(rows) if rows is not None else (earlier.frame if earlier else None)
        if frame is None and _sort_keys(order_by, descending) and call.kind is Kind.AGGREGATE:
            frame = ("UNBOUNDED PRECEDING", "CURRENT ROW")
        natural = (earlier.natural if earlier else False) or bool(keys) or rows is not None
        return Column(
            Over(call, partition, keys, natural and call.function not in ("rank", "dense_rank"), frame), self.name
        )

    def _call(self, function: str, *args: Any, params: tuple[Any, ...] = ()) -> Self:
        return type(self)(Call(function, (self.node, *(as_node(arg) for arg in args)), params), self.name)

    def _window(
        self,
        function: str,
        *args: Any,
        params: tuple[Any, ...] = (),
        order: tuple[Any, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
    ) -> Self:
        own = () if FUNCTIONS[function].kind is Kind.WINDOW and function != "shift" else (self.node,)
        call = Call(function, (*own, *(as_node(arg) for arg in args)), params)
        keys = tuple(SortKey(as_node(column), bool(descending)) for column, descending in order)
        return type(self)(Over(call, (), keys, natural, frame), self.name)

    def _value(self, value: Any) -> Self:
        return type(self)(as_node(value), self.name)

    def _positional(self, function: str) -> Self:
        return type(self)(Call(function, (self.node, RowIndex())), self.name)

    def __repr__(self) -> str:
        return f"Column({self.name!r})"


def default_name(node: Node) -> str:
    """The name of the first column an expression uses."""
    return next((each.name for each in walk(node) if isinstance(each, Ref)), "value")


def as_node(value: Any) -> Node:
    """An expression's node, or a Python value as one."""
    if isinstance(value, Column):
        return value.node
    if isinstance(value, Node):
        return value
    if isinstance(value, Expressive):
        raise DataTypeError(
            "An Object cannot stand inside a col(…) expression.",
            remedy='Write both with col(…), or both with obj["…"].',
        )
    return Literal(value, literal_type(value))


def column_node(value: str | Column) -> Node:
    """Here a string names a column."""
    return Ref(value) if isinstance(value, str) else value.node


def _sort_keys(order_by: str | Column | Iterable[str | Column] | None, descending: bool) -> tuple[SortKey, ...]:
    if order_by is None:
        return ()
    each = [order_by] if isinstance(order_by, str | Column) else list(order_by)
    return tuple(SortKey(column_node(key), descending) for key in each)


def _rows(rows: tuple[int | None, int | None]) -> tuple[str, str]:
    before, after = rows
    start = "UNBOUNDED PRECEDING" if before is None else f"{int(before)} PRECEDING"
    end = "UNBOUNDED FOLLOWING" if after is None else ("CURRENT ROW" if after == 0 else f"{int(after)} FOLLOWING")
    return start, end


def col(name: str) -> Column:
    """The column of this name."""
    return Column(Ref(name))


def lit(value: Any) -> Column:
    """A Python value as an expression."""
    return Column(as_node(value), "literal")


def row_index() -> Column:
    """The position of each row, from 0."""
    return Column(RowIndex(), "index")


def row_number(*, order_by: str | Column | Iterable[str | Column] | None = None, descending: bool = False) -> Column:
    """1, 2, 3, … in order; `.over("k")` counts within each k."""
    return Column(Over(Call("row_number"), (), _sort_keys(order_by, descending), True), "row_number")


def length() -> Column:
    """Number of rows, as an aggregate."""
    return Column(Call("len"), "len")


def if_else(condition: Column, then: Any, otherwise: Any) -> Column:
    """`then` where the condition holds, `otherwise` elsewhere."""
    return condition.if_else(then, otherwise)


def case(*branches: tuple[Column, Any], otherwise: Any = None) -> Column:
    """The value of the first condition that holds: `case((col("x") > 1, "big"), otherwise="small")`."""
    nodes = [as_node(part) for branch in branches for part in branch]
    return Column(Call("case", (*nodes, as_node(otherwise))), "case")


def coalesce(first: Column, *others: Any) -> Column:
    """The first value that is not NULL."""
    return first.coalesce(*others)


def array(*values: Any) -> Column:
    """Several values of a row as one array."""
    return Column(Call("array", tuple(as_node(value) for value in values)), "array")


def name_of(value: Any) -> str:
    """The name under which a column, an expression or a column of an Object comes out."""
    if isinstance(value, str):
        return value
    if isinstance(value, Column):
        return value.name
    if isinstance(value, Expressive):  # a column of an Object
        return next(iter(cast("Any", value).relation.schema))
    raise ConversionError(f"{value!r} stands where a column is needed.", remedy="Give it a name: name=value.")
