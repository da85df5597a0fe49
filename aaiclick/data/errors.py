"""What can go wrong with data, as branches of the one error tree.

AaiclickError
└── DataError
    ├── NoContextError           no DataContext is open here
    ├── StaleObjectError         the context an Object came from is closed
    ├── ObjectNotFoundError      there is no such table or named Object
    ├── ObjectExistsError        the name is taken
    ├── ColumnNotFoundError      there is no such column
    ├── ColumnNameError          a column cannot have this name
    ├── DataTypeError            an operation does not exist for these types
    ├── ConversionError          a Python value cannot be stored without changing it
    ├── LengthError              Objects of different lengths were combined row by row
    ├── WhereError               a `where` text is not one plain condition
    ├── ForbiddenAddressError    a URL points into a private network
    ├── IngestError              a file or URL could not be read
    └── QueryError               ClickHouse refused or failed a query
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from operator import index

from aaiclick.errors import EXIT_NOT_FOUND, EXIT_USAGE, AaiclickError


class DataError(AaiclickError):
    """Something about data went wrong."""


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


class ConversionError(DataError):
    """A Python value cannot be stored without changing it."""


class LengthError(DataError):
    """Objects of different lengths were combined row by row."""


class WhereError(DataError):
    """A `where` text is not one plain condition."""

    exit_code = EXIT_USAGE


class ForbiddenAddressError(DataError):
    """A URL points into a private network."""

    exit_code = EXIT_USAGE


class IngestError(DataError):
    """A file or URL could not be read."""


OF_THE_TEXT = frozenset({
    8, 10, 15, 16, 20, 34, 35, 42, 43, 44, 46, 47, 50, 53, 62, 63, 70, 80, 115, 179, 184, 207, 215, 258, 352, 386,
})  # fmt: skip
"""Numbers of errors that lie in the text of a query and the types of its columns: a name, a function, a type, an
argument, a setting that is not there or does not fit, syntax, aggregation. Errors of values (a division, a number that
cannot be read) are not among them, since values change, nor are those of the server: memory, parts, network, time.
"""


class QueryError(DataError):
    """ClickHouse refused or failed a query; `code` is its error number."""

    code: int = 0

    @property
    def permanent(self) -> bool:
        """Whether trying again is no use, whatever the data and however the server fares."""
        return self.code in OF_THE_TEXT


MAX_COMPARED = 1_000
MAX_NAME = 100


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that helps after a misspelling: the closest known name, or all of them."""
    names = sorted(set(known))
    # The comparison takes the product of both lengths, for each name.
    lowered = {each.lower(): each for each in names[:MAX_COMPARED] if len(each) <= MAX_NAME}
    close = get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6) if len(name) <= MAX_NAME else []
    if close:
        return f"Did you mean {lowered[close[0]]!r}?"
    if not names:
        return ""
    shown = ", ".join(f"{each!r:.{MAX_NAME}}" for each in names[:12])
    return f"There is: {shown}{', …' if len(names) > 12 else ''}."


def column_not_found(name: str, known: Iterable[str]) -> ColumnNotFoundError:
    names = list(known)
    return ColumnNotFoundError(f"There is no column {name!r}.", remedy=nearest(name, names))


def whole(value: object, what: str) -> int:
    """A whole number that a caller gave; anything else is told apart by name."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise DataTypeError(f"{what} is a whole number, not {value!r:.60}.")
    return index(value)  # pyright: ignore[reportArgumentType]
