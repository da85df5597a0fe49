"""Errors of the data API.

AaiclickError
└── DataError
    ├── NoContextError           no DataContext is open here
    ├── StaleObjectError         the context an Object came from is closed
    ├── ObjectNotFoundError      there is no such table or named Object
    ├── ObjectExistsError        the name is taken
    ├── ColumnNotFoundError      there is no such column
    ├── ColumnNameError          a column cannot have this name
    ├── DataTypeError            an operation does not exist for these types
    │   └── UnreadValueError     an expression is used as a value before it runs
    ├── ConversionError          a Python value cannot be stored without loss
    ├── LengthError              Objects of different lengths were combined row by row
    ├── WhereError               a `where` text is not a valid condition
    ├── ForbiddenAddressError    a URL points into a private network
    ├── IngestError              a file or URL could not be read
    ├── ProtectedError           a repeated task changes stored data
    ├── NotAwaitedError          a coroutine is used without await
    ├── UnknownMethodError       there is no such method
    ├── DataTestError            rows fail a data test
    └── QueryError               ClickHouse rejected or failed a query
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from operator import index
from typing import TYPE_CHECKING

from aaiclick.errors import EXIT_NOT_FOUND, EXIT_USAGE, AaiclickError

if TYPE_CHECKING:
    from aaiclick.data.compile.data_test_queries import DataTestResult


class DataError(AaiclickError):
    """Base class of all errors of the data API."""


class NoContextError(DataError):
    """No DataContext is open here."""

    exit_code = EXIT_USAGE


class StaleObjectError(DataError):
    """The context an Object came from is closed."""


class ObjectNotFoundError(DataError):
    """There is no such table or named Object."""

    exit_code = EXIT_NOT_FOUND


class ObjectExistsError(DataError):
    """The name is taken."""


class ColumnNotFoundError(DataError):
    """There is no such column."""


class ColumnNameError(DataError):
    """A column cannot have this name."""


class DataTypeError(DataError):
    """An operation does not exist for these types."""


class UnreadValueError(DataTypeError, TypeError):
    """An expression is used as a value before it runs."""


class ConversionError(DataError):
    """A Python value cannot be stored without loss."""


class LengthError(DataError):
    """Objects of different lengths were combined row by row."""


class WhereError(DataError):
    """A `where` text is not a valid condition."""

    exit_code = EXIT_USAGE


class ForbiddenAddressError(DataError):
    """A URL points into a private network."""

    exit_code = EXIT_USAGE


class IngestError(DataError):
    """A file or URL could not be read."""


class ProtectedError(DataError):
    """A repeated task changes stored data."""

    exit_code = EXIT_USAGE


class NotAwaitedError(DataError, AttributeError, TypeError):
    """A coroutine is used without await."""

    exit_code = EXIT_USAGE
    permanent = True


class UnknownMethodError(DataError, AttributeError):
    """There is no such method."""

    exit_code = EXIT_USAGE
    permanent = True


class DataTestError(DataError):
    """Rows fail a data test; `results` are the results of all tests, `samples` Objects with failing rows."""

    permanent = True
    """Its task is not retried: the same rows fail again."""

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.results: tuple[DataTestResult, ...] = ()
        self.samples: tuple[object, ...] = ()


PERMANENT_ERROR_CODES = frozenset({
    8, 10, 15, 16, 20, 34, 35, 42, 43, 44, 46, 47, 50, 53, 62, 63, 70, 80, 115, 179, 184, 207, 215, 258, 352, 386,
})  # fmt: skip
"""ClickHouse error codes caused by the query text or column types: unknown names, functions, types and settings, wrong
arguments, syntax, aggregation. Errors that depend on values (division, parsing) or on the server (memory, parts,
network, time-outs) are left out, since a retry may succeed.
"""


class QueryError(DataError):
    """ClickHouse rejected or failed a query; `code` is the ClickHouse error code."""

    code: int = 0

    @property
    def permanent(self) -> bool:
        """Whether a retry cannot succeed, whatever the data and the state of the server."""
        return self.code in PERMANENT_ERROR_CODES


INVALID_TEST_CODES = PERMANENT_ERROR_CODES | {6, 38, 41, 48, 72, 427}
"""ClickHouse error codes of a condition that does not fit its column; also of values that cannot be parsed."""


class InvalidTestError(QueryError):
    """A data test that cannot be evaluated, since its column does not exist or has another type."""

    @property
    def permanent(self) -> bool:
        return True


MAX_COMPARED = 1_000
MAX_NAME = 100


def find_similar(name: str, candidates: Iterable[str]) -> str:
    """Return the candidate that is most similar to a misspelled name; "" if none is."""
    names = sorted(set(candidates))
    # Each comparison takes time proportional to the product of both lengths.
    lowered = {candidate.lower(): candidate for candidate in names[:MAX_COMPARED] if len(candidate) <= MAX_NAME}
    matches = get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6) if len(name) <= MAX_NAME else []
    return lowered[matches[0]] if matches else ""


def suggest_name(name: str, candidates: Iterable[str]) -> str:
    """Return a hint for a misspelled name: the closest candidate, or a list of candidates."""
    names = sorted(set(candidates))
    if similar := find_similar(name, names):
        return f"Did you mean {similar!r}?"
    if not names:
        return ""
    shown = ", ".join(f"{candidate!r:.{MAX_NAME}}" for candidate in names[:12])
    return f"Available: {shown}{', …' if len(names) > 12 else ''}."


def column_not_found(name: str, candidates: Iterable[str]) -> ColumnNotFoundError:
    names = list(candidates)
    return ColumnNotFoundError(f"There is no column {name!r}.", remedy=suggest_name(name, names))


def check_integer(value: object, label: str) -> int:
    """Return the value as an int; raise DataTypeError if it is not an integer."""
    if isinstance(value, bool | type) or not hasattr(value, "__index__"):
        raise DataTypeError(f"{label} must be an integer, not {value!r:.60}.")
    return index(value)  # pyright: ignore[reportArgumentType]
