"""Functions that belong to one kind of value: `.str`, `.dt`, `.list`, `.map`, `.struct`, `.json`."""

# The methods here call `_call`, the protected heart of every expression: they are parts of it, only grouped.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from aaiclick.data.errors import DataTypeError, nearest
from aaiclick.data.functions.nested import JSON_TYPES
from aaiclick.data.functions.temporal import UNITS

if TYPE_CHECKING:
    from aaiclick.data.expressive import Expressive

E = TypeVar("E", bound="Expressive")


class _Methods(Generic[E]):
    def __init__(self, owner: E) -> None:
        self._owner = owner


class TextMethods(_Methods[E]):
    """Strings; lengths and positions count characters."""

    def upper(self) -> E:
        return self._owner._call("upper")

    def lower(self) -> E:
        return self._owner._call("lower")

    def title(self) -> E:
        return self._owner._call("title")

    def length(self) -> E:
        return self._owner._call("length")

    def byte_length(self) -> E:
        return self._owner._call("byte_length")

    def strip(self) -> E:
        return self._owner._call("strip")

    def lstrip(self) -> E:
        return self._owner._call("lstrip")

    def rstrip(self) -> E:
        return self._owner._call("rstrip")

    def starts_with(self, text: Any) -> E:
        return self._owner._call("starts_with", text)

    def ends_with(self, text: Any) -> E:
        return self._owner._call("ends_with", text)

    def contains(self, text: Any) -> E:
        """Whether the text stands in it (literally; `matches` takes a regular expression)."""
        return self._owner._call("contains", text)

    def find(self, text: Any) -> E:
        return self._owner._call("find", text)

    def replace(self, old: str, new: str) -> E:
        return self._owner._call("replace", old, new)

    def slice(self, start: int, length: int | None = None) -> E:
        return self._owner._call("slice", params=(int(start), None if length is None else int(length)))

    def reverse(self) -> E:
        return self._owner._call("str_reverse")

    def repeat(self, times: int) -> E:
        return self._owner._call("repeat", times)

    def concat(self, *others: Any) -> E:
        return self._owner._call("concat", *others)

    def split(self, separator: str) -> E:
        return self._owner._call("split", separator)

    def pad_start(self, width: int, fill: str = " ") -> E:
        return self._owner._call("pad_start", fill, params=(int(width),))

    def pad_end(self, width: int, fill: str = " ") -> E:
        return self._owner._call("pad_end", fill, params=(int(width),))

    def matches(self, pattern: str) -> E:
        """Whether a regular expression (RE2) matches anywhere."""
        return self._owner._call("matches", pattern)

    def extract(self, pattern: str, group: int = 1) -> E:
        return self._owner._call("extract", pattern, params=(int(group),))

    def extract_all(self, pattern: str) -> E:
        return self._owner._call("extract_all", pattern)

    def replace_regex(self, pattern: str, new: str) -> E:
        return self._owner._call("replace_regex", pattern, new)

    def count_matches(self, pattern: str) -> E:
        return self._owner._call("count_matches", pattern)

    def like(self, pattern: str) -> E:
        return self._owner._call("like", pattern)

    def ilike(self, pattern: str) -> E:
        return self._owner._call("ilike", pattern)

    def similarity(self, other: Any) -> E:
        return self._owner._call("similarity", other)

    def edit_distance(self, other: Any) -> E:
        return self._owner._call("edit_distance", other)

    def strptime(self, pattern: str) -> E:
        return self._owner._call("strptime", pattern)


class DateMethods(_Methods[E]):
    """Dates and datetimes."""

    def year(self) -> E:
        return self._owner._call("year")

    def quarter(self) -> E:
        return self._owner._call("quarter")

    def month(self) -> E:
        return self._owner._call("month")

    def week(self) -> E:
        return self._owner._call("week")

    def iso_year(self) -> E:
        return self._owner._call("iso_year")

    def day(self) -> E:
        return self._owner._call("day")

    def weekday(self) -> E:
        """Monday is 1, Sunday 7."""
        return self._owner._call("weekday")

    def ordinal_day(self) -> E:
        return self._owner._call("ordinal_day")

    def hour(self) -> E:
        return self._owner._call("hour")

    def minute(self) -> E:
        return self._owner._call("minute")

    def second(self) -> E:
        return self._owner._call("second")

    def millisecond(self) -> E:
        return self._owner._call("millisecond")

    def microsecond(self) -> E:
        return self._owner._call("microsecond")

    def date(self) -> E:
        return self._owner._call("date")

    def truncate(self, unit: str) -> E:
        """The start of the year, month, … it lies in."""
        return self._owner._call("truncate", params=(_unit(unit),))

    def add(self, **amounts: Any) -> E:
        """Later by `days=1`, `hours=2`, …; negative for earlier. An amount may be an expression."""
        result = self._owner
        for unit, amount in amounts.items():
            result = result._call("date_add", amount, params=(_unit(unit.removesuffix("s")),))
        return result

    def diff(self, other: Any, unit: str = "second") -> E:
        """Whole units from `other` to this."""
        return self._owner._call("date_diff", other, params=(_unit(unit),))

    def epoch(self, unit: str = "s") -> E:
        if unit not in ("s", "ms", "us"):
            raise DataTypeError(f"Time since 1970 is counted in s, ms or us, not {unit!r}.")
        return self._owner._call("epoch", params=(unit,))

    def strftime(self, pattern: str) -> E:
        """As text; ClickHouse's formatDateTime: %Y %m %d %H %i (minute) %S %f."""
        return self._owner._call("strftime", pattern)

    def in_zone(self, zone: str) -> E:
        """The same moment, shown in another time zone."""
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise DataTypeError(
                f"There is no time zone {zone!r}.", remedy="Use a name such as Europe/Berlin."
            ) from None
        return self._owner._call("in_zone", params=(zone,))


def _unit(unit: str) -> str:
    if unit not in UNITS:
        raise DataTypeError(f"There is no unit of time {unit!r}.", remedy=nearest(unit, UNITS))
    return unit


class ListMethods(_Methods[E]):
    """Arrays; positions count from 0, negative ones from the end."""

    def len(self) -> E:
        return self._owner._call("list_len")

    def get(self, index: Any) -> E:
        return self._owner._call("list_get", index)

    def first(self) -> E:
        return self._owner._call("list_get", 0)

    def last(self) -> E:
        return self._owner._call("list_get", -1)

    def contains(self, value: Any) -> E:
        return self._owner._call("list_contains", value)

    def index_of(self, value: Any) -> E:
        return self._owner._call("list_index_of", value)

    def sum(self) -> E:
        return self._owner._call("list_sum")

    def mean(self) -> E:
        return self._owner._call("list_mean")

    def min(self) -> E:
        return self._owner._call("list_min")

    def max(self) -> E:
        return self._owner._call("list_max")

    def sort(self, *, descending: bool = False) -> E:
        return self._owner._call("list_sort", params=(bool(descending),))

    def reverse(self) -> E:
        return self._owner._call("list_reverse")

    def unique(self) -> E:
        return self._owner._call("list_unique")

    def slice(self, start: int, length: int | None = None) -> E:
        return self._owner._call("list_slice", params=(int(start), None if length is None else int(length)))

    def join(self, separator: str = "") -> E:
        return self._owner._call("list_join", separator)

    def concat(self, other: Any) -> E:
        return self._owner._call("add", other)


class MapMethods(_Methods[E]):
    def keys(self) -> E:
        return self._owner._call("map_keys")

    def values(self) -> E:
        return self._owner._call("map_values")

    def get(self, key: Any) -> E:
        return self._owner._call("map_get", key)

    def contains(self, key: Any) -> E:
        return self._owner._call("map_contains", key)


class StructMethods(_Methods[E]):
    def field(self, name: str) -> E:
        return self._owner._call("field", params=(name,))


class JsonMethods(_Methods[E]):
    """JSON text: a path is keys and positions (from 1)."""

    def get(self, *path: str | int, kind: str = "string") -> E:
        if kind not in JSON_TYPES:
            raise DataTypeError(f"JSON values are read as {', '.join(JSON_TYPES)}, not {kind!r}.")
        return self._owner._call("json_get", *path, params=(kind,))

    def raw(self, *path: str | int) -> E:
        return self._owner._call("json_raw", *path)

    def has(self, *path: str | int) -> E:
        return self._owner._call("json_has", *path)

    def encode(self) -> E:
        """The value as JSON text."""
        return self._owner._call("to_json")
