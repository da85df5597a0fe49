"""Column expressions such as `col("x") + 1`, for `select`, `filter`, `agg`, … of any Object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.errors import ConversionError, DataTypeError, check_integer
from aaiclick.data.expressions.functions import FUNCTIONS, FunctionKind
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    FunctionCall,
    ListLambda,
    Literal,
    Membership,
    Over,
    Ref,
    RowIndex,
    Scalar,
    Schema,
    SortKey,
    rewrite_node,
    walk_nodes,
)
from aaiclick.data.expressions.operators import ExpressionMethods
from aaiclick.data.expressions.python_source import format_expression
from aaiclick.data.expressions.selectors import (
    Selector,
    find_selector,
    flatten_lists,
    replace_selector,
)

if TYPE_CHECKING:
    from aaiclick.data.compile.relation_nodes import Relation


MAX_RANGE = 2**31 - 1
ORDERED_FUNCTIONS = {"first": "_first_in_order", "last": "_last_in_order", "collect": "_collect_in_order"}
RANGE_UNITS = (1, 1_000, 1_000_000)
"""ClickHouse limits ranges to 31 bits: wider ones are measured in milliseconds or seconds."""


@check_methods
class Column(ExpressionMethods):
    """An expression over the columns of the Object in which it is used.

    ```python
    await numbers.select(y=col("x") * 2).data()  # {'y': [2, 6, 4]}
    ```
    """

    __slots__ = ("_affixes", "_base_name", "node")

    def __init__(self, node: ExpressionNode, name: str = "", affixes: tuple[str, str] = ("", "")) -> None:
        self.node = node
        self._base_name = name or default_name(node)
        self._affixes = affixes

    @property
    def name(self) -> str:
        """Name of the output column."""
        return self._affixes[0] + self._base_name + self._affixes[1]

    def alias(self, name: str) -> Column:
        """Rename the output column."""
        return Column(self.node, name)

    def count(self) -> Column:
        """Number of values that are not NULL."""
        return self._apply_function("count")

    def unique(self) -> Column:
        """Collect the distinct values into an array, in order of first appearance."""
        return self.collect().list.unique()

    def filter(self, *conditions: Column) -> Column:
        """The values of the rows where all conditions hold, for an aggregate: `col("x").filter(col("y") > 0).sum()`."""
        if not conditions:
            raise DataTypeError("filter needs a condition.", remedy='For example col("x").filter(col("y") > 0).sum().')
        nodes = [as_node(condition) for condition in flatten_lists(conditions)]
        condition = nodes[0] if len(nodes) == 1 else FunctionCall("and", (nodes[0], nodes[1]))
        for node in nodes[2:]:
            condition = FunctionCall("and", (condition, node))
        return self._derive(FunctionCall("_filtered", (self.node, condition)))

    def prefix(self, text: str) -> Column:
        """Put a text before the name of the output column, or of each of several."""
        return Column(self.node, self._base_name, (text, self._affixes[1]))

    def suffix(self, text: str) -> Column:
        """Put a text after the name of the output column, or of each of several."""
        return Column(self.node, self._base_name, (self._affixes[0], text))

    def over(
        self,
        *partition_by: str | Column | Sequence[str | Column],
        order_by: str | Column | Iterable[str | Column] | None = None,
        descending: bool | Sequence[bool] = False,
        rows: tuple[int | None, int | None] | None = None,
    ) -> Column:
        """Window function: compute an aggregate for every row, over the rows with equal `partition_by` values.

        With `order_by` the window ends at the current row; `rows=(2, 0)` limits it to two rows before and none after
        (None: no limit).
        """
        partition = tuple(column_node(column) for column in flatten_lists(partition_by))
        keys = sort_keys(order_by, descending)
        frame = _frame_bounds(rows) if rows is not None else None

        def add_window(node: ExpressionNode) -> ExpressionNode | None:
            is_window = isinstance(node, Over)
            if not is_window and not (isinstance(node, FunctionCall) and node.kind is not FunctionKind.ROW):
                return None
            inner = node.with_children(tuple(rewrite_node(child, add_window) for child in node.children))
            return _partition_window(inner, partition, keys, frame)

        node = rewrite_node(self.node, add_window)
        if node is self.node:
            raise DataTypeError(
                "over(…) needs an aggregate or window function.", remedy='For example col("x").sum().over("k").'
            )
        return self._derive(node)

    def _apply_function(self, function: str, *args: object, params: tuple[object, ...] = ()) -> Self:
        return self._derive(FunctionCall(function, (self.node, *(as_node(arg) for arg in args)), params))

    def _derive(self, node: ExpressionNode) -> Self:
        return type(self)(node, self._base_name, self._affixes)

    def isin(self, values: Iterable[object]) -> Self:
        """Whether it is one of these values, or one of the values of an Object with one column."""
        relation = relation_of(values)
        return super().isin(values) if relation is None else self._derive(Membership(self.node, relation))

    def _apply_lambda(self, function: str, body: ExpressionNode, label: str) -> Self:
        node = ListLambda(function, self.node, body, label)
        return self._derive(node.with_children(node.children))

    def _apply_range_window(self, function: str, by: object, width: int, params: tuple[object, ...]) -> Self:
        column = column_node(by)
        unit = next((unit for unit in RANGE_UNITS if width // unit <= MAX_RANGE), 0)
        if not unit or width % unit:
            raise DataTypeError(f"A window of {width} is too wide, or too precise for its width.", remedy="Round it.")
        key = SortKey(FunctionCall("_range_key", (column,), (unit,)))
        missing = FunctionCall("is_null", (column,))
        frame = (f"{width // unit - 1} PRECEDING", "CURRENT ROW")
        over = Over(FunctionCall(function, (self.node,), params), (missing,), (key,), False, frame, unit="RANGE")
        return self._derive(FunctionCall("_null_where", (over, missing)))

    def _apply_window(
        self,
        function: str,
        *args: object,
        params: tuple[object, ...] = (),
        order: tuple[Any, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
        reverse: bool = False,
    ) -> Self:
        own = () if FUNCTIONS[function].kind is FunctionKind.WINDOW and function == "row_number" else (self.node,)
        call = FunctionCall(function, (*own, *(as_node(arg) for arg in args)), params)
        keys = tuple(SortKey(as_node(column), bool(descending)) for column, descending in order)
        return self._derive(Over(call, (), keys, natural, frame, reverse))

    def _lift_value(self, value: object) -> Self:
        return self._derive(as_node(value))

    def _apply_positional(self, function: str) -> Self:
        node, condition = self.node, ()
        if isinstance(node, FunctionCall) and node.function == "_filtered" and function not in ("arg_min", "arg_max"):
            node, *condition = node.args
        return self._derive(FunctionCall(function, (node, RowIndex(), *condition)))

    def _with_selected(self, name: str) -> Column:
        return Column(replace_selector(self.node, name), self._base_name or name, self._affixes)

    def __repr__(self) -> str:
        """Return the expression as it is written."""
        text = format_expression(self.node)
        affixes = "".join(
            f".{method}({text!r})" for method, text in zip(("prefix", "suffix"), self._affixes, strict=True) if text
        )
        is_renamed = self._base_name not in (default_name(self.node), "literal", "index", "len", "row_number", "value")
        return text + (f".alias({self._base_name!r})" if is_renamed else "") + affixes


def default_name(node: ExpressionNode) -> str:
    """Return the name of the first column that an expression uses; "" if a selector will provide it."""
    for descendant in walk_nodes(node):
        if isinstance(descendant, Ref):
            return descendant.name
        if isinstance(descendant, Selector):
            return ""
    return "value"


def expand_columns(column: Column, schema: Schema) -> list[Column]:
    """Return one expression per selected column, or the expression itself if it has no selector."""
    selector = find_selector(column.node)
    if selector is None:
        return [column]
    return [column._with_selected(name) for name in selector.choose_columns(schema)]  # pyright: ignore[reportPrivateUsage]


def relation_of(value: object) -> Relation | None:
    """Return the relation of an Object or its synchronous wrapper; None for any other value."""
    value = getattr(value, "inner", value)
    if isinstance(value, Column) or not isinstance(value, ExpressionMethods):
        return None
    relation: Relation = cast("Any", value).relation
    if len(relation.schema) != 1:
        raise DataTypeError(
            f"A table of columns {list(relation.schema)} was passed where one column is needed.",
            remedy='Select one: obj["x"].',
        )
    return relation


def as_node(value: Any) -> ExpressionNode:
    """Return the node of an expression or of an Object with a single value, or a literal for a Python value."""
    if isinstance(value, Column):
        return value.node
    if isinstance(value, ExpressionNode):
        return value
    relation = relation_of(value)
    if relation is None:
        return Literal(value, literal_type(value))
    if getattr(value, "inner", value).shape != "scalar":
        raise DataTypeError(
            "A column of an Object cannot be used in a col(…) expression.",
            remedy='Write both with col(…), or both with obj["…"]; a single value such as obj["x"].mean() can be used.',
        )
    return Scalar(relation)


def column_node(value: object) -> ExpressionNode:
    """Return the node of a column given by name or expression."""
    if isinstance(value, str):
        return Ref(value)
    if isinstance(value, Column):
        return value.node
    raise DataTypeError(
        f"{value!r:.60} was passed where a column is needed.", remedy='Use a name, or an expression: col("x").'
    )


def sort_keys(order_by: object, descending: bool | Sequence[bool]) -> tuple[SortKey, ...]:
    if order_by is None:
        return ()
    columns = flatten_lists([order_by])
    flags = sort_directions(descending, len(columns))
    return tuple(SortKey(column_node(key), flag) for key, flag in zip(columns, flags, strict=True))


def sort_directions(descending: object, count: int) -> list[bool]:
    """Return one direction per sort key."""
    if isinstance(descending, bool):
        return [descending] * count
    if not isinstance(descending, list | tuple):
        raise DataTypeError(f"descending= is {descending!r:.60}.", remedy="Use True, False, or a list of them.")
    flags = [bool(flag) for flag in cast("list[object]", descending)]
    if len(flags) != count:
        raise DataTypeError(
            f"There are {count} sort keys and {len(flags)} values of descending.", remedy="Pass one for each key."
        )
    return flags


def _partition_window(
    node: ExpressionNode,
    partition: tuple[ExpressionNode, ...],
    keys: tuple[SortKey, ...],
    frame: tuple[str, str] | None,
) -> Over:
    """Return a window with a partition, and with another order and frame if there are any."""
    window = node if isinstance(node, Over) else Over(cast("FunctionCall", node))
    call = window.call
    if window.unit == "RANGE":
        return replace(window, partition=(*window.partition, *partition))
    if keys and call.function in ORDERED_FUNCTIONS:
        value, _, *condition = call.args  # the order of the window, not the position of the row
        call = FunctionCall(ORDERED_FUNCTIONS[call.function], (value, *condition), call.params)
        window = replace(window, call=call)
    bounds = frame or window.frame
    if bounds is None and keys and call.kind is FunctionKind.AGGREGATE:
        bounds = ("UNBOUNDED PRECEDING", "CURRENT ROW")
    natural = (window.natural or bool(keys) or frame is not None) and call.function not in ("rank", "dense_rank")
    return replace(window, partition=partition, order=keys or window.order, natural=natural, frame=bounds)


def _frame_bounds(rows: tuple[int | None, int | None]) -> tuple[str, str]:
    if not isinstance(rows, tuple | list) or len(rows) != 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(
            f"rows= is {rows!r:.60}.", remedy="Use a pair: rows=(2, 0) is two rows before and none after."
        )
    before, after = (None if bound is None else check_integer(bound, "A bound of rows=") for bound in rows)
    if any(bound is not None and not 0 <= bound <= MAX_RANGE for bound in (before, after)):
        raise DataTypeError(
            f"The bounds of rows={tuple(rows)} must lie between 0 and {MAX_RANGE:,}.", remedy="None is no limit."
        )
    start = "UNBOUNDED PRECEDING" if before is None else f"{before} PRECEDING"
    end = "UNBOUNDED FOLLOWING" if after is None else ("CURRENT ROW" if after == 0 else f"{after} FOLLOWING")
    return start, end


def output_name(value: object) -> str:
    """Return the output name of a column name, an expression, or a column of an Object."""
    if isinstance(value, str):
        return value
    if isinstance(value, Column):
        return value.name
    if isinstance(value, ExpressionMethods):  # a column of an Object
        return next(iter(cast("Any", value).relation.schema))
    if isinstance(value, dict):
        remedy = 'Write its items as arguments: y=col("x").sum().'
    elif callable(value):
        remedy = 'Use an expression, col("x") > 1, and call its methods: col("x").sum().'
    elif type(value).__module__.partition(".")[0] in ("polars", "pandas"):
        remedy = "Use col(…) of aaiclick.data; create an Object from data."
    else:
        remedy = "Give it a name: name=value."
    raise ConversionError(f"{value!r:.60} was passed where a column is needed.", remedy=remedy)
