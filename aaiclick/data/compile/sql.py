"""Builders of sqlglot trees and the generator of ClickHouse SQL; no other module writes ClickHouse text.

sqlglot's generator does not escape backslashes in identifiers, but ClickHouse reads them as escapes: the name `a\\`
would escape its closing quote. `QuotingClickHouse` escapes both characters.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp
from sqlglot.dialects.clickhouse import ClickHouse

from aaiclick.data.types import DataType, quote_name, quote_text, storage_type

Expression = exp.Expr


class QuotingClickHouse(ClickHouse):
    """ClickHouse dialect with safe quoting of identifiers."""

    class Generator(ClickHouse.Generator):
        def identifier_sql(self, expression: exp.Identifier) -> str:
            return quote_name(expression.name)


_DIALECT = QuotingClickHouse()


def to_text(tree: Expression, pretty: bool = False) -> str:
    """Generate the SQL text of a tree."""
    return _DIALECT.generate(tree, copy=False, pretty=pretty, comments=False, normalize_functions=False)


def identifier(text: str) -> exp.Identifier:
    return exp.Identifier(this=text, quoted=True)


def column(alias: str, column_name: str) -> exp.Column:
    return exp.Column(this=identifier(column_name), table=identifier(alias))


def table(table_name: str, alias: str | None = None) -> exp.Table:
    tree = exp.Table(this=identifier(table_name))
    if alias is not None:
        tree.set("alias", exp.TableAlias(this=identifier(alias)))
    return tree


def literal_table(structure: Expression, rows: Expression, alias: str) -> exp.Table:
    """Table function that reads rows from a base64 Arrow stream."""
    function = call("format", exp.Var(this="ArrowStream"), structure, call("base64Decode", rows))
    return exp.Table(this=function, alias=exp.TableAlias(this=identifier(alias)))


def call(function: str, *args: Expression) -> exp.Anonymous:
    """Call of a ClickHouse function; the name must come from the registry, never from a user."""
    return exp.Anonymous(this=function, expressions=list(args))


def parametric_call(function: str, params: Iterable[float | int], *args: Expression) -> Expression:
    """Parametric aggregate such as `quantile(0.5)(x)`, with literal parameters."""
    return exp.ParameterizedAgg(this=function, expressions=[number(param) for param in params], params=list(args))


def number(value: float) -> Expression:
    """Numeric literal; raises TypeError for anything but int and float."""
    if isinstance(value, bool) or not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(value)
    literal = exp.Literal(this=repr(abs(value)), is_string=False)
    return exp.Paren(this=exp.Neg(this=literal)) if value < 0 else literal


def string(value: str) -> Expression:
    """String literal for fixed values (units, validated time zones), never for user input."""
    return call("toString", exp.Literal.string(value)) if "\\" in value else exp.Literal.string(value)


def escaped_string(value: str) -> Expression:
    """String literal for a fixed value with backslashes, such as a regular expression."""
    return exp.Var(this=quote_text(value))


def null() -> Expression:
    return exp.Null()


def type_name(dtype: DataType) -> Expression:
    """Type as the second argument of CAST, which is a string."""
    text = str(storage_type(dtype)).replace("\\", "\\\\").replace("'", "\\'")
    return exp.Var(this=f"'{text}'")


def cast(tree: Expression, dtype: DataType) -> Expression:
    return call("CAST", tree, type_name(dtype))


def placeholder(parameter: str, dtype: DataType) -> Expression:
    return exp.Var(this=f"{{{parameter}:{storage_type(dtype)}}}")


_BINARY_OPERATORS: dict[str, type[exp.Binary]] = {
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "/": exp.Div,
    "=": exp.EQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "AND": exp.And,
    "OR": exp.Or,
}


def binary(operator: str, left: Expression, right: Expression) -> Expression:
    return _BINARY_OPERATORS[operator](this=parenthesize(left), expression=parenthesize(right))


def parenthesize(tree: Expression) -> Expression:
    """Add parentheses where the generator does not."""
    return (
        exp.Paren(this=tree)
        if isinstance(tree, exp.Binary | exp.Unary | exp.Window) and not isinstance(tree, exp.Paren)
        else tree
    )


def logical_not(tree: Expression) -> Expression:
    return exp.Not(this=parenthesize(tree))


def conjunction(conditions: Iterable[Expression]) -> Expression | None:
    trees = list(conditions)
    if not trees:
        return None
    tree = parenthesize(trees[0]) if len(trees) > 1 else trees[0]
    for condition in trees[1:]:
        tree = exp.And(this=tree, expression=parenthesize(condition))
    return tree


def with_alias(tree: Expression, output: str) -> Expression:
    return exp.Alias(this=tree, alias=identifier(output))


def window(
    function: Expression,
    partition: Iterable[Expression],
    order: Iterable[Expression],
    frame: tuple[str, str] | None,
    unit: str = "ROWS",
) -> Expression:
    spec: dict[str, object] = {"this": function, "partition_by": list(partition)}
    terms = list(order)
    if terms:
        spec["order"] = exp.Order(expressions=terms)
    if frame is not None:
        spec["spec"] = exp.WindowSpec(kind=unit, **_frame_bound("start", frame[0]), **_frame_bound("end", frame[1]))
    return exp.Window(**spec)


def _frame_bound(side: str, bound: str) -> dict[str, object]:
    if bound == "CURRENT ROW":
        return {side: "CURRENT ROW"}
    amount, direction = bound.split(" ")
    return {side: "UNBOUNDED" if amount == "UNBOUNDED" else exp.Literal.number(int(amount)), f"{side}_side": direction}


def order_term(tree: Expression, descending: bool, nulls_first: bool) -> Expression:
    # ClickHouse sorts NULLs last in both directions, and NaN next to them.
    return exp.Ordered(this=tree, desc=descending or None, nulls_first=nulls_first, explicit_null_ordering=True)
