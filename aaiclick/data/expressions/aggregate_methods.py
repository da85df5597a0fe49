"""Aggregates of expressions and columns."""

from __future__ import annotations

from typing import Self

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.expression_base import ExpressionBase


@check_methods
class AggregateMethods(ExpressionBase):
    """Aggregates; NULLs are ignored except by `first`, `last` and `collect`."""

    def sum(self) -> Self:
        return self._apply_function("sum")

    def min(self) -> Self:
        return self._apply_function("min")

    def max(self) -> Self:
        return self._apply_function("max")

    def mean(self) -> Self:
        return self._apply_function("mean")

    def std(self, ddof: int = 1) -> Self:
        return self._apply_function("std", params=(_check_ddof(ddof),))

    def var(self, ddof: int = 1) -> Self:
        return self._apply_function("var", params=(_check_ddof(ddof),))

    def median(self) -> Self:
        return self.quantile(0.5)

    def quantile(self, q: float) -> Self:
        """The exact quantile, interpolated between neighbours as NumPy does."""
        return self._apply_function("quantile", params=(_check_level(q),))

    def nunique(self) -> Self:
        return self._apply_function("nunique")

    def count_if(self) -> Self:
        return self._apply_function("count_if")

    def any(self) -> Self:
        return self._apply_function("any")

    def all(self) -> Self:
        return self._apply_function("all")

    def first(self) -> Self:
        return self._apply_positional("first")

    def last(self) -> Self:
        return self._apply_positional("last")

    def argmin(self) -> Self:
        """Position of the minimum."""
        return self._apply_positional("arg_min")

    def argmax(self) -> Self:
        """Position of the maximum."""
        return self._apply_positional("arg_max")

    def collect(self) -> Self:
        """Collect all values into an array, in row order."""
        return self._apply_positional("collect")

    def corr(self, other: object) -> Self:
        """Pearson correlation with another column."""
        return self._apply_function("corr", other)

    def cov(self, other: object) -> Self:
        return self._apply_function("cov", other)

    def mode(self) -> Self:
        """The most frequent value; of several the least. NULLs are ignored."""
        return self._apply_function("mode")

    def approx_nunique(self) -> Self:
        """Approximate number of different values, from a sketch of constant size."""
        return self._apply_function("approx_nunique")

    def approx_quantile(self, q: float) -> Self:
        """Approximate quantile from a t-digest, in constant memory. NULL and NaN are ignored."""
        return self._apply_function("approx_quantile", params=(_check_level(q),))


def _check_level(q: object) -> float:
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise DataTypeError(f"A quantile must lie between 0 and 1, and is {q!r:.60}.")
    return float(q)


def _check_ddof(ddof: int) -> int:
    if ddof not in (0, 1):
        raise DataTypeError(f"ddof must be 0 or 1, not {ddof!r:.60}.")
    return ddof
