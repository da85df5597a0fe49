"""Window functions of expressions and columns: values of other rows, in row order."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.errors import DataTypeError, check_integer
from aaiclick.data.expressions.expression_base import ExpressionBase
from aaiclick.data.expressions.intervals import parse_interval

CUMULATIVE = ("UNBOUNDED PRECEDING", "CURRENT ROW")
ROLLING = ("sum", "mean", "min", "max", "count", "std", "var", "median")


@check_methods
class WindowMethods(ExpressionBase):
    """Functions of the rows before and after; `.over("k")` computes them for the rows of each k."""

    def shift(self, rows: int = 1) -> Self:
        """Value this many rows earlier (later, if negative); NULL outside of the rows."""
        return self._apply_window("shift", params=(check_integer(rows, "The number of rows"),))

    def diff(self, rows: int = 1) -> Self:
        """Difference to the value this many rows earlier."""
        return self._apply_function("sub", self.shift(rows))

    def pct_change(self, rows: int = 1) -> Self:
        """Relative change since the value this many rows earlier: 0.1 is 10 %. NULL if one of both is NULL."""
        return self._apply_function("truediv", self.shift(rows))._apply_function("sub", 1)

    def cum_sum(self) -> Self:
        return self._apply_window("sum", frame=CUMULATIVE)

    def cum_min(self) -> Self:
        return self._apply_window("min", frame=CUMULATIVE)

    def cum_max(self) -> Self:
        return self._apply_window("max", frame=CUMULATIVE)

    def cum_mean(self) -> Self:
        return self._apply_window("mean", frame=CUMULATIVE)

    def cum_count(self) -> Self:
        return self._apply_window("count", frame=CUMULATIVE)

    def rolling(self, function: str, window: int | str | timedelta, by: object = None) -> Self:
        """Rolling sum, mean, min, max, median, std, var or count of the last rows, including the current one.

        `window` is a number of rows. With `by`, a column of dates, datetimes or integers, it is the width of the range
        of `by` that ends at the row: `"2h"`, a timedelta, or an integer; the row at its start does not belong to it.
        """
        if function not in ROLLING:
            raise DataTypeError(f"Rolling {function!r:.60} is not supported.", remedy=f"Use {', '.join(ROLLING)}.")
        params = {"std": (1,), "var": (1,), "median": (0.5,)}.get(function, ())
        function = "quantile" if function == "median" else function
        if by is not None:
            return self._apply_range_window(function, by, _window_width(window), params)
        rows = check_integer(window, "The number of rows of a window without by=")
        if rows < 1:
            raise DataTypeError(f"A window has at least one row, not {rows}.")
        return self._apply_window(function, params=params, frame=(f"{rows - 1} PRECEDING", "CURRENT ROW"))

    def rank(self, *, dense: bool = False, descending: bool = False) -> Self:
        """Rank of the value from 1; equal values have the same rank."""
        return self._apply_window("dense_rank" if dense else "rank", order=((self, descending),), natural=False)

    def percent_rank(self, *, descending: bool = False) -> Self:
        """Rank from 0 to 1: (rank - 1) / (count - 1); 0 for a single value, NULL for NULL."""
        below = self.rank(descending=descending)._apply_function("sub", 1)
        count = self._apply_window("count", natural=False)._apply_function("sub", 1)
        return below._apply_function("truediv", count._apply_function("greatest", 1))

    def ntile(self, groups: int, *, descending: bool = False) -> Self:
        """Number of the group, from 1, when the values are sorted and divided into groups of almost equal size.

        The first groups are larger by one. NULLs have no group.
        """
        if check_integer(groups, "The number of groups") < 1:
            raise DataTypeError(f"There must be at least one group, not {groups}.")
        position = self._apply_window("row_number", order=((self, descending),))
        count = self._apply_window("count", natural=False)
        return self._apply_function("_ntile", position, count, params=(groups,))

    def forward_fill(self, limit: int | None = None) -> Self:
        """Replace a NULL by the last value before it, at most `limit` rows earlier. NaN is a value."""
        return self._apply_window("fill", frame=_fill_frame(limit))

    def backward_fill(self, limit: int | None = None) -> Self:
        """Replace a NULL by the next value after it, at most `limit` rows later. NaN is a value."""
        return self._apply_window("fill", frame=_fill_frame(limit), reverse=True)

    def interpolate(self) -> Self:
        """Replace NULLs between two numbers by values on the line between them; the ends stay NULL."""
        number = self._apply_window("row_number")
        position_present = self._apply_function("_where_present", number)
        bounds = (
            self.forward_fill(),
            self.backward_fill(),
            position_present._apply_window("fill", frame=CUMULATIVE),
            position_present._apply_window("fill", frame=CUMULATIVE, reverse=True),
        )
        return self._apply_function("interpolate", number, *bounds)


def _fill_frame(limit: int | None) -> tuple[str, str]:
    if limit is None:
        return CUMULATIVE
    if check_integer(limit, "The limit of rows") < 0:
        raise DataTypeError(f"The limit of rows must not be negative, and is {limit}.")
    return f"{limit} PRECEDING", "CURRENT ROW"


def _window_width(window: object) -> int:
    """Return the width of a window in microseconds, or of an integer."""
    if isinstance(window, bool) or not isinstance(window, int | str | timedelta):
        raise DataTypeError(f"A window is {window!r:.60}.", remedy='Use "2h", a timedelta, or an integer.')
    if isinstance(window, int):
        width = window
    else:
        interval = parse_interval(window)
        if interval.months:
            raise DataTypeError("A window has no fixed number of months.", remedy="Use days or weeks.")
        width = interval.micros
    if width < 1:
        raise DataTypeError(f"A window must be longer than 0, and is {window!r}.")
    return width
