"""Column expressions such as `col("x") + 1`, for `select`, `filter`, `agg`, … of any Object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, cast

from aaiclick.data.errors import ConversionError, DataTypeError
from aaiclick.data.expressions.functions import FUNCTIONS, FunctionKind
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    FunctionCall,
    Literal,
    Over,
    Ref,
    RowIndex,
    SortKey,
    walk_nodes,
)
from aaiclick.data.expressions.operators import ExpressionMethods


class Column(ExpressionMethods):
    """An expression over the columns of the Object in which it is used."""

    __slots__ = ("name", "node")

    def __init__(self, node: ExpressionNode, name: str = "") -> None:
        self.node = node
        self.name = name or default_name(node)

    def alias(self, name: str) -> Column:
        """Rename the output column."""
        return Column(self.node, name)

    def count(self) -> Column:
        """Number of values that are not NULL."""
        return self._apply_function("count")

    def unique(self) -> Column:
        """Collect the distinct values into an array, in order of first appearance."""
        return self.collect().list.unique()

    def over(
        self,
        *partition_by: str | Column,
        order_by: str | Column | Iterable[str | Column] | None = None,
        descending: bool = False,
        rows: tuple[int | None, int | None] | None = None,
    ) -> Column:
        """Window function: compute an aggregate for every row, over the rows with equal `partition_by` values.

        With `order_by` the window ends at the current row; `rows=(2, 0)` limits it to two rows before and none after
        (None: no limit).
        """
        call = self.node.call if isinstance(self.node, Over) else self.node
        if not isinstance(call, FunctionCall) or call.kind is FunctionKind.ROW:
            raise DataTypeError(
                "over(…) needs an aggregate or window function.", remedy='For example col("x").sum().over("k").'
            )
        partition = tuple(column_node(column) for column in partition_by)
        earlier = self.node if isinstance(self.node, Over) else None
        keys = _sort_keys(order_by, descending) or (earlier.order if earlier else ())
        frame = _frame_bounds(rows) if rows is not None else (earlier.frame if earlier else None)
        if frame is None and _sort_keys(order_by, descending) and call.kind is FunctionKind.AGGREGATE:
            frame = ("UNBOUNDED PRECEDING", "CURRENT ROW")
        natural = (earlier.natural if earlier else False) or bool(keys) or rows is not None
        return Column(
            Over(call, partition, keys, natural and call.function not in ("rank", "dense_rank"), frame), self.name
        )

    def _apply_function(self, function: str, *args: object, params: tuple[object, ...] = ()) -> Self:
        return type(self)(FunctionCall(function, (self.node, *(as_node(arg) for arg in args)), params), self.name)

    def _apply_window(
        self,
        function: str,
        *args: object,
        params: tuple[object, ...] = (),
        order: tuple[Any, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
    ) -> Self:
        own = () if FUNCTIONS[function].kind is FunctionKind.WINDOW and function == "row_number" else (self.node,)
        call = FunctionCall(function, (*own, *(as_node(arg) for arg in args)), params)
        keys = tuple(SortKey(as_node(column), bool(descending)) for column, descending in order)
        return type(self)(Over(call, (), keys, natural, frame), self.name)

    def _lift_value(self, value: object) -> Self:
        return type(self)(as_node(value), self.name)

    def _apply_positional(self, function: str) -> Self:
        return type(self)(FunctionCall(function, (self.node, RowIndex())), self.name)

    def __repr__(self) -> str:
        return f"Column({self.name!r})"


def default_name(node: ExpressionNode) -> str:
    """Return the name of the first column that an expression uses."""
    return next((descendant.name for descendant in walk_nodes(node) if isinstance(descendant, Ref)), "value")


def as_node(value: Any) -> ExpressionNode:
    """Return the node of an expression, or a literal for a Python value."""
    if isinstance(value, Column):
        return value.node
    if isinstance(value, ExpressionNode):
        return value
    if isinstance(value, ExpressionMethods):
        raise DataTypeError(
            "An Object cannot be used in a col(…) expression.",
            remedy='Write both with col(…), or both with obj["…"].',
        )
    return Literal(value, literal_type(value))


def column_node(value: str | Column) -> ExpressionNode:
    """Return the node of a column given by name or expression."""
    return Ref(value) if isinstance(value, str) else value.node


def _sort_keys(order_by: str | Column | Iterable[str | Column] | None, descending: bool) -> tuple[SortKey, ...]:
    if order_by is None:
        return ()
    columns = [order_by] if isinstance(order_by, str | Column) else list(order_by)
    return tuple(SortKey(column_node(key), descending) for key in columns)


def _frame_bounds(rows: tuple[int | None, int | None]) -> tuple[str, str]:
    before, after = rows
    start = "UNBOUNDED PRECEDING" if before is None else f"{int(before)} PRECEDING"
    end = "UNBOUNDED FOLLOWING" if after is None else ("CURRENT ROW" if after == 0 else f"{int(after)} FOLLOWING")
    return start, end


def col(name: str) -> Column:
    """Reference a column by name."""
    return Column(Ref(name))


def lit(value: object) -> Column:
    """Turn a Python value into an expression."""
    return Column(as_node(value), "literal")


def row_index() -> Column:
    """Position of each row, from 0."""
    return Column(FunctionCall("_position", (RowIndex(),)), "index")


def row_number(*, order_by: str | Column | Iterable[str | Column] | None = None, descending: bool = False) -> Column:
    """Row numbers from 1; `.over("k")` numbers the rows of each k."""
    return Column(Over(FunctionCall("row_number"), (), _sort_keys(order_by, descending), True), "row_number")


def length() -> Column:
    """Number of rows, as an aggregate."""
    return Column(FunctionCall("len"), "len")


def if_else(condition: Column, then: object, otherwise: object) -> Column:
    """Return `then` where the condition holds, `otherwise` elsewhere."""
    return condition.if_else(then, otherwise)


def case(*branches: tuple[Column, object], otherwise: object = None) -> Column:
    """Return the value of the first condition that holds: `case((col("x") > 1, "big"), otherwise="small")`."""
    nodes = [as_node(part) for branch in branches for part in branch]
    return Column(FunctionCall("case", (*nodes, as_node(otherwise))), "case")


def coalesce(first: Column, *values: object) -> Column:
    """Return the first value that is not NULL."""
    return first.coalesce(*values)


def array(*values: object) -> Column:
    """Combine several values of a row into an array."""
    return Column(FunctionCall("array", tuple(as_node(value) for value in values)), "array")


def output_name(value: object) -> str:
    """Return the output name of a column name, an expression, or a column of an Object."""
    if isinstance(value, str):
        return value
    if isinstance(value, Column):
        return value.name
    if isinstance(value, ExpressionMethods):  # a column of an Object
        return next(iter(cast("Any", value).relation.schema))
    raise ConversionError(f"{value!r} was passed where a column is needed.", remedy="Give it a name: name=value.")
