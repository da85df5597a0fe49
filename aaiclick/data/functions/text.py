"""Strings and regular expressions. Lengths and positions count characters, positions from 0."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from aaiclick.data import sql
from aaiclick.data.functions.registry import INTEGER, TEXT, Params, Types, any_nullable, calls, define, gives
from aaiclick.data.sql import Expression
from aaiclick.data.types import BOOL, FLOAT64, INT64, STRING, array_of


def _trim(name: str, clickhouse: str) -> None:
    define(
        name,
        gives(STRING, TEXT),
        calls(clickhouse),
        f"without spaces at {'both ends' if name == 'strip' else 'one end'}",
    )


def _find(args: list[Expression], types: Types, params: Params) -> Expression:
    position = sql.cast(sql.call("positionUTF8", *args), INT64.as_nullable(any_nullable(types)))
    return sql.binary("-", position, sql.number(1))


def _slice(args: list[Expression], types: Types, params: Params) -> Expression:
    # substringUTF8 counts from 1 and, given a negative start, from the end: as Python's slices do.
    start: int = params[0]
    first = sql.number(start + 1 if start >= 0 else start)
    length = [] if params[1] is None else [sql.number(params[1])]
    return sql.call("substringUTF8", args[0], first, *length)


def _pad(side: str) -> None:
    function = "leftPadUTF8" if side == "start" else "rightPadUTF8"

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        # ClickHouse would cut a longer string down to the width.
        is_short = sql.binary("<", sql.call("lengthUTF8", args[0].copy()), sql.number(params[0]))
        return sql.call("if", is_short, sql.call(function, args[0], sql.number(params[0]), args[1]), args[0].copy())

    define(f"pad_{side}", gives(STRING, TEXT), build, f"filled up at the {side} to a number of characters")


def _regex_count(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.cast(sql.call("countMatches", *args), INT64.as_nullable(any_nullable(types)))


def _length(clickhouse: str) -> object:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.cast(sql.call(clickhouse, *args), INT64.as_nullable(any_nullable(types)))

    return build


def _similarity(args: list[Expression], types: Types, params: Params) -> Expression:
    # ClickHouse finds an empty string wholly like any other, but not like an empty one.
    empty = [sql.call("empty", arg.copy()) for arg in args]
    alike = sql.call("jaroWinklerSimilarity", *args)
    alike = sql.call("if", sql.call("or", *empty), sql.call("and", *(each.copy() for each in empty)), alike)
    return sql.cast(alike, FLOAT64.as_nullable(any_nullable(types)))


def _edit_distance(args: list[Expression], types: Types, params: Params) -> Expression:
    # Beside an empty string ClickHouse counts the other's bytes.
    empty = sql.call("or", *(sql.call("empty", arg.copy()) for arg in args))
    lengths = sql.binary("+", *(sql.call("lengthUTF8", arg.copy()) for arg in args))
    distance = sql.call("if", empty, lengths, sql.call("editDistanceUTF8", *args))
    return sql.cast(distance, INT64.as_nullable(any_nullable(types)))


def _reverse(args: list[Expression], types: Types, params: Params) -> Expression:
    # Before 25 reverseUTF8 tears characters of four bytes apart.
    text = sql.call("ifNull", args[0], sql.string("")) if types[0].nullable else args[0]
    turned = sql.call("arrayStringConcat", sql.call("arrayReverse", sql.call("extractAll", text, sql.string("(?s)."))))
    return sql.call("if", sql.call("isNull", args[0].copy()), sql.null(), turned) if types[0].nullable else turned


_TEXT = gives(STRING, TEXT)
_TEXTS = gives(STRING, TEXT, TEXT, TEXT)
_TEST = gives(BOOL, TEXT, TEXT)
define("upper", _TEXT, calls("upperUTF8"), "upper case")
define("lower", _TEXT, calls("lowerUTF8"), "lower case")
define("title", _TEXT, calls("initcapUTF8"), "each word capitalised")
define("length", gives(INT64, TEXT), _length("lengthUTF8"), "number of characters")  # pyright: ignore[reportArgumentType]
define("byte_length", gives(INT64, TEXT), _length("length"), "number of bytes")  # pyright: ignore[reportArgumentType]
_trim("strip", "trimBoth")
_trim("lstrip", "trimLeft")
_trim("rstrip", "trimRight")
define("starts_with", _TEST, calls("startsWith"), "whether it starts with a text")
define("ends_with", _TEST, calls("endsWith"), "whether it ends with a text")
define(
    "contains",
    _TEST,
    lambda a, t, p: sql.binary(">", sql.call("position", *a), sql.number(0)),
    "whether it contains a text",
)
define("find", gives(INT64, TEXT, TEXT), _find, "where a text first stands, -1 if nowhere")
define("replace", _TEXTS, calls("replaceAll"), "every occurrence of a text replaced")
define("slice", _TEXT, _slice, "part of the string")
define("str_reverse", _TEXT, _reverse, "the characters backwards")
define("repeat", gives(STRING, TEXT, INTEGER), calls("repeat"), "repeated a number of times")
define("concat", gives(STRING), calls("concat"), "strings joined; NULL if any is NULL")
define(
    "split",
    lambda t, p: array_of(STRING),
    lambda a, t, p: sql.call(
        "splitByString", a[1], sql.call("ifNull", a[0], sql.string("")) if t[0].nullable else a[0]
    ),
    "split at a text into an array",
)
_pad("start")
_pad("end")
define("matches", _TEST, calls("match"), "whether a regular expression (RE2) matches anywhere")
define(
    "extract",
    _TEXTS,
    lambda a, t, p: sql.call("regexpExtract", a[0], a[1], sql.number(p[0])),
    "a group of the first match, empty if none",
)
define(
    "extract_all",
    lambda t, p: array_of(STRING),
    lambda a, t, p: sql.call("extractAll", sql.call("ifNull", a[0], sql.string("")) if t[0].nullable else a[0], a[1]),
    "all matches, as an array",
)
define("replace_regex", _TEXTS, calls("replaceRegexpAll"), r"every match replaced; `\1` is a group")
define("count_matches", gives(INT64, TEXT, TEXT), _regex_count, "number of matches")
define("like", _TEST, calls("like"), "SQL LIKE: `%` any text, `_` any character")
define("ilike", _TEST, calls("ilike"), "LIKE that ignores case")
define("similarity", gives(FLOAT64, TEXT, TEXT), _similarity, "Jaro-Winkler similarity, 0 to 1")
define("edit_distance", gives(INT64, TEXT, TEXT), _edit_distance, "Levenshtein distance in characters")
