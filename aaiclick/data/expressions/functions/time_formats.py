"""`strftime` and `strptime` with the directives of Python.

ClickHouse has other letters (`%M` is a month's name), and its versions format and parse differently. So only
directives of fixed width are left to `formatDateTime`, and texts that `parseDateTime` does not accept are parsed by a
regular expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.functions.casts import drop_digits
from aaiclick.data.expressions.functions.registry import TEMPORAL, TEXT, Params, Types, define_function, fixed_type
from aaiclick.data.types import STRING, datetime_type, zone_of

_COMPOSED = {
    "c": "%a %b %e %H:%M:%S %Y", "x": "%m/%d/%y", "D": "%m/%d/%y", "X": "%H:%M:%S", "T": "%H:%M:%S", "R": "%H:%M",
    "F": "%Y-%m-%d", "n": "\n", "t": "\t",
}  # fmt: skip
_FIXED_WIDTH = {letter: f"%{letter}" for letter in "YmdHSjpyIuwGVab"} | {"M": "%i", "%": "%%"}
"""Directives that formatDateTime writes with a fixed width."""

_COMPUTED = frozenset("ABUWefz")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_NAMES = "january|february|march|april|may|june|july|august|september|october|november|december|" + "|".join(
    _MONTHS
)
_DAY_NAMES = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tue|wed|thu|fri|sat|sun"
_PATTERNS = {
    "Y": r"(\d{4})", "y": r"(\d\d)", "m": r"(1[0-2]|0[1-9]|[1-9])", "d": r"(3[01]|[12]\d|0[1-9]|[1-9])",
    "e": r" ?(3[01]|[12]\d|0[1-9]|[1-9])", "H": r"(2[0-3]|[01]\d|\d)", "I": r"(1[0-2]|0[1-9]|[1-9])",
    "M": r"([0-5]\d|\d)", "S": r"([0-5]\d|\d)", "f": r"(\d{1,6})", "p": r"([ap]m)", "b": f"({_MONTH_NAMES})",
    "j": r"(36[0-6]|3[0-5]\d|[12]\d\d|0[1-9]\d|00[1-9]|[1-9]\d|0[1-9]|[1-9])", "z": r"([+-]\d\d:?[0-5]\d|z)",
    "a": f"(?:{_DAY_NAMES})", "A": f"(?:{_DAY_NAMES})",
}  # fmt: skip
_SAME_FIELD = {"B": "b"}
_UNGROUPED = frozenset("aA")
_FAST_LETTERS = frozenset("YmdHMS")


def _directives(pattern: str) -> list[tuple[bool, str]]:
    """Split a format into (is a directive, letter or text)."""
    parts: list[tuple[bool, str]] = []
    for text in re.findall(r"%.|[^%]+|%", pattern, re.DOTALL):
        if text == "%":
            raise DataTypeError(
                f"The format {pattern!r:.80} ends with a single %.", remedy="Write %% for a percent sign."
            )
        if text[0] == "%" and text[1] in _COMPOSED:
            parts += _directives(_COMPOSED[text[1]])
        else:
            parts.append((True, text[1]) if text[0] == "%" else (False, text))
    return parts


def _unknown_directive(letter: str, supported: str) -> DataTypeError:
    return DataTypeError(
        f"The format has %{letter}, which is not supported here.", remedy=f"Use %{' %'.join(supported)}."
    )


def split_format(pattern: str) -> list[tuple[str, str]]:
    """Split a format into segments: ("text", a format of formatDateTime), or (letter of a computed directive, "")."""
    segments: list[tuple[str, str]] = []
    for is_directive, text in _directives(pattern):
        if is_directive and text in _COMPUTED:
            segments.append((text, ""))
            continue
        if is_directive and text not in _FIXED_WIDTH:
            raise _unknown_directive(text, "".join(sorted({*_FIXED_WIDTH, *_COMPUTED, *_COMPOSED} - {"%"})))
        native = _FIXED_WIDTH[text] if is_directive else text
        if segments and segments[-1][0] == "text":
            segments[-1] = ("text", segments[-1][1] + native)
        else:
            segments.append(("text", native))
    return segments or [("text", "")]


@dataclass(frozen=True)
class ParsePlan:
    """How to parse texts of a format: a regular expression, the field of each group, and a native format or ""."""

    regex: str
    fields: tuple[str, ...]
    native: str


def plan_parse(pattern: str) -> ParsePlan:
    regex, fields, native, is_fast = "(?i)^", list[str](), "", True
    for is_directive, text in _directives(pattern):
        letter = _SAME_FIELD.get(text, text)
        if not is_directive or letter == "%":
            escaped = re.escape(text)
            regex += re.sub(r"(?:\\?\s)+", r"\\s+", escaped)
            native += text.replace("%", "%%")
            is_fast = is_fast and not re.search(r"\s{2}|%|\d", text)
            continue
        if letter not in _PATTERNS:
            raise _unknown_directive(text, "".join(sorted({*_PATTERNS, "B", *_COMPOSED})))
        regex += _PATTERNS[letter]
        if letter not in _UNGROUPED:
            fields.append(letter)
        is_fast = is_fast and letter in _FAST_LETTERS
        native += _FIXED_WIDTH.get(letter, "")
    duplicate = next((letter for letter in fields if fields.count(letter) > 1), None)
    if duplicate is not None:
        raise DataTypeError(f"The format {pattern!r:.80} has %{duplicate} twice.", remedy="Write each directive once.")
    is_fast = is_fast and {"Y", "m", "d"} <= set(fields)
    return ParsePlan(regex + "$", tuple(fields), native if is_fast else "")


# --- formatting --------------------------------------------------------------------------------------------------


def _padded(number: Expression, width: int, fill: str = "0") -> Expression:
    return sql.call("leftPad", sql.call("toString", number), sql.number(width), sql.string(fill))


def _micros_of_second(moment: Expression) -> Expression:
    return sql.call("positiveModulo", sql.call("toUnixTimestamp64Micro", moment), sql.number(1_000_000))


def _build_offset(moment: Expression) -> Expression:
    seconds = sql.call("timezoneOffset", moment)
    size = sql.call("abs", seconds)
    hours = _padded(sql.call("intDiv", size, sql.number(3600)), 2)
    minutes = _padded(sql.call("intDiv", sql.call("modulo", size.copy(), sql.number(3600)), sql.number(60)), 2)
    sign = sql.call("if", sql.binary("<", seconds.copy(), sql.number(0)), sql.string("-"), sql.string("+"))
    rest = sql.call("modulo", size.copy(), sql.number(60))  # of local mean times before about 1920
    end = sql.call("if", sql.binary("=", rest, sql.number(0)), sql.string(""), _padded(rest.copy(), 2))
    return sql.call("concat", sign, hours, minutes, end)


def _build_week(moment: Expression, weekday: Expression) -> Expression:
    """Build the number of the week of the year; `weekday` counts from 0, the first day of a week."""
    days = sql.binary("-", sql.binary("+", sql.call("toDayOfYear", moment), sql.number(6)), weekday)
    return _padded(sql.call("intDiv", days, sql.number(7)), 2)


def _build_directive(letter: str, moment: Expression, has_zone: bool) -> Expression:
    if letter == "f":
        return _padded(_micros_of_second(moment), 6)
    if letter == "e":
        return _padded(sql.call("toDayOfMonth", moment), 2, " ")
    if letter == "z":
        return _build_offset(moment) if has_zone else sql.string("")
    if letter in "UW":
        weekday = sql.call("toDayOfWeek", moment.copy())
        first = sql.call("modulo", weekday, sql.number(7)) if letter == "U" else sql.binary("-", weekday, sql.number(1))
        return _build_week(moment, first)
    return sql.call("formatDateTime", moment, sql.string("%W" if letter == "A" else "%M"))


def _build_strftime(args: list[Expression], types: Types, params: Params) -> Expression:
    value, *formats = args
    zone = zone_of(types[0])
    moment = drop_digits(value, types[0], 6)
    texts = iter(formats)
    parts = [
        sql.call("formatDateTime", moment.copy(), next(texts))
        if segment == "text"
        else _build_directive(segment, moment.copy(), bool(zone))
        for segment in params
    ]
    return parts[0] if len(parts) == 1 else sql.call("concat", *parts)


# --- parsing -----------------------------------------------------------------------------------------------------


def _build_strptime(args: list[Expression], types: Types, params: Params) -> Expression:
    plan: ParsePlan = params[0]
    text = sql.call("ifNull", args[0], sql.string("")) if types[0].nullable else args[0]
    parsed = _build_moment(sql.call("extractGroups", text, args[1]), plan.fields)
    if not plan.native:
        return parsed
    native = sql.call("parseDateTimeOrNull", text.copy(), args[2], sql.string("UTC"))
    wide = sql.cast(native.copy(), datetime_type(6, "UTC").as_nullable())
    # Years after 2106 wrap to others, which the text does not contain.
    year = sql.call("toString", sql.call("toYear", sql.call("assumeNotNull", native.copy())))
    is_native = sql.call(
        "and", sql.call("isNotNull", native), sql.binary(">", sql.call("position", text.copy(), year), sql.number(0))
    )
    return sql.call("if", is_native, wide, parsed)


def _build_moment(groups: Expression, fields: tuple[str, ...]) -> Expression:
    def text(field: str) -> Expression:
        return sql.call("arrayElement", groups.copy(), sql.number(fields.index(field) + 1))

    def number(field: str, default: int) -> Expression:
        return sql.call("toInt32OrZero", text(field)) if field in fields else sql.number(default)

    year = number("Y", 1900)
    if "y" in fields:
        short = number("y", 0)
        century = sql.call("if", sql.binary("<", short.copy(), sql.number(69)), sql.number(2000), sql.number(1900))
        year = sql.binary("+", short, century)
    month, day = number("m", 1), number("d" if "d" in fields else "e", 1)
    if "b" in fields:
        names = sql.call("array", *(sql.string(name) for name in _MONTHS))
        start = sql.call("lower", sql.call("substring", text("b"), sql.number(1), sql.number(3)))
        month = sql.call("indexOf", names, start)
    hour = number("H", 0)
    if "I" in fields:
        is_afternoon = (
            sql.binary("=", sql.call("lower", text("p")), sql.string("pm")) if "p" in fields else sql.number(0)
        )
        noon = sql.call("multiply", is_afternoon, sql.number(12))
        hour = sql.binary("+", sql.call("modulo", number("I", 0), sql.number(12)), noon)
    if "j" in fields:
        month, day = sql.number(1), sql.number(1)
    micros = (
        sql.call("toInt32OrZero", sql.call("rightPad", text("f"), sql.number(6), sql.string("0")))
        if "f" in fields
        else sql.number(0)
    )
    moment = sql.call(
        "makeDateTime64",
        year,
        month,
        day,
        hour,
        number("M", 0),
        number("S", 0),
        micros,
        sql.number(6),
        sql.string("UTC"),
    )
    exists = sql.call(
        "and",
        sql.call("notEmpty", groups.copy()),
        sql.binary("=", sql.call("toDayOfMonth", moment.copy()), day.copy()),
        sql.binary("=", sql.call("toYear", moment.copy()), year.copy()),
    )
    if "j" in fields:
        moment = sql.call("addDays", moment, sql.binary("-", number("j", 1), sql.number(1)))
    if "z" in fields:
        moment = sql.call("subtractSeconds", moment, _offset_seconds(text("z")))
    return sql.call("if", exists, sql.cast(moment, datetime_type(6, "UTC").as_nullable()), sql.null())


def _offset_seconds(text: Expression) -> Expression:
    digits = sql.call("replaceAll", text, sql.string(":"), sql.string(""))
    hours = sql.call("toInt32OrZero", sql.call("substring", digits, sql.number(2), sql.number(2)))
    minutes = sql.call("toInt32OrZero", sql.call("substring", digits.copy(), sql.number(4), sql.number(2)))
    size = sql.binary("+", sql.call("multiply", hours, sql.number(3600)), sql.call("multiply", minutes, sql.number(60)))
    is_west = sql.call("startsWith", text.copy(), sql.string("-"))
    return sql.call("if", is_west, sql.call("negate", size), size.copy())


define_function("strftime", fixed_type(STRING, TEMPORAL), _build_strftime, "as text by a format (`%Y-%m-%d`)")
define_function(
    "strptime",
    lambda types, params: fixed_type(datetime_type(6, "UTC"), TEXT)(types[:1], params).as_nullable(),
    _build_strptime,
    "read a datetime by a format, NULL where it does not fit",
)
