"""Expressions as they are written in Python: `col("x").sum() / 2`."""

from __future__ import annotations

from datetime import timedelta

from aaiclick.data.expressions.functions import FUNCTIONS, FunctionKind
from aaiclick.data.expressions.nodes import (
    Element,
    ExpressionNode,
    FunctionCall,
    ListLambda,
    Literal,
    Membership,
    Over,
    Ref,
    RowIndex,
    Scalar,
)
from aaiclick.data.expressions.selectors import Selector
from aaiclick.data.types import DataType

_OPERATORS = {
    "or": ("|", 1), "xor": ("^", 2), "and": ("&", 3), "shift_left": ("<<", 4), "shift_right": (">>", 4),
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "truediv": ("/", 6), "floordiv": ("//", 6), "mod": ("%", 6),
    "floordiv_by": ("//", 6), "mod_by": ("%", 6), "pow": ("**", 8), "pow_by": ("**", 8),
    "eq": ("==", 0), "ne": ("!=", 0), "lt": ("<", 0), "le": ("<=", 0), "gt": (">", 0), "ge": (">=", 0),
}  # fmt: skip
"""Symbol and precedence of binary operators."""

_PREFIXES = {"neg": "-", "not": "~"}
_PREFIX_PRECEDENCE, _CALL_PRECEDENCE = 7, 9
_TEXT_FUNCTIONS = (
    "upper", "lower", "title", "length", "byte_length", "strip", "lstrip", "rstrip", "starts_with", "ends_with",
    "contains", "find", "replace", "slice", "repeat", "concat", "split", "pad_start", "pad_end", "matches", "extract",
    "extract_all", "replace_regex", "count_matches", "like", "ilike", "similarity", "edit_distance", "strptime",
)  # fmt: skip
_DATE_FUNCTIONS = (
    "year", "quarter", "month", "week", "iso_year", "day", "weekday", "ordinal_day", "hour", "minute", "second",
    "millisecond", "microsecond", "date", "truncate", "epoch", "strftime", "in_zone",
)  # fmt: skip
_METHODS = {
    **{name: f"str.{name}" for name in _TEXT_FUNCTIONS},
    **{name: f"dt.{name}" for name in _DATE_FUNCTIONS},
    "str_reverse": "str.reverse", "date_diff": "dt.diff", "total_units": "dt.total", "field": "struct.field",
    "cosine_distance": "list.cosine_distance", "l2_distance": "list.l2_distance", "dot_product": "list.dot",
    "to_json": "json.encode", "replace_values": "replace", "arg_min": "argmin", "arg_max": "argmax",
    "fill": "forward_fill",
}  # fmt: skip
_CONSTRUCTORS = {"len": "length()", "row_number": "row_number()"}


def format_expression(node: ExpressionNode) -> str:
    """Return the Python text of an expression."""
    return _format(node)[0]


def _format(node: ExpressionNode) -> tuple[str, int]:
    """Return the text and its precedence."""
    if isinstance(node, FunctionCall):
        return _format_call(node)
    if isinstance(node, Over):
        return _format_window(node), _CALL_PRECEDENCE
    if isinstance(node, ListLambda):
        method = node.function.removeprefix("list_")
        values = _inner(node.values, _CALL_PRECEDENCE)
        return f"{values}.list.{method}(lambda {node.label}: {_format(node.body)[0]})", _CALL_PRECEDENCE
    if isinstance(node, Membership):
        return f"{_inner(node.value, _CALL_PRECEDENCE)}.isin(<Object>)", _CALL_PRECEDENCE
    return _format_leaf(node), _CALL_PRECEDENCE


def _format_leaf(node: ExpressionNode) -> str:
    if isinstance(node, Ref):
        return f"col({_quote(node.name)})"
    if isinstance(node, Literal):
        return _format_value(node.value)
    if isinstance(node, Element):
        return node.label
    if isinstance(node, Selector):
        return _format_selector(node)
    return "row_index()" if isinstance(node, RowIndex) else "<scalar Object>" if isinstance(node, Scalar) else "…"


def _format_selector(node: Selector) -> str:
    if node.types:
        labels = (_quote(label) if isinstance(label, str) else label.__name__ for label in node.types)
        return f"of_type({', '.join(labels)})"
    if node.names:
        return f"col({', '.join(map(_quote, node.names))})"
    return f"exclude({', '.join(map(_quote, node.excluded))})" if node.excluded else "all_columns()"


def _format_call(node: FunctionCall) -> tuple[str, int]:
    function, args = node.function, node.args
    if function in _OPERATORS:
        symbol, precedence = _OPERATORS[function]
        right = _format_value(node.params[0]) if function.endswith("_by") else _inner(args[1], precedence + 1)
        return f"{_inner(args[0], precedence)} {symbol} {right}", precedence
    if function in _PREFIXES:
        return f"{_PREFIXES[function]}{_inner(args[0], _PREFIX_PRECEDENCE)}", _PREFIX_PRECEDENCE
    if function == "add_duration":
        return f"{_inner(args[0], 5)} + {timedelta(microseconds=node.params[0])!r}", 5
    if function == "_position":
        return "row_index()", _CALL_PRECEDENCE
    if function in _CONSTRUCTORS and not args:
        return _CONSTRUCTORS[function], _CALL_PRECEDENCE
    return _format_method(node), _CALL_PRECEDENCE


def _format_method(node: FunctionCall) -> str:
    first, *rest = node.args or (Literal(None, DataType("Nothing")),)
    owner = _inner(first, _CALL_PRECEDENCE)
    if node.function == "_filtered":
        return f"{owner}.filter({_format(rest[0])[0]})"
    if node.function == "date_add":
        return f"{owner}.dt.add({node.params[0]}s={_format(rest[0])[0]})"
    values = [_format(arg)[0] for arg in rest if not isinstance(arg, RowIndex)]
    if FUNCTIONS[node.function].kind is FunctionKind.AGGREGATE and len(node.args) == 3:
        return f"{owner}.filter({values[-1]}).{_method_name(node.function)}()"
    values += [_format_value(value) for value in node.params if value is not False and value is not None]
    return f"{owner}.{_method_name(node.function)}({', '.join(values)})"


def _method_name(function: str) -> str:
    if function in _METHODS:
        return _METHODS[function]
    prefix, _, name = function.partition("_")
    return f"{prefix}.{name}" if prefix in ("list", "map", "json") else function.removeprefix("_")


def _format_window(node: Over) -> str:
    call, text = node.call, _format_call(node.call)[0]
    is_default_order = not node.order or (call.args and node.order[0].node == call.args[0])
    if node.natural and node.frame is not None and call.kind is FunctionKind.AGGREGATE and not node.order:
        start = node.frame[0].partition(" ")[0]
        owner = _inner(call.args[0], _CALL_PRECEDENCE)
        text = (
            f"{owner}.cum_{call.function}()"
            if start == "UNBOUNDED"
            else f"{owner}.rolling({_quote(call.function)}, {int(start) + 1})"
        )
    options = [_format(part)[0] for part in node.partition]
    if not is_default_order:
        options.append(f"order_by=[{', '.join(_format(key.node)[0] for key in node.order)}]")
    is_plain_aggregate = call.kind is FunctionKind.AGGREGATE and not node.natural and not options
    return f"{text}.over({', '.join(options)})" if options or is_plain_aggregate else text


def _inner(node: ExpressionNode, precedence: int) -> str:
    """Return the text of an operand, in parentheses where it binds less than the operator."""
    text, own = _format(node)
    is_number = isinstance(node, Literal) and precedence == _CALL_PRECEDENCE
    return f"lit({text})" if is_number else f"({text})" if own < precedence or own == 0 else text


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, DataType):
        return _quote(str(value))
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
