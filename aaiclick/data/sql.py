"""The only place where ClickHouse text is made: sqlglot trees in, text out.

sqlglot's own ClickHouse generator leaves backslashes in identifiers alone, and ClickHouse reads them as escapes: a
column
named `a\\` would swallow its closing quote. `Text` quotes every identifier with both characters escaped.
"""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false, reportPrivateImportUsage=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlglot import exp
from sqlglot.dialects.clickhouse import ClickHouse

from aaiclick.data.types import DataType, quote_name

Expression = exp.Expr


class Text(ClickHouse):
    """ClickHouse, with identifiers quoted so that no name can end its own quotes."""

    class Generator(ClickHouse.Generator):
        def identifier_sql(self, expression: exp.Identifier) -> str:
            return quote_name(expression.name)


_DIALECT = Text()


def to_text(tree: Expression, pretty: bool = False) -> str:
    """The SQL text of a tree."""
    return _DIALECT.generate(tree, copy=False, pretty=pretty, comments=False, normalize_functions=False)


def name(text: str) -> exp.Identifier:
    return exp.Identifier(this=text, quoted=True)


def column(alias: str, column_name: str) -> exp.Column:
    return exp.Column(this=name(column_name), table=name(alias))


def table(table_name: str, alias: str | None = None) -> exp.Table:
    tree = exp.Table(this=name(table_name))
    if alias is not None:
        tree.set("alias", exp.TableAlias(this=name(alias)))
    return tree


def call(function: str, *args: Expression) -> exp.Anonymous:
    """A function by its ClickHouse name, which comes from our tables and never from a user."""
    return exp.Anonymous(this=function, expressions=list(args))


def parametric(function: str, params: Iterable[float | int], *args: Expression) -> Expression:
    """`quantile(0.5)(x)`: the parameters of such a function must be literals."""
    return exp.ParameterizedAgg(this=function, expressions=[number(each) for each in params], params=list(args))


def number(value: float) -> Expression:
    """A number that our code made (never a string): validated by its type."""
    if isinstance(value, bool) or not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(value)
    literal = exp.Literal(this=repr(abs(value)), is_string=False)
    return exp.Paren(this=exp.Neg(this=literal)) if value < 0 else literal


def string(value: str) -> Expression:
    """A string from our own closed lists (units, zone names we checked), never from a user."""
    return call("toString", exp.Literal.string(value)) if "\\" in value else exp.Literal.string(value)


def null() -> Expression:
    return exp.Null()


def type_name(kind: DataType) -> Expression:
    """The type as the second argument of CAST, which takes it as a string."""
    text = str(kind).replace("\\", "\\\\").replace("'", "\\'")
    return exp.Var(this=f"'{text}'")


def cast(tree: Expression, kind: DataType) -> Expression:
    return call("CAST", tree, type_name(kind))


def placeholder(parameter: str, kind: DataType) -> Expression:
    return exp.Var(this=f"{{{parameter}:{kind}}}")


_BINARY: dict[str, type[exp.Binary]] = {
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
    return _BINARY[operator](this=grouped(left), expression=grouped(right))


def grouped(tree: Expression) -> Expression:
    """Parentheses where the printer would not put them by itself."""
    return (
        exp.Paren(this=tree)
        if isinstance(tree, exp.Binary | exp.Unary | exp.Window) and not isinstance(tree, exp.Paren)
        else tree
    )


def negated(tree: Expression) -> Expression:
    return exp.Not(this=grouped(tree))


def all_of(conditions: Iterable[Expression]) -> Expression | None:
    trees = list(conditions)
    if not trees:
        return None
    tree = grouped(trees[0]) if len(trees) > 1 else trees[0]
    for each in trees[1:]:
        tree = exp.And(this=tree, expression=grouped(each))
    return tree


def aliased(tree: Expression, output: str) -> Expression:
    return exp.Alias(this=tree, alias=name(output))


def window(
    function: Expression,
    partition: Iterable[Expression],
    order: Iterable[Expression],
    frame: tuple[str, str] | None,
) -> Expression:
    spec: dict[str, Any] = {"this": function, "partition_by": list(partition)}
    terms = list(order)
    if terms:
        spec["order"] = exp.Order(expressions=terms)
    if frame is not None:
        spec["spec"] = exp.WindowSpec(kind="ROWS", **_bound("start", frame[0]), **_bound("end", frame[1]))
    return exp.Window(**spec)


def _bound(side: str, words: str) -> dict[str, Any]:
    if words == "CURRENT ROW":
        return {side: "CURRENT ROW"}
    amount, direction = words.split(" ")
    return {side: "UNBOUNDED" if amount == "UNBOUNDED" else exp.Literal.number(int(amount)), f"{side}_side": direction}


def ordered(tree: Expression, descending: bool, nulls_first: bool) -> Expression:
    # ClickHouse sorts NULLs last either way; NaN goes with them.
    return exp.Ordered(this=tree, desc=descending or None, nulls_first=nulls_first, explicit_null_ordering=True)
