"""String functions and regular expressions. Lengths and positions count characters; positions start at 0."""

# ruff: noqa: ARG001, ARG005  (all builders have one signature)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aaiclick.data.compile import sql
from aaiclick.data.compile.sql import Expression
from aaiclick.data.expressions.functions.registry import (
    INTEGER,
    TEXT,
    Params,
    Types,
    any_nullable,
    build_call,
    check_types,
    define_function,
    fixed_type,
)
from aaiclick.data.types import BOOL, FLOAT64, INT64, STRING, DataType, array_of

_WHITESPACE = r"[\s\x0b\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
"""Characters that `str.strip` of Python removes, as an RE2 class."""


def _define_trim(name: str, clickhouse: str) -> None:
    """Define a trim. ClickHouse removes spaces; a regular expression runs only where other characters may be left."""
    ends = {"strip": (1, -1), "lstrip": (1,), "rstrip": (-1,)}[name]

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        trimmed = sql.call(clickhouse, args[0])
        outer = [sql.call("substring", trimmed.copy(), sql.number(end), sql.number(1)) for end in ends]
        suspect = [sql.binary("<", character, sql.string("!")) for character in outer]
        suspect += [sql.binary(">", character.copy(), sql.string("~")) for character in outer]
        cleaned = trimmed.copy()
        for end in ends:
            pattern = f"^{_WHITESPACE}+" if end == 1 else f"{_WHITESPACE}+$"
            cleaned = sql.call("replaceRegexpOne", cleaned, sql.escaped_string(pattern), sql.string(""))
        return sql.call("if", sql.call("or", *suspect), cleaned, trimmed)

    define_function(
        name,
        fixed_type(STRING, TEXT),
        build,
        f"without white space at {'both ends' if name == 'strip' else 'one end'}",
    )


def _build_extract(args: list[Expression], types: Types, params: Params) -> Expression:
    """Build a group of the first match; the pattern is in parentheses, so that group 0 is the first element."""
    text = sql.call("ifNull", args[0], sql.string("")) if types[0].nullable else args[0]
    groups = sql.call("extractGroups", text, args[1])
    missing = sql.call("empty", groups)
    if types[0].nullable:
        missing = sql.call("or", missing, sql.call("isNull", args[0].copy()))
    group = sql.call("arrayElement", groups.copy(), sql.number(params[0] + 1))
    return sql.call("if", missing, sql.null(), group)


def _build_find(args: list[Expression], types: Types, params: Params) -> Expression:
    position = sql.cast(sql.call("positionUTF8", *args), INT64.as_nullable(any_nullable(types)))
    return sql.binary("-", position, sql.number(1))


def _build_slice(args: list[Expression], types: Types, params: Params) -> Expression:
    # substringUTF8 counts from 1; a negative start counts from the end, as in Python.
    start: int = params[0]
    first = sql.number(start + 1 if start >= 0 else start)
    length = [] if params[1] is None else [sql.number(params[1])]
    return sql.call("substringUTF8", args[0], first, *length)


def _define_pad(side: str) -> None:
    function = "leftPadUTF8" if side == "start" else "rightPadUTF8"

    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        # ClickHouse truncates longer strings to the width.
        is_short = sql.binary("<", sql.call("lengthUTF8", args[0].copy()), sql.number(params[0]))
        return sql.call("if", is_short, sql.call(function, args[0], sql.number(params[0]), args[1]), args[0].copy())

    define_function(
        f"pad_{side}", fixed_type(STRING, TEXT), build, f"filled up at the {side} to a number of characters"
    )


def _build_count_matches(args: list[Expression], types: Types, params: Params) -> Expression:
    return sql.cast(sql.call("countMatches", *args), INT64.as_nullable(any_nullable(types)))


def _build_length(clickhouse: str) -> object:
    def build(args: list[Expression], types: Types, params: Params) -> Expression:
        return sql.cast(sql.call(clickhouse, *args), INT64.as_nullable(any_nullable(types)))

    return build


def _build_similarity(args: list[Expression], types: Types, params: Params) -> Expression:
    # ClickHouse returns 1 for an empty and a non-empty string, and 0 for two empty ones.
    empty = [sql.call("empty", arg.copy()) for arg in args]
    alike = sql.call("jaroWinklerSimilarity", *args)
    alike = sql.call("if", sql.call("or", *empty), sql.call("and", *(is_empty.copy() for is_empty in empty)), alike)
    return sql.cast(alike, FLOAT64.as_nullable(any_nullable(types)))


def _build_edit_distance(args: list[Expression], types: Types, params: Params) -> Expression:
    # If one string is empty, ClickHouse counts the bytes of the other.
    empty = sql.call("or", *(sql.call("empty", arg.copy()) for arg in args))
    lengths = sql.binary("+", *(sql.call("lengthUTF8", arg.copy()) for arg in args))
    distance = sql.call("if", empty, lengths, sql.call("editDistanceUTF8", *args))
    return sql.cast(distance, INT64.as_nullable(any_nullable(types)))


def _build_reverse(args: list[Expression], types: Types, params: Params) -> Expression:
    # reverseUTF8 breaks 4-byte characters before ClickHouse 25.
    text = sql.call("ifNull", args[0], sql.string("")) if types[0].nullable else args[0]
    reversed_text = sql.call(
        "arrayStringConcat", sql.call("arrayReverse", sql.call("extractAll", text, sql.string("(?s).")))
    )
    return (
        sql.call("if", sql.call("isNull", args[0].copy()), sql.null(), reversed_text)
        if types[0].nullable
        else reversed_text
    )


def _text_list_type(types: Types, params: Params) -> DataType:
    check_types(types, TEXT, TEXT)
    return replace(array_of(STRING), nullable=types[0].nullable)


def _build_text_list(text: Expression, dtype: DataType, build: Callable[[Expression], Expression]) -> Expression:
    """Build an array of texts; of a NULL it is NULL, stored as an empty array."""
    if not dtype.nullable:
        return build(text)
    present = sql.call("array", build(sql.call("assumeNotNull", text)))
    return sql.call("if", sql.call("isNull", text.copy()), sql.call("array"), present)


_TEXT = fixed_type(STRING, TEXT)
_TEXTS = fixed_type(STRING, TEXT, TEXT, TEXT)
_TEST = fixed_type(BOOL, TEXT, TEXT)
define_function("upper", _TEXT, build_call("upperUTF8"), "upper case")
define_function("lower", _TEXT, build_call("lowerUTF8"), "lower case")
define_function("title", _TEXT, build_call("initcapUTF8"), "each word capitalised")
define_function("length", fixed_type(INT64, TEXT), _build_length("lengthUTF8"), "number of characters")  # pyright: ignore[reportArgumentType]
define_function("byte_length", fixed_type(INT64, TEXT), _build_length("length"), "number of bytes")  # pyright: ignore[reportArgumentType]
_define_trim("strip", "trimBoth")
_define_trim("lstrip", "trimLeft")
_define_trim("rstrip", "trimRight")
define_function("starts_with", _TEST, build_call("startsWith"), "whether it starts with a text")
define_function("ends_with", _TEST, build_call("endsWith"), "whether it ends with a text")
define_function(
    "contains",
    _TEST,
    lambda a, t, p: sql.binary(">", sql.call("position", *a), sql.number(0)),
    "whether it contains a text",
)
define_function(
    "find", fixed_type(INT64, TEXT, TEXT), _build_find, "position of the first occurrence of a text, -1 if none"
)
define_function("replace", _TEXTS, build_call("replaceAll"), "every occurrence of a text replaced")
define_function("slice", _TEXT, _build_slice, "part of the string")
define_function("str_reverse", _TEXT, _build_reverse, "the characters backwards")
define_function("repeat", fixed_type(STRING, TEXT, INTEGER), build_call("repeat"), "repeated a number of times")
define_function("concat", fixed_type(STRING), build_call("concat"), "strings joined; NULL if any is NULL")
define_function(
    "split",
    _text_list_type,
    lambda a, t, p: _build_text_list(a[0], t[0], lambda text: sql.call("splitByString", a[1], text)),
    "split at a text into an array",
)
_define_pad("start")
_define_pad("end")
define_function("matches", _TEST, build_call("match"), "whether a regular expression (RE2) matches anywhere")
define_function(
    "extract",
    lambda t, p: _TEXTS(t, p).as_nullable(),
    _build_extract,
    "a group of the first match, NULL if none",
)
define_function(
    "extract_all",
    _text_list_type,
    lambda a, t, p: _build_text_list(a[0], t[0], lambda text: sql.call("extractAll", text, a[1])),
    "all matches, as an array",
)
define_function("replace_regex", _TEXTS, build_call("replaceRegexpAll"), r"every match replaced; `\1` is a group")
define_function("count_matches", fixed_type(INT64, TEXT, TEXT), _build_count_matches, "number of matches")
define_function("like", _TEST, build_call("like"), "SQL LIKE: `%` any text, `_` any character")
define_function("ilike", _TEST, build_call("ilike"), "LIKE that ignores case")
define_function("similarity", fixed_type(FLOAT64, TEXT, TEXT), _build_similarity, "Jaro-Winkler similarity, 0 to 1")
define_function(
    "edit_distance", fixed_type(INT64, TEXT, TEXT), _build_edit_distance, "Levenshtein distance in characters"
)
