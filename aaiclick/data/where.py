"""The condition of a View, as text: read into our own expression nodes, never passed on.

The text is parsed, every part of it must be on the lists below, and what runs is made from the nodes. So `file(…)`,
subqueries,
settings and comments have no way through: there is no node for them. Operators mean what they mean in Python
expressions.
"""

# sqlglot's trees are loosely typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false, reportPrivateImportUsage=false, reportArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from aaiclick.data.errors import DataError, WhereError, column_not_found, nearest
from aaiclick.data.literals import literal_type
from aaiclick.data.nodes import Call, Literal, Node, Ref, bind
from aaiclick.data.types import DataType, quote_name, quote_text

BINARY: dict[type[exp.Expr], str] = {
    exp.And: "and", exp.Or: "or", exp.Xor: "xor", exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT:
    "gt",
    exp.GTE: "ge", exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul", exp.Div: "truediv", exp.Mod: "mod", exp.Like: "like",
    exp.ILike: "ilike",
}  # fmt: skip
SYMBOLS = {
    "and": "AND", "or": "OR", "eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "add": "+", "sub":
    "-",
    "mul": "*", "truediv": "/", "mod": "%", "like": "LIKE", "ilike": "ILIKE",
}  # fmt: skip
FUNCTIONS: dict[str, str] = {
    "abs": "abs", "floor": "floor", "ceil": "ceil", "round": "round", "sqrt": "sqrt", "exp": "exp", "log": "log",
    "ln": "log",
    "lower": "lower", "upper": "upper", "lowerutf8": "lower", "upperutf8": "upper", "length": "byte_length",
    "lengthutf8": "length", "startswith": "starts_with", "endswith": "ends_with", "match": "matches", "concat":
    "concat",
    "xor": "xor", "coalesce": "coalesce", "ifnull": "coalesce", "isnull": "is_null", "isnotnull": "is_not_null",
    "isnan": "is_nan", "isfinite": "is_finite", "if": "if_else", "has": "list_contains", "toyear": "year", "tomonth":
    "month",
    "todayofmonth": "day", "todayofweek": "weekday", "tohour": "hour", "tominute": "minute", "tosecond": "second",
    "todate32": "date", "todate": "date", "greatest": "greatest", "least": "least", "nullif": "null_if", "floordiv":
    "floordiv",
    "siphash64": "hash",
}  # fmt: skip
_WRITTEN = {
    "byte_length": "length",
    "length": "lengthUTF8",
    "lower": "lowerUTF8",
    "upper": "upperUTF8",
    "list_contains": "has",
}
_NAMES = {ours: theirs for theirs, ours in reversed(FUNCTIONS.items())}
_CLASSES: dict[type[exp.Expr], str] = {
    exp.Lower: "lower", exp.Upper: "upper", exp.Length: "length", exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil",
    exp.Round: "round", exp.Sqrt: "sqrt", exp.Exp: "exp", exp.Ln: "log", exp.Log: "log", exp.StartsWith: "startsWith",
    exp.EndsWith: "endsWith", exp.RegexpLike: "match", exp.Concat: "concat", exp.Coalesce: "coalesce", exp.If: "if",
    exp.IsNan: "isNaN", exp.Greatest: "greatest", exp.Least: "least", exp.Nullif: "nullIf", exp.ArrayContains: "has",
    exp.Year: "toYear", exp.Month: "toMonth", exp.Day: "toDayOfMonth", exp.Hour: "toHour", exp.Minute: "toMinute",
    exp.Second: "toSecond",
}  # fmt: skip
MAX_LENGTH = 100_000
MAX_DEPTH = 200
MAX_TOKENS = 30_000
MAX_BRACKETS = 40
MAX_BETWEEN = 4
"""BETWEENs inside the first operand of BETWEEN, which is written twice."""

_OPERATORS = {
    TokenType.AND, TokenType.OR, TokenType.XOR, TokenType.NOT, TokenType.IN, TokenType.BETWEEN, TokenType.LIKE,
    TokenType.ILIKE, TokenType.IS, TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.END,
    TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.PLUS,
    TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DOT, TokenType.COMMA, TokenType.R_PAREN,
}  # fmt: skip
_GRAMMAR = "Use columns, values, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, arithmetic and plain functions."


def parse_where(text: str, schema: Mapping[str, DataType]) -> Node:
    """One condition over known columns; raises WhereError (or ColumnNotFoundError) saying what is not allowed."""
    tree = _parsed(text)
    try:
        node = bind(_node(tree, schema, 0), schema)
    except RecursionError:
        raise WhereError("The condition is nested too deeply.") from None
    if not node.type.is_bool:
        raise WhereError(f"The condition gives {node.type}, not true or false.", remedy="Compare it with something.")
    return node


def _parsed(text: str) -> exp.Expr:
    if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WhereError("The condition is empty.", remedy="Write one, for example value > 100.")
    if len(text) > MAX_LENGTH or "\x00" in text:
        raise WhereError("The condition is too long, or holds a NUL character.")
    try:
        tokens = sqlglot.tokenize(text, read="clickhouse")
        if any(token.comments for token in tokens) or _hides_comment(text, len(tokens)):
            raise WhereError("The condition holds a comment.", remedy="Leave it out.")
        if any(token.token_type is TokenType.SEMICOLON for token in tokens):
            raise WhereError(
                "The condition is more than one statement.", remedy="Write one condition; join several with AND."
            )
        _check_tokens(tokens)
        trees = sqlglot.parse(text, read="clickhouse")
    except (SqlglotError, RecursionError) as error:
        raise WhereError(
            f"The condition {text[:80]!r} cannot be read: {str(error).splitlines()[0][:200]}",
            remedy="Write one condition, for example value > 100 AND name = 'x'.",
        ) from None
    if len(trees) != 1 or trees[0] is None:
        raise WhereError(
            "The condition is more than one statement.", remedy="Write one condition; join several with AND."
        )
    return trees[0]


def _check_tokens(tokens: list[Token]) -> None:
    """Refuse what no condition has before the parser reads it: its time doubles with each level of some constructs.

    After a name or a value comes an operator; a bracket after a name makes it a function.
    """
    if len(tokens) > MAX_TOKENS:
        raise WhereError(f"The condition has more than {MAX_TOKENS:,} words.", remedy="Join with a table of values.")
    depth = 0
    before: Token | None = None
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            depth += 1
            if before is not None and before.token_type not in _OPERATORS | {TokenType.L_PAREN}:
                _check_function(before.text)
        elif kind is TokenType.R_PAREN:
            depth -= 1
        elif kind not in _OPERATORS and before is not None and _ends_operand(before):
            raise WhereError(f"A condition cannot hold {before.text:.40} before {token.text:.40}.", remedy=_GRAMMAR)
        if depth > MAX_BRACKETS:
            raise WhereError("The condition is nested too deeply.")
        before = token


def _ends_operand(token: Token) -> bool:
    return token.token_type is TokenType.R_PAREN or token.token_type not in _OPERATORS | {TokenType.L_PAREN}


def _check_function(name: str) -> None:
    if name.lower() not in FUNCTIONS:
        raise WhereError(
            f"A condition cannot call {name:.40}.", remedy=nearest(name.lower(), FUNCTIONS) or "Use plain functions."
        )


def _hides_comment(text: str, tokens: int) -> bool:
    """A comment with nothing before it hangs on no token."""
    return tokens == 0 or text.lstrip().startswith(("--", "/*", "#"))


def _node(tree: exp.Expr, schema: Mapping[str, DataType], depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise WhereError("The condition is nested too deeply.")

    def inner(part: Any) -> Node:
        if not isinstance(part, exp.Expr):
            raise _refused(tree)
        return _node(part, schema, depth + 1)

    kind = type(tree)
    if kind is exp.Paren:
        return inner(tree.this)
    if kind in BINARY:
        _only(tree, "this", "expression")
        left, right = inner(tree.this), inner(tree.args.get("expression"))
        if kind is exp.Mod and isinstance(right, Literal) and type(right.value) is int and 0 < right.value < 1 << 31:
            return Call("mod_by", (left,), (right.value,))
        return _matched(BINARY[kind], left, right)
    handler = _HANDLERS.get(kind)
    if handler is not None:
        return handler(tree, inner, schema)
    if kind in _CLASSES or kind is exp.Anonymous:
        return _function(tree, inner)
    raise _refused(tree)


def _only(tree: exp.Expr, *allowed: str) -> None:
    extra = [key for key, value in tree.args.items() if value not in (None, False, []) and key not in allowed]
    if extra:
        raise _refused(tree)


def _refused(tree: exp.Expr) -> WhereError:
    try:
        shown = tree.sql(dialect="clickhouse")[:80]
    except (SqlglotError, RecursionError, ValueError):
        shown = type(tree).__name__
    return WhereError(
        f"A condition cannot hold {type(tree).__name__.lower()} ({shown!r}).",
        remedy=_GRAMMAR,
    )


Inner = Callable[[Any], Node]


def _column(tree: exp.Expr, inner: Inner, schema: Mapping[str, DataType]) -> Node:  # noqa: ARG001
    _only(tree, "this")
    if not isinstance(tree.this, exp.Identifier):
        raise _refused(tree)
    name = tree.this.name
    if name not in schema:
        raise column_not_found(name, schema)
    return Ref(name, schema[name])


def _literal(tree: exp.Expr, inner: Inner, schema: Mapping[str, DataType]) -> Node:  # noqa: ARG001
    text = tree.this
    if tree.args.get("is_string"):
        return _value(text)
    try:
        return _value(int(text) if text.isdigit() else float(text))
    except ValueError:
        raise _refused(tree) from None


def _value(value: Any) -> Literal:
    return Literal(value, literal_type(value))


def _negative(tree: exp.Expr, inner: Inner, schema: Mapping[str, DataType]) -> Node:  # noqa: ARG001
    node = inner(tree.this)
    if isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return _value(-node.value)
    return Call("neg", (node,))


def _between(tree: exp.Expr, inner: Inner, schema: Mapping[str, DataType]) -> Node:  # noqa: ARG001
    _only(tree, "this", "low", "high")
    if len(list(tree.this.find_all(exp.Between))) > MAX_BETWEEN:
        raise WhereError("The condition has too many BETWEENs in one another.", remedy="Use >= and <=.")
    value = inner(tree.this)
    low = _matched("ge", value, inner(tree.args["low"]))
    return Call("and", (low, _matched("le", value, inner(tree.args["high"]))))


def _in(tree: exp.Expr, inner: Inner, schema: Mapping[str, DataType]) -> Node:  # noqa: ARG001
    _only(tree, "this", "expressions")
    value = inner(tree.this)
    parts = [inner(each) for each in tree.expressions]
    if not parts or not all(isinstance(each, Literal) for each in parts):
        raise WhereError("IN takes a list of plain values.", remedy="For example x IN (1, 2, 3).")
    typed = [_fitted(each, value.type) for each in parts]
    values = [each.value for each in typed if isinstance(each, Literal)]
    return Call("isin", (value, Literal(values, literal_type(values))))


def _is(tree: exp.Expr, inner: Inner, schema: Mapping[str, DataType]) -> Node:  # noqa: ARG001
    if not isinstance(tree.args.get("expression"), exp.Null):
        raise _refused(tree)
    return Call("is_null", (inner(tree.this),))


def _function(tree: exp.Expr, inner: Inner) -> Node:
    if isinstance(tree, exp.Anonymous):
        name, parts = str(tree.this), list(tree.expressions)
        if not isinstance(tree.this, str):
            raise _refused(tree)
    else:
        name = _CLASSES[type(tree)]
        given = [tree.args.get(key) for key in tree.arg_types]
        parts = [
            each
            for part in given
            for each in (part if isinstance(part, list) else [part])
            if isinstance(each, exp.Expr)
        ]
        plain = [part for part in given if part not in (None, False, []) and not isinstance(part, list | exp.Expr)]
        if plain and not all(isinstance(part, bool) for part in plain):
            raise _refused(tree)
    ours = FUNCTIONS.get(name.lower())
    if ours is None:
        raise WhereError(
            f"A condition cannot call {name}.", remedy=nearest(name.lower(), FUNCTIONS) or "Use plain functions."
        )
    if ours == "round" and len(parts) > 1:
        raise WhereError("round takes one argument here.")
    return Call(ours, tuple(inner(part) for part in parts))


def _case(tree: exp.Expr, inner: Inner, schema: Mapping[str, DataType]) -> Node:  # noqa: ARG001
    _only(tree, "ifs", "default")
    parts = [inner(part) for branch in tree.args["ifs"] for part in (branch.this, branch.args["true"])]
    default = tree.args.get("default")
    return Call("case", (*parts, _value(None) if default is None else inner(default)))


_HANDLERS: dict[type[exp.Expr], Callable[[exp.Expr, Inner, Mapping[str, DataType]], Node]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Neg: _negative,
    exp.Not: lambda tree, inner, _: Call("not", (inner(tree.this),)),
    exp.Null: lambda *_: _value(None),
    exp.Boolean: lambda tree, *_: _value(bool(tree.this)),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Case: _case,
}


def _matched(function: str, left: Node, right: Node) -> Node:
    """A date, UUID or Decimal is written as a string: read it as what it is compared with."""
    with contextlib.suppress(DataError):
        left, right = _fitted(left, right.type), _fitted(right, left.type)
    return Call(function, (left, right))


def _fitted(node: Node, kind: DataType) -> Node:
    if not isinstance(node, Literal) or not isinstance(node.value, str) or kind.is_string:
        return node
    readers: dict[bool, Callable[[str], Any]] = {
        kind.is_date: date.fromisoformat,
        kind.is_temporal and not kind.is_date: datetime.fromisoformat,
        kind.name == "UUID": UUID,
        kind.is_decimal: Decimal,
    }
    reader = readers.get(True)
    if reader is None:
        return node
    try:
        return _value(reader(node.value))
    except (ValueError, InvalidOperation):
        raise WhereError(f"{node.value!r} is not a {kind}.", remedy="Write dates as '2024-01-31'.") from None


# --- writing -----------------------------------------------------------------------------------------------------


def where_text(node: Node) -> str:
    """The condition as text that `parse_where` reads back as the same nodes."""
    if isinstance(node, Ref):
        return quote_name(node.name)
    if isinstance(node, Literal):
        return _written(node.value)
    if isinstance(node, Call):
        return _written_call(node)
    raise _unwritable()


def _written(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and abs(value) < float("inf")):
        return repr(value)
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, date | datetime | UUID | Decimal):
        return quote_text(str(value))
    raise _unwritable()


def _written_call(node: Call) -> str:
    parts = node.args
    if node.function in ("mod_by", "floordiv_by"):
        value, divisor = where_text(parts[0]), node.params[0]
        return f"({value} % {divisor})" if node.function == "mod_by" else f"floorDiv({value}, {divisor})"
    if node.params:
        raise _unwritable()
    if node.function in SYMBOLS and len(parts) == 2:
        return f"({where_text(parts[0])} {SYMBOLS[node.function]} {where_text(parts[1])})"
    if node.function == "not":
        return f"(NOT {where_text(parts[0])})"
    if node.function == "neg":
        return f"(-{where_text(parts[0])})"
    if node.function == "is_null":
        return f"({where_text(parts[0])} IS NULL)"
    if node.function == "isin" and isinstance(parts[1], Literal) and parts[1].value:
        return f"({where_text(parts[0])} IN ({', '.join(_written(each) for each in parts[1].value)}))"
    if node.function == "case":
        branches = " ".join(
            f"WHEN {where_text(c)} THEN {where_text(v)}" for c, v in zip(parts[:-1:2], parts[1:-1:2], strict=True)
        )
        return f"CASE {branches} ELSE {where_text(parts[-1])} END"
    name = _WRITTEN.get(node.function) or _NAMES.get(node.function)
    if name is None:
        raise _unwritable()
    return f"{name}({', '.join(where_text(part) for part in parts)})"


def _unwritable() -> WhereError:
    return WhereError(
        "This condition cannot be written as a View's where.", remedy="Use filter(…), which has no such limit."
    )
