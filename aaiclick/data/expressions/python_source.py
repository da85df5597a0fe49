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
    SortKey,
)
from aaiclick.data.expressions.selectors import Selector
from aaiclick.data.expressions.window_methods import CUMULATIVE, ROLLING
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
    "_first_in_order": "first", "_last_in_order": "last", "_collect_in_order": "collect",
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
    if (derived := _format_derived(node)) is not None:
        return derived, _CALL_PRECEDENCE
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
    is_conditional = len(node.args) == (2 if node.function.endswith("_in_order") else 3)
    if FUNCTIONS[node.function].kind is FunctionKind.AGGREGATE and is_conditional:
        return f"{owner}.filter({values[-1]}).{_method_name(node.function)}()"
    values += [_format_value(value) for value in node.params if value is not False and value is not None]
    return f"{owner}.{_method_name(node.function)}({', '.join(values)})"


def _method_name(function: str) -> str:
    if function in _METHODS:
        return _METHODS[function]
    prefix, _, name = function.partition("_")
    return f"{prefix}.{name}" if prefix in ("list", "map", "json") else function.removeprefix("_")


def _format_window(node: Over) -> str:
    """Return an aggregate or window function with its window, by the shortest method that has this window."""
    call, frame = node.call, node.frame
    is_ranking = call.function in ("rank", "dense_rank")
    text, has_frame = _format_framed(node)
    options = [_format(part)[0] for part in node.partition]
    if node.order and not is_ranking:
        options += _format_order(node.order)
        if frame == CUMULATIVE and call.kind is FunctionKind.AGGREGATE:
            text, has_frame = _format_call(call)[0], True
    if frame is not None and not has_frame:
        options.append(f"rows=({_format_bound(frame[0])}, {_format_bound(frame[1])})")
    is_plain_aggregate = call.kind is FunctionKind.AGGREGATE and not node.natural and not options
    return f"{text}.over({', '.join(options)})" if options or is_plain_aggregate else text


def _format_framed(node: Over) -> tuple[str, bool]:
    """Return the function without partition and order, and whether its name says its frame."""
    call, frame = node.call, node.frame
    owner = _inner(call.args[0], _CALL_PRECEDENCE) if call.args else ""
    if call.function in ("rank", "dense_rank"):
        options = ["dense=True"] * (call.function == "dense_rank")
        options += ["descending=True"] * any(key.descending for key in node.order)
        return f"{owner}.rank({', '.join(options)})", True
    if call.function == "fill" and frame is not None:
        limit = "" if frame == CUMULATIVE else _format_bound(frame[0])
        return f"{owner}.{'backward' if node.reverse else 'forward'}_fill({limit})", True
    if node.natural and not node.order and frame is not None and frame[1] == "CURRENT ROW":
        if frame == CUMULATIVE and call.function in ("sum", "min", "max", "mean", "count"):
            return f"{owner}.cum_{call.function}()", True
        if frame != CUMULATIVE and call.function in ROLLING and call.params in ((), (1,)):
            return f"{owner}.rolling({_quote(call.function)}, {int(_format_bound(frame[0])) + 1})", True
    return _format_call(call)[0], call.kind is FunctionKind.WINDOW


def _format_order(keys: tuple[SortKey, ...]) -> list[str]:
    nodes = [_format(key.node)[0] for key in keys]
    flags = [key.descending for key in keys]
    columns = nodes[0] if len(nodes) == 1 else f"[{', '.join(nodes)}]"
    return [f"order_by={columns}"] + ([f"descending={True if all(flags) else flags}"] if any(flags) else [])


def _format_bound(bound: str) -> str:
    number = bound.partition(" ")[0]
    return {"UNBOUNDED": "None", "CURRENT": "0"}.get(number, number)


def _format_range(node: Over, by: ExpressionNode) -> str:
    """Return a rolling function of the rows within a range of a column."""
    (key,) = node.order
    unit = key.node.params[0] if isinstance(key.node, FunctionCall) else 1
    width = (int(_format_bound((node.frame or CUMULATIVE)[0])) + 1) * unit
    owner = _inner(node.call.args[0], _CALL_PRECEDENCE)
    shown = _quote(f"{width // 1_000_000}s") if width % 1_000_000 == 0 else str(width)
    text = f"{owner}.rolling({_quote(node.call.function)}, {shown}, by={_format(by)[0]})"
    partition = [_format(part)[0] for part in node.partition[1:]]
    return f"{text}.over({', '.join(partition)})" if partition else text


def _format_derived(node: FunctionCall) -> str | None:
    """Return the method that builds a call of several functions; None for other calls."""
    args = node.args
    if node.function == "interpolate":
        return f"{_inner(args[0], _CALL_PRECEDENCE)}.interpolate()"
    if node.function == "_ntile" and isinstance(args[1], Over):
        options = [str(node.params[0])] + ["descending=True"] * args[1].order[0].descending
        return f"{_inner(args[0], _CALL_PRECEDENCE)}.ntile({', '.join(options)})"
    if node.function == "_null_where" and isinstance(args[0], Over) and isinstance(args[1], FunctionCall):
        return _format_range(args[0], args[1].args[0])
    if node.function == "truediv" and isinstance(args[0], FunctionCall):
        below = args[0].args[0] if args[0].function == "sub" else None
        is_share = isinstance(args[1], FunctionCall) and args[1].function == "greatest"
        if is_share and isinstance(below, Over) and below.call.function == "rank":
            rank = Over(below.call, below.partition, below.order, below.natural, below.frame)
            return _format_window(rank).replace(".rank(", ".percent_rank(")
    return None


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
