"""Parser and formatter of View conditions.

A condition is parsed to expression nodes by an allowlist, and the SQL that runs is generated from the nodes. `file(…)`,
subqueries, settings and comments have no node and are rejected. Operators have the semantics of Python expressions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, cast
from uuid import UUID

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # pyright: ignore[reportPrivateImportUsage]

from aaiclick.data.errors import DataError, WhereError, column_not_found, suggest_name
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import ExpressionNode, FunctionCall, Literal, Ref, bind_columns
from aaiclick.data.types import DataType, quote_name, quote_text, zone_of

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
_PREFERRED_NAMES = {
    "byte_length": "length",
    "length": "lengthUTF8",
    "lower": "lowerUTF8",
    "upper": "upperUTF8",
    "list_contains": "has",
}
_SQL_NAMES = {function: sql_name for sql_name, function in reversed(FUNCTIONS.items())}
_FUNCTION_CLASSES: dict[type[exp.Expr], str] = {
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
"""Nested BETWEENs in the first operand of BETWEEN, which is duplicated when compiled."""

_OPERATORS = {
    TokenType.AND, TokenType.OR, TokenType.XOR, TokenType.NOT, TokenType.IN, TokenType.BETWEEN, TokenType.LIKE,
    TokenType.ILIKE, TokenType.IS, TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.END,
    TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.PLUS,
    TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DOT, TokenType.COMMA, TokenType.R_PAREN,
}  # fmt: skip
_ALLOWED_SYNTAX = "Use columns, values, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, arithmetic and plain functions."


def parse_where(text: str, schema: Mapping[str, DataType]) -> ExpressionNode:
    """Parse a condition; raise WhereError or ColumnNotFoundError if it is not allowed."""
    tree = _parse_text(text)
    try:
        node = bind_columns(_convert_tree(tree, schema, 0), schema)
    except RecursionError:
        raise WhereError("The condition is nested too deeply.") from None
    if not node.type.is_bool:
        raise WhereError(f"The condition has type {node.type}, not Bool.", remedy="Compare it with a value.")
    return node


def _parse_text(text: str) -> exp.Expr:
    if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WhereError("The condition is empty.", remedy="Write one, for example value > 100.")
    if len(text) > MAX_LENGTH or "\x00" in text:
        raise WhereError("The condition is too long or contains a NUL character.")
    try:
        tokens = sqlglot.tokenize(text, read="clickhouse")
        if any(token.comments for token in tokens) or _hides_comment(text, len(tokens)):
            raise WhereError("The condition contains a comment.", remedy="Remove it.")
        if any(token.token_type is TokenType.SEMICOLON for token in tokens):
            raise WhereError(
                "The condition is more than one statement.", remedy="Write one condition; join several with AND."
            )
        _check_tokens(tokens)
        trees = sqlglot.parse(text, read="clickhouse")
    except (SqlglotError, RecursionError) as error:
        raise WhereError(
            f"The condition {text[:80]!r} is not valid: {str(error).splitlines()[0][:200]}",
            remedy="Write one condition, for example value > 100 AND name = 'x'.",
        ) from None
    if len(trees) != 1 or trees[0] is None:
        raise WhereError(
            "The condition is more than one statement.", remedy="Write one condition; join several with AND."
        )
    return trees[0]


def _check_tokens(tokens: list[Token]) -> None:
    """Reject invalid token sequences before parsing, since sqlglot's time is exponential in the depth of some syntax.

    A name or a value must be followed by an operator; a parenthesis after a name makes it a function.
    """
    if len(tokens) > MAX_TOKENS:
        raise WhereError(f"The condition has more than {MAX_TOKENS:,} tokens.", remedy="Join with a table of values.")
    depth = 0
    before: Token | None = None
    for token in tokens:
        token_type = token.token_type
        if token_type is TokenType.L_PAREN:
            depth += 1
            if before is not None and before.token_type not in _OPERATORS | {TokenType.L_PAREN}:
                _check_function(before.text)
        elif token_type is TokenType.R_PAREN:
            depth -= 1
        elif token_type not in _OPERATORS and before is not None and _ends_operand(before):
            raise WhereError(
                f"A condition cannot contain {before.text:.40} before {token.text:.40}.", remedy=_ALLOWED_SYNTAX
            )
        if depth > MAX_BRACKETS:
            raise WhereError("The condition is nested too deeply.")
        before = token


def _ends_operand(token: Token) -> bool:
    return token.token_type is TokenType.R_PAREN or token.token_type not in _OPERATORS | {TokenType.L_PAREN}


def _check_function(name: str) -> None:
    if name.lower() not in FUNCTIONS:
        raise WhereError(
            f"A condition cannot call {name:.40}.",
            remedy=suggest_name(name.lower(), FUNCTIONS) or "Use another function.",
        )


def _hides_comment(text: str, tokens: int) -> bool:
    """Whether the text starts with a comment, which sqlglot attaches to no token."""
    return tokens == 0 or text.lstrip().startswith(("--", "/*", "#"))


def _convert_tree(tree: exp.Expr, schema: Mapping[str, DataType], depth: int) -> ExpressionNode:
    if depth > MAX_DEPTH:
        raise WhereError("The condition is nested too deeply.")

    def convert(part: object) -> ExpressionNode:
        if not isinstance(part, exp.Expr):
            raise _not_allowed_error(tree)
        return _convert_tree(part, schema, depth + 1)

    expression_type = type(tree)
    if expression_type is exp.Paren:
        return convert(tree.this)
    if expression_type in BINARY:
        _check_args(tree, "this", "expression")
        left, right = convert(tree.this), convert(tree.args.get("expression"))
        if (
            expression_type is exp.Mod
            and isinstance(right, Literal)
            and type(right.value) is int
            and 0 < right.value < 1 << 31
        ):
            return FunctionCall("mod_by", (left,), (right.value,))
        return _coerced_call(BINARY[expression_type], left, right)
    handler = _HANDLERS.get(expression_type)
    if handler is not None:
        return handler(tree, convert, schema)
    if expression_type in _FUNCTION_CLASSES or expression_type is exp.Anonymous:
        return _convert_function(tree, convert)
    raise _not_allowed_error(tree)


def _check_args(tree: exp.Expr, *allowed: str) -> None:
    extra = [key for key, value in tree.args.items() if value not in (None, False, []) and key not in allowed]
    if extra:
        raise _not_allowed_error(tree)


def _not_allowed_error(tree: exp.Expr) -> WhereError:
    try:
        shown = tree.sql(dialect="clickhouse")[:80]
    except (SqlglotError, RecursionError, ValueError):
        shown = type(tree).__name__
    return WhereError(
        f"A condition cannot contain {type(tree).__name__.lower()} ({shown!r}).",
        remedy=_ALLOWED_SYNTAX,
    )


Convert = Callable[[Any], ExpressionNode]


def _convert_column(tree: exp.Expr, convert: Convert, schema: Mapping[str, DataType]) -> ExpressionNode:  # noqa: ARG001
    _check_args(tree, "this")
    if not isinstance(tree.this, exp.Identifier):
        raise _not_allowed_error(tree)
    name = tree.this.name
    if name not in schema:
        raise column_not_found(name, schema)
    return Ref(name, schema[name])


def _convert_literal(tree: exp.Expr, convert: Convert, schema: Mapping[str, DataType]) -> ExpressionNode:  # noqa: ARG001
    text = tree.this
    if tree.args.get("is_string"):
        return _literal_node(text)
    try:
        return _literal_node(int(text) if text.isdigit() else float(text))
    except ValueError:
        raise _not_allowed_error(tree) from None


def _literal_node(value: object) -> Literal:
    return Literal(value, literal_type(value))


def _convert_negative(tree: exp.Expr, convert: Convert, schema: Mapping[str, DataType]) -> ExpressionNode:  # noqa: ARG001
    node = convert(tree.this)
    if isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return _literal_node(-node.value)
    return FunctionCall("neg", (node,))


def _convert_between(tree: exp.Expr, convert: Convert, schema: Mapping[str, DataType]) -> ExpressionNode:  # noqa: ARG001
    _check_args(tree, "this", "low", "high")
    if len(list(tree.this.find_all(exp.Between))) > MAX_BETWEEN:
        raise WhereError("The condition has too many nested BETWEENs.", remedy="Use >= and <=.")
    value = convert(tree.this)
    low = _coerced_call("ge", value, convert(tree.args["low"]))
    return FunctionCall("and", (low, _coerced_call("le", value, convert(tree.args["high"]))))


def _convert_in(tree: exp.Expr, convert: Convert, schema: Mapping[str, DataType]) -> ExpressionNode:  # noqa: ARG001
    _check_args(tree, "this", "expressions")
    value = convert(tree.this)
    parts = [convert(part) for part in tree.expressions]
    if not parts or not all(isinstance(part, Literal) for part in parts):
        raise WhereError("IN takes a list of values.", remedy="For example x IN (1, 2, 3).")
    typed = [_coerce_literal(part, value.type) for part in parts]
    values = [part.value for part in typed if isinstance(part, Literal)]
    return FunctionCall("isin", (value, Literal(values, literal_type(values))))


def _convert_is_null(tree: exp.Expr, convert: Convert, schema: Mapping[str, DataType]) -> ExpressionNode:  # noqa: ARG001
    if not isinstance(tree.args.get("expression"), exp.Null):
        raise _not_allowed_error(tree)
    return FunctionCall("is_null", (convert(tree.this),))


def _convert_function(tree: exp.Expr, convert: Convert) -> ExpressionNode:
    if isinstance(tree, exp.Anonymous):
        name, parts = str(tree.this), list(tree.expressions)
        if not isinstance(tree.this, str):
            raise _not_allowed_error(tree)
    else:
        name = _FUNCTION_CLASSES[type(tree)]
        values: list[object] = [tree.args.get(key) for key in tree.arg_types]
        parts = [
            expression
            for part in values
            for expression in (cast("list[object]", part) if isinstance(part, list) else [part])
            if isinstance(expression, exp.Expr)
        ]
        plain = [part for part in values if part not in (None, False, []) and not isinstance(part, list | exp.Expr)]
        if plain and not all(isinstance(part, bool) for part in plain):
            raise _not_allowed_error(tree)
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise WhereError(
            f"A condition cannot call {name}.", remedy=suggest_name(name.lower(), FUNCTIONS) or "Use another function."
        )
    if function == "round" and len(parts) > 1:
        raise WhereError("round takes one argument in a condition.")
    return FunctionCall(function, tuple(convert(part) for part in parts))


def _convert_case(tree: exp.Expr, convert: Convert, schema: Mapping[str, DataType]) -> ExpressionNode:  # noqa: ARG001
    _check_args(tree, "ifs", "default")
    parts = [convert(part) for branch in tree.args["ifs"] for part in (branch.this, branch.args["true"])]
    default = tree.args.get("default")
    return FunctionCall("case", (*parts, _literal_node(None) if default is None else convert(default)))


_HANDLERS: dict[type[exp.Expr], Callable[[exp.Expr, Convert, Mapping[str, DataType]], ExpressionNode]] = {
    exp.Column: _convert_column,
    exp.Literal: _convert_literal,
    exp.Neg: _convert_negative,
    exp.Not: lambda tree, convert, _: FunctionCall("not", (convert(tree.this),)),
    exp.Null: lambda tree, convert, _: _literal_node(None),  # noqa: ARG005
    exp.Boolean: lambda tree, convert, _: _literal_node(bool(tree.this)),  # noqa: ARG005
    exp.Between: _convert_between,
    exp.In: _convert_in,
    exp.Is: _convert_is_null,
    exp.Case: _convert_case,
}


def _coerced_call(function: str, left: ExpressionNode, right: ExpressionNode) -> ExpressionNode:
    """Call a function after converting string literals to the date, UUID or Decimal type of the other operand."""
    with contextlib.suppress(DataError):
        left, right = _coerce_literal(left, right.type), _coerce_literal(right, left.type)
    return FunctionCall(function, (left, right))


def _coerce_literal(node: ExpressionNode, dtype: DataType) -> ExpressionNode:
    if not isinstance(node, Literal) or not isinstance(node.value, str) or dtype.is_string:
        return node
    readers: dict[bool, Callable[[str], object]] = {
        dtype.is_date: date.fromisoformat,
        dtype.is_temporal and not dtype.is_date: _read_utc_datetime if zone_of(dtype) else datetime.fromisoformat,
        dtype.name == "UUID": UUID,
        dtype.is_decimal: Decimal,
    }
    reader = readers.get(True)
    if reader is None:
        return node
    try:
        return _literal_node(reader(node.value))
    except (ValueError, InvalidOperation):
        raise WhereError(f"{node.value!r} is not a {dtype}.", remedy="Write dates as '2024-01-31'.") from None


def _read_utc_datetime(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- formatting --------------------------------------------------------------------------------------------------


def format_where(node: ExpressionNode) -> str:
    """Format a condition as text that `parse_where` parses to the same nodes."""
    if isinstance(node, Ref):
        return quote_name(node.name)
    if isinstance(node, Literal):
        return _format_value(node.value)
    if isinstance(node, FunctionCall):
        return _format_call(node)
    raise _not_serialisable_error()


def _format_value(value: object) -> str:
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
    raise _not_serialisable_error()


def _format_call(node: FunctionCall) -> str:
    parts = node.args
    if node.function in ("mod_by", "floordiv_by"):
        value, divisor = format_where(parts[0]), node.params[0]
        return f"({value} % {divisor})" if node.function == "mod_by" else f"floorDiv({value}, {divisor})"
    if node.params:
        raise _not_serialisable_error()
    if node.function in SYMBOLS and len(parts) == 2:
        return f"({format_where(parts[0])} {SYMBOLS[node.function]} {format_where(parts[1])})"
    if node.function == "not":
        return f"(NOT {format_where(parts[0])})"
    if node.function == "neg":
        return f"(-{format_where(parts[0])})"
    if node.function == "is_null":
        return f"({format_where(parts[0])} IS NULL)"
    if node.function == "isin" and isinstance(parts[1], Literal) and parts[1].value:
        return f"({format_where(parts[0])} IN ({', '.join(_format_value(value) for value in parts[1].value)}))"
    if node.function == "case":
        branches = " ".join(
            f"WHEN {format_where(c)} THEN {format_where(v)}" for c, v in zip(parts[:-1:2], parts[1:-1:2], strict=True)
        )
        return f"CASE {branches} ELSE {format_where(parts[-1])} END"
    name = _PREFERRED_NAMES.get(node.function) or _SQL_NAMES.get(node.function)
    if name is None:
        raise _not_serialisable_error()
    return f"{name}({', '.join(format_where(part) for part in parts)})"


def _not_serialisable_error() -> WhereError:
    return WhereError("This condition cannot be serialised as a View's where.", remedy="Use filter(…) instead.")
