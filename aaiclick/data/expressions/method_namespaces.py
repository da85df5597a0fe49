"""Functions grouped by type: `.str`, `.dt`, `.list`, `.map`, `.struct`, `.json`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.errors import DataTypeError, check_integer, suggest_name
from aaiclick.data.expressions.functions.dates_and_times import UNITS
from aaiclick.data.expressions.functions.durations import SPAN_UNITS
from aaiclick.data.expressions.functions.nested import JSON_TYPES
from aaiclick.data.expressions.functions.time_formats import plan_parse, split_format
from aaiclick.data.expressions.intervals import parse_interval
from aaiclick.data.expressions.nodes import Element
from aaiclick.data.method_hints import DATE_HINTS, LIST_HINTS, TEXT_HINTS, unknown_method
from aaiclick.data.types import user_type

if TYPE_CHECKING:
    from aaiclick.data.expressions.operators import ExpressionMethods

E = TypeVar("E", bound="ExpressionMethods")
GROUP_LABELS: dict[str, tuple[str, dict[str, str]]] = {
    "TextMethods": ("Text", TEXT_HINTS), "DateMethods": ("Date", DATE_HINTS), "ListMethods": ("List", LIST_HINTS),
    "MapMethods": ("Map", {}), "StructMethods": ("Struct", {}), "JsonMethods": ("JSON", {}),
}  # fmt: skip
_LABELS = count()


class _MethodGroup(Generic[E]):
    def __init__(self, owner: E) -> None:
        self._owner = owner

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            label, hints = GROUP_LABELS[type(self).__name__]
            raise unknown_method(f"{label} functions", name, hints, names=dir(type(self)))

    def _apply_function(self, function: str, *args: object, params: tuple[object, ...] = ()) -> E:
        return self._owner._apply_function(function, *args, params=params)  # pyright: ignore[reportPrivateUsage]


@check_methods
class TextMethods(_MethodGroup[E]):
    """String functions; lengths and positions count characters."""

    def upper(self) -> E:
        return self._apply_function("upper")

    def lower(self) -> E:
        return self._apply_function("lower")

    def title(self) -> E:
        return self._apply_function("title")

    def length(self) -> E:
        return self._apply_function("length")

    def byte_length(self) -> E:
        return self._apply_function("byte_length")

    def strip(self) -> E:
        return self._apply_function("strip")

    def lstrip(self) -> E:
        return self._apply_function("lstrip")

    def rstrip(self) -> E:
        return self._apply_function("rstrip")

    def starts_with(self, text: object) -> E:
        return self._apply_function("starts_with", text)

    def ends_with(self, text: object) -> E:
        return self._apply_function("ends_with", text)

    def contains(self, text: object) -> E:
        """Whether it contains the text literally; `matches` takes a regular expression."""
        return self._apply_function("contains", text)

    def find(self, text: object) -> E:
        return self._apply_function("find", text)

    def replace(self, old: str, new: str) -> E:
        if old == "":
            raise DataTypeError("replace needs a text to replace, not an empty one.")
        return self._apply_function("replace", old, new)

    def slice(self, start: int, length: int | None = None) -> E:
        return self._apply_function("slice", params=_slice_bounds(start, length))

    def reverse(self) -> E:
        return self._apply_function("str_reverse")

    def repeat(self, times: int) -> E:
        return self._apply_function("repeat", times)

    def concat(self, *values: object) -> E:
        return self._apply_function("concat", *values)

    def split(self, separator: str) -> E:
        """Split at a text; an empty one splits into characters."""
        if separator == "":
            return self._apply_function("extract_all", "(?s).")
        return self._apply_function("split", separator)

    def pad_start(self, width: int, fill: str = " ") -> E:
        return self._apply_function("pad_start", fill, params=(check_integer(width, "The width"),))

    def pad_end(self, width: int, fill: str = " ") -> E:
        return self._apply_function("pad_end", fill, params=(check_integer(width, "The width"),))

    def matches(self, pattern: str) -> E:
        """Whether a regular expression (RE2) matches anywhere."""
        return self._apply_function("matches", _dot_pattern(pattern))

    def extract(self, pattern: str, group: int = 1) -> E:
        """A group of the first match of a regular expression (RE2), 0 for all of it; NULL without a match."""
        group = check_integer(group, "A group")
        if not 0 <= group <= _count_groups(pattern):
            raise DataTypeError(f"The pattern {pattern!r:.80} has no group {group}.", remedy="Use ( ), or group=0.")
        return self._apply_function("extract", _dot_pattern(f"({pattern})"), params=(group,))

    def extract_all(self, pattern: str) -> E:
        """All matches of a regular expression (RE2), or of its first group if it has one."""
        return self._apply_function("extract_all", _nonempty_pattern(pattern))

    def replace_regex(self, pattern: str, new: str) -> E:
        """Replace all matches of a regular expression (RE2); `\\1` in the new text is a group, `\\0` the match."""
        checked = _nonempty_pattern(pattern, is_anchor_accepted=True)
        if "\\" in new:  # ClickHouse inserts `\0` as it is if the pattern has no special characters
            checked = f"(?:{checked})"
        return self._apply_function("replace_regex", checked, new)

    def count_matches(self, pattern: str) -> E:
        return self._apply_function("count_matches", _nonempty_pattern(pattern))

    def like(self, pattern: str) -> E:
        return self._apply_function("like", pattern)

    def ilike(self, pattern: str) -> E:
        return self._apply_function("ilike", pattern)

    def similarity(self, other: object) -> E:
        return self._apply_function("similarity", other)

    def edit_distance(self, other: object) -> E:
        return self._apply_function("edit_distance", other)

    def strptime(self, pattern: str) -> E:
        """Read datetimes in UTC by a format with Python's directives; NULL where the text does not fit."""
        plan = plan_parse(pattern)
        return self._apply_function("strptime", plan.regex, *([plan.native] if plan.native else []), params=(plan,))


def _dot_pattern(pattern: str) -> str:
    """Return a pattern in which `.` matches no line break, as in Python; in ClickHouse it does."""
    return f"(?-s){pattern}" if "." in pattern else pattern


def _nonempty_pattern(pattern: str, is_anchor_accepted: bool = False) -> str:
    """Return a pattern for repeated matches; raise DataTypeError if it matches an empty text.

    ClickHouse stops there, or splits characters. Anchors such as `^` match at the ends of a text only.
    """
    simple = re.sub(r"\\[pP](?:\{[^}]*\}|.)", "x", pattern).replace(r"\z", r"\Z")
    try:
        compiled = re.compile(simple)
    except (re.error, OverflowError):
        return _dot_pattern(pattern)
    probes = [compiled.match("éé", 1)] if is_anchor_accepted else [compiled.search(""), *compiled.finditer("a b")]
    if any(match is not None and not match.group() for match in probes):
        raise DataTypeError(
            f"The pattern {pattern!r:.80} matches an empty text.", remedy="Use + instead of *, for example."
        )
    return _dot_pattern(pattern)


def _count_groups(pattern: str) -> int:
    """Count the groups of a pattern; a pattern that only RE2 understands is left to the server."""
    try:
        return re.compile(pattern).groups
    except re.error:
        return pattern.count("(")


@check_methods
class DateMethods(_MethodGroup[E]):
    """Date and datetime functions."""

    def year(self) -> E:
        return self._apply_function("year")

    def quarter(self) -> E:
        return self._apply_function("quarter")

    def month(self) -> E:
        return self._apply_function("month")

    def week(self) -> E:
        return self._apply_function("week")

    def iso_year(self) -> E:
        return self._apply_function("iso_year")

    def day(self) -> E:
        return self._apply_function("day")

    def weekday(self) -> E:
        """Day of the week: Monday is 1, Sunday 7."""
        return self._apply_function("weekday")

    def ordinal_day(self) -> E:
        return self._apply_function("ordinal_day")

    def hour(self) -> E:
        return self._apply_function("hour")

    def minute(self) -> E:
        return self._apply_function("minute")

    def second(self) -> E:
        return self._apply_function("second")

    def millisecond(self) -> E:
        return self._apply_function("millisecond")

    def microsecond(self) -> E:
        return self._apply_function("microsecond")

    def date(self) -> E:
        return self._apply_function("date")

    def truncate(self, every: str | timedelta) -> E:
        """Start of the interval that contains it: `"month"`, `"15m"`, `"1d"`, or a timedelta."""
        return self._apply_function("truncate", params=(parse_interval(every),))

    def add(self, **amounts: object) -> E:
        """Add `days=1`, `hours=2`, …; amounts may be negative or expressions."""
        result = self._owner
        for unit, amount in amounts.items():
            result = type(self)(result)._apply_function(
                "date_add", amount, params=(_check_unit(unit.removesuffix("s")),)
            )
        return result

    def diff(self, other: object, unit: str = "second") -> E:
        """Number of whole units from `other` to this."""
        return self._apply_function("date_diff", other, params=(_check_unit(unit),))

    def epoch(self, unit: str = "s") -> E:
        if unit not in ("s", "ms", "us"):
            raise DataTypeError(f"The unit of epoch() is s, ms or us, not {unit!r}.")
        return self._apply_function("epoch", params=(unit,))

    def strftime(self, pattern: str) -> E:
        """Format as text with Python's directives, such as %Y %m %d %H %M %S %f %A %B."""
        segments = split_format(pattern)
        texts = [text for segment, text in segments if segment == "text"]
        return self._apply_function("strftime", *texts, params=tuple(segment for segment, _ in segments))

    def total_seconds(self) -> E:
        """Length of a duration in seconds, with a fraction."""
        return self._apply_function("total_units", params=("second",))

    def total_microseconds(self) -> E:
        """Length of a duration in microseconds, an exact integer."""
        return self._apply_function("total_units", params=("microsecond",))

    def total(self, unit: str) -> E:
        """Length of a duration in weeks, days, hours, …, with a fraction."""
        if unit.removesuffix("s") not in SPAN_UNITS:
            raise DataTypeError(f"A duration has no fixed number of {unit!r}.", remedy=suggest_name(unit, SPAN_UNITS))
        return self._apply_function("total_units", params=(unit.removesuffix("s"),))

    def in_zone(self, zone: str) -> E:
        """Convert to another time zone."""
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise DataTypeError(f"Unknown time zone {zone!r}.", remedy="Use a name such as Europe/Berlin.") from None
        return self._apply_function("in_zone", params=(zone,))


def _check_unit(unit: str) -> str:
    if unit not in UNITS:
        raise DataTypeError(f"Unknown unit of time {unit!r}.", remedy=suggest_name(unit, UNITS))
    return unit


@check_methods
class ListMethods(_MethodGroup[E]):
    """Array functions; positions count from 0, negative ones from the end."""

    def len(self) -> E:
        return self._apply_function("list_len")

    def get(self, index: object) -> E:
        return self._apply_function("list_get", index)

    def first(self) -> E:
        return self._apply_function("list_get", 0)

    def last(self) -> E:
        return self._apply_function("list_get", -1)

    def contains(self, value: object) -> E:
        return self._apply_function("list_contains", value)

    def index_of(self, value: object) -> E:
        return self._apply_function("list_index_of", value)

    def sum(self) -> E:
        return self._apply_function("list_sum")

    def mean(self) -> E:
        return self._apply_function("list_mean")

    def min(self) -> E:
        return self._apply_function("list_min")

    def max(self) -> E:
        return self._apply_function("list_max")

    def sort(self, *, descending: bool = False) -> E:
        return self._apply_function("list_sort", params=(bool(descending),))

    def reverse(self) -> E:
        return self._apply_function("list_reverse")

    def unique(self) -> E:
        return self._apply_function("list_unique")

    def slice(self, start: int, length: int | None = None) -> E:
        return self._apply_function("list_slice", params=_slice_bounds(start, length))

    def join(self, separator: str = "") -> E:
        return self._apply_function("list_join", separator)

    def concat(self, other: object) -> E:
        return self._apply_function("add", other)

    def map(self, function: Callable[[Any], object]) -> E:
        """Apply a function to every element: `.list.map(lambda x: x * 2)`; it gets and returns an expression."""
        return self._apply_lambda("list_map", function)

    def filter(self, function: Callable[[Any], object]) -> E:
        """Keep the elements for which a function returns true: `.list.filter(lambda x: x > 0)`."""
        return self._apply_lambda("list_filter", function)

    def _apply_lambda(self, name: str, function: Callable[[Any], object]) -> E:
        from aaiclick.data.expressions.column import Column, as_node  # uses these namespaces: circular at module level

        if not callable(function):  # pyright: ignore[reportUnnecessaryComparison]
            raise DataTypeError(f"{function!r:.60} is not a function.", remedy="For example lambda x: x * 2.")
        label = f"e{next(_LABELS)}"
        try:
            body = as_node(function(Column(Element(label), label)))
        except TypeError as error:
            raise DataTypeError(
                f"The function of {name.replace('_', '.')}(…) failed: {error}.",
                remedy="It takes an expression and returns one, for example lambda x: x * 2.",
            ) from error
        return self._owner._apply_lambda(name, body, label)  # pyright: ignore[reportPrivateUsage]

    def cosine_distance(self, other: object) -> E:
        """Cosine distance of two vectors, 0 for the same direction; NaN if one is zero. Lengths must be equal."""
        return self._apply_function("cosine_distance", other)

    def l2_distance(self, other: object) -> E:
        """Euclidean distance of two vectors of equal length."""
        return self._apply_function("l2_distance", other)

    def dot(self, other: object) -> E:
        """Dot product of two vectors of equal length."""
        return self._apply_function("dot_product", other)


@check_methods
class MapMethods(_MethodGroup[E]):
    def keys(self) -> E:
        return self._apply_function("map_keys")

    def values(self) -> E:
        return self._apply_function("map_values")

    def get(self, key: object) -> E:
        return self._apply_function("map_get", key)

    def contains(self, key: object) -> E:
        return self._apply_function("map_contains", key)


@check_methods
class StructMethods(_MethodGroup[E]):
    def field(self, name: str) -> E:
        return self._apply_function("field", params=(name,))


@check_methods
class JsonMethods(_MethodGroup[E]):
    """Functions of JSON text; a path consists of keys and positions (from 1)."""

    def get(self, *path: str | int, kind: str = "string") -> E:
        if kind not in JSON_TYPES:
            raise DataTypeError(f"JSON values are read as {', '.join(JSON_TYPES)}, not {kind!r}.")
        return self._apply_function("json_get", *path, params=(kind,))

    def raw(self, *path: str | int) -> E:
        return self._apply_function("json_raw", *path)

    def has(self, *path: str | int) -> E:
        return self._apply_function("json_has", *path)

    def decode(self, dtype: str | type) -> E:
        """Read JSON text as a type such as `"Array(Int64)"`; NULL if it does not fit, also for a value inside."""
        return self._apply_function("json_decode", params=(user_type(dtype),))

    def encode(self) -> E:
        """Encode the value as JSON text."""
        return self._apply_function("to_json")


def _slice_bounds(start: int, length: int | None) -> tuple[int, int | None]:
    start = check_integer(start, "The start")
    if length is not None and check_integer(length, "The length") < 0:
        raise DataTypeError(f"The length must not be negative, and is {length}.")
    return start, None if length is None else check_integer(length, "The length")
