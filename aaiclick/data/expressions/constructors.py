"""Functions that return expressions: `col("x")`, `lit(1)`, `case(…)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.column import Column, as_node, sort_keys
from aaiclick.data.expressions.functions.durations import SPAN_UNITS
from aaiclick.data.expressions.nodes import FunctionCall, Over, Ref, RowIndex
from aaiclick.data.expressions.selectors import Selector, check_names, check_types


def col(*names: str | Sequence[str]) -> Column:
    """Reference a column by name; with several names, an expression over each of them.

    ```python
    await numbers.filter(col("x") > 1).data()  # {'x': [3, 2]}
    ```
    """
    chosen = check_names(names, "col")
    if not chosen:
        raise DataTypeError("col needs the name of a column.", remedy='For example col("x").')
    return Column(Ref(chosen[0])) if len(chosen) == 1 else Column(Selector(chosen))


def all_columns() -> Column:
    """Reference every column of the Object in which it is used.

    ```python
    await numbers.select(all_columns() + 1).data()  # {'x': [2, 4, 3]}
    ```
    """
    return Column(Selector())


def exclude(*names: str | Sequence[str]) -> Column:
    """Reference every column but these.

    ```python
    await numbers.select("x", y=col("x") * 2).select(exclude("x")).data()  # {'y': [2, 6, 4]}
    ```
    """
    return Column(Selector(excluded=check_names(names, "exclude")))


def of_type(*types: str | type) -> Column:
    """Reference the columns of some types: `int`, `str`, `"numeric"`, `"temporal"`, or a ClickHouse type.

    ```python
    await numbers.select(of_type(int)).count()  # 3
    ```
    """
    if not types:
        raise DataTypeError("of_type needs a type.", remedy='For example of_type("numeric").')
    return Column(Selector(types=check_types(types)))


def lit(value: object) -> Column:
    """Turn a Python value into an expression.

    ```python
    await numbers.select(y=lit("a")).data()  # {'y': ['a', 'a', 'a']}
    ```
    """
    return Column(as_node(value), "literal")


def row_index() -> Column:
    """Position of each row, from 0.

    ```python
    await numbers.select(y=row_index()).data()  # {'y': [0, 1, 2]}
    ```
    """
    return Column(FunctionCall("_position", (RowIndex(),)), "index")


def row_number(
    *, order_by: str | Column | Iterable[str | Column] | None = None, descending: bool | Sequence[bool] = False
) -> Column:
    """Row numbers from 1; `.over("k")` numbers the rows of each k.

    ```python
    await numbers.select(y=row_number(order_by="x")).data()  # {'y': [1, 3, 2]}
    ```
    """
    return Column(Over(FunctionCall("row_number"), (), sort_keys(order_by, descending), True), "row_number")


def length() -> Column:
    """Number of rows, as an aggregate.

    ```python
    await numbers.group_by("x").agg(n=length()).count()  # 3
    ```
    """
    return Column(FunctionCall("len"), "len")


def if_else(condition: Column, then: object, otherwise: object) -> Column:
    """Return `then` where the condition holds, `otherwise` elsewhere.

    ```python
    await numbers.select(y=if_else(col("x") > 1, "big", "small")).data()  # {'y': ['small', 'big', 'big']}
    ```
    """
    if not hasattr(condition, "if_else"):
        raise DataTypeError(f"The condition is {condition!r:.60}.", remedy='Compare a column: col("x") > 1.')
    return condition.if_else(then, otherwise)


def case(*branches: tuple[Column, object], otherwise: object = None) -> Column:
    """Return the value of the first condition that holds: `case((col("x") > 1, "big"), otherwise="small")`.

    ```python
    await numbers.select(y=case((col("x") > 1, "big"), otherwise="small")).count()  # 3
    ```
    """
    for branch in branches:
        if not isinstance(branch, tuple | list) or len(branch) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise DataTypeError(f"A branch is {branch!r:.60}.", remedy='Use pairs: case((col("x") > 1, "big"), …).')
    nodes = [as_node(part) for branch in branches for part in branch]
    return Column(FunctionCall("case", (*nodes, as_node(otherwise))), "case")


def coalesce(first: Column, *values: object) -> Column:
    """Return the first value that is not NULL.

    ```python
    await numbers.select(y=coalesce(col("x"), 0)).data()  # {'y': [1, 3, 2]}
    ```
    """
    if not hasattr(first, "coalesce"):
        raise DataTypeError(f"The first value is {first!r:.60}.", remedy='Use a column: coalesce(col("x"), 0).')
    return first.coalesce(*values)


def array(*values: object) -> Column:
    """Combine several values of a row into an array.

    ```python
    await numbers.select(y=array(col("x"), 0)).data()  # {'y': [[1, 0], [3, 0], [2, 0]]}
    ```
    """
    if not values:
        raise DataTypeError("array needs at least one value.", remedy='For example array(col("x"), col("y")).')
    return Column(FunctionCall("array", tuple(as_node(value) for value in values)), "array")


def duration(**amounts: object) -> Column:
    """Combine integers to a duration: `duration(days=col("d"), hours=2)`.

    ```python
    await numbers.select(y=duration(hours=1)).count()  # 3
    ```
    """
    units = [unit.removesuffix("s") for unit in amounts]
    unknown = next((unit for unit in units if unit not in SPAN_UNITS), None)
    if unknown is not None or not units:
        raise DataTypeError(
            f"A duration has no unit {unknown!r}.", remedy=f"Use {', '.join(f'{unit}s' for unit in SPAN_UNITS)}."
        )
    return Column(FunctionCall("duration", tuple(map(as_node, amounts.values())), tuple(units)), "duration")
