"""Operators and methods shared by expressions (`col("x")`) and columns of Objects (`obj["x"]`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Self

from aaiclick.data.errors import DataTypeError, check_integer
from aaiclick.data.expressions.namespaces import (
    DateMethods,
    JsonMethods,
    ListMethods,
    MapMethods,
    StructMethods,
    TextMethods,
)
from aaiclick.data.types import user_type

MAX_CONSTANT_EXPONENT = 64
CUMULATIVE = ("UNBOUNDED PRECEDING", "CURRENT ROW")


class ExpressionMethods(ABC):
    """Operators and functions; subclasses implement how a function is applied."""

    @abstractmethod
    def _apply_function(self, function: str, *args: object, params: tuple[object, ...] = ()) -> Self:
        """Apply a registered function to this and the arguments."""

    @abstractmethod
    def _apply_window(
        self,
        function: str,
        *args: object,
        params: tuple[object, ...] = (),
        order: tuple[object, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
    ) -> Self:
        """Apply a function over a window in row order."""

    @abstractmethod
    def _lift_value(self, value: object) -> Self:
        """Convert a Python value to this class."""

    @abstractmethod
    def _apply_positional(self, function: str) -> Self:
        """Apply an aggregate that also takes the row's position."""

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: object) -> Self:
        if isinstance(other, timedelta):
            return self._apply_function("add_duration", params=(_to_microseconds(other),))
        return self._apply_function("add", other)

    def __radd__(self, other: object) -> Self:
        if isinstance(other, timedelta):
            return self + other
        return self._lift_value(other)._apply_function("add", self)

    def __sub__(self, other: object) -> Self:
        if isinstance(other, timedelta):
            return self._apply_function("add_duration", params=(-_to_microseconds(other),))
        return self._apply_function("sub", other)

    def __rsub__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("sub", self)

    def __mul__(self, other: object) -> Self:
        return self._apply_function("mul", other)

    def __rmul__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("mul", self)

    def __truediv__(self, other: object) -> Self:
        return self._apply_function("truediv", other)

    def __rtruediv__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("truediv", self)

    def __floordiv__(self, other: object) -> Self:
        if _is_fast_divisor(other):
            return self._apply_function("floordiv_by", params=(other,))
        return self._apply_function("floordiv", other)

    def __rfloordiv__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("floordiv", self)

    def __mod__(self, other: object) -> Self:
        if _is_fast_divisor(other):
            return self._apply_function("mod_by", params=(other,))
        return self._apply_function("mod", other)

    def __rmod__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("mod", self)

    def __pow__(self, other: object) -> Self:
        if type(other) is int and 0 <= other <= MAX_CONSTANT_EXPONENT:
            return self._apply_function("pow_by", params=(other,))
        return self._apply_function("pow", other)

    def __rpow__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("pow", self)

    def __lshift__(self, other: object) -> Self:
        return self._apply_function("shift_left", other)

    def __rshift__(self, other: object) -> Self:
        return self._apply_function("shift_right", other)

    def __rlshift__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("shift_left", self)

    def __rrshift__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("shift_right", self)

    def __neg__(self) -> Self:
        return self._apply_function("neg")

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self._apply_function("abs")

    def __round__(self, decimals: int = 0) -> Self:
        return self.round(decimals)

    # --- comparison and logic ------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Self:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._apply_function("eq", other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._apply_function("ne", other)

    __hash__ = object.__hash__

    def __lt__(self, other: object) -> Self:
        return self._apply_function("lt", other)

    def __le__(self, other: object) -> Self:
        return self._apply_function("le", other)

    def __gt__(self, other: object) -> Self:
        return self._apply_function("gt", other)

    def __ge__(self, other: object) -> Self:
        return self._apply_function("ge", other)

    def __and__(self, other: object) -> Self:
        return self._apply_function("and", other)

    def __rand__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("and", self)

    def __or__(self, other: object) -> Self:
        return self._apply_function("or", other)

    def __ror__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("or", self)

    def __xor__(self, other: object) -> Self:
        return self._apply_function("xor", other)

    def __rxor__(self, other: object) -> Self:
        return self._lift_value(other)._apply_function("xor", self)

    def __invert__(self) -> Self:
        return self._apply_function("not")

    def __bool__(self) -> bool:
        raise DataTypeError(
            "An expression has no truth value before it runs.",
            remedy="Use & | ~ instead of and, or, not; or read it with .data().",
        )

    def __iter__(self) -> Any:
        raise TypeError("An expression is not iterable; read it with .data() or .iter_batches().")

    def between(self, low: object, high: object) -> Self:
        """Whether it lies between two values, inclusive."""
        return (self >= low) & (self <= high)

    def isin(self, values: Iterable[object]) -> Self:
        """Whether it is one of these values."""
        return self._apply_function("isin", [_canonical_value(value) for value in values])

    def is_null(self) -> Self:
        return self._apply_function("is_null")

    def is_not_null(self) -> Self:
        return self._apply_function("is_not_null")

    def is_nan(self) -> Self:
        return self._apply_function("is_nan")

    def is_finite(self) -> Self:
        return self._apply_function("is_finite")

    # --- values --------------------------------------------------------------------------------------------------

    def if_else(self, then: object, otherwise: object) -> Self:
        """Return `then` where this condition holds, `otherwise` elsewhere (also where it is NULL)."""
        return self._apply_function("if_else", then, otherwise)

    def fill_null(self, value: object) -> Self:
        """Replace NULLs by a value."""
        return self._apply_function("coalesce", value)

    def coalesce(self, *values: object) -> Self:
        """Return the first value that is not NULL."""
        return self._apply_function("coalesce", *values)

    def null_if(self, value: object) -> Self:
        """NULL where this equals the value."""
        return self._apply_function("null_if", value)

    def least(self, *values: object) -> Self:
        return self._apply_function("least", *values)

    def greatest(self, *values: object) -> Self:
        return self._apply_function("greatest", *values)

    def clip(self, low: object = None, high: object = None) -> Self:
        """Limit values to the range from `low` to `high`."""
        bounded = self if low is None else self._apply_function("greatest", low)
        return bounded if high is None else bounded._apply_function("least", high)

    def cast(self, kind: str | type, *, truncate: bool = False) -> Self:
        """Cast to another type (`"Int64"`, `float`, `"Nullable(String)"`); a value that would change is an error.

        `truncate` allows fractions, decimal places and parts of a second to be dropped; `round()` rounds them before.
        """
        return self._apply_function("cast", params=(user_type(kind), bool(truncate)))

    def try_cast(self, kind: str | type, *, truncate: bool = False) -> Self:
        """Cast to another type; NULL where the value would change."""
        return self._apply_function("try_cast", params=(user_type(kind), bool(truncate)))

    def abs(self) -> Self:
        return self._apply_function("abs")

    def sign(self) -> Self:
        return self._apply_function("sign")

    def round(self, decimals: int = 0) -> Self:
        return self._apply_function("round", params=(check_integer(decimals, "The number of decimals"),))

    def floor(self) -> Self:
        return self._apply_function("floor")

    def ceil(self) -> Self:
        return self._apply_function("ceil")

    def trunc(self) -> Self:
        return self._apply_function("trunc")

    def sqrt(self) -> Self:
        return self._apply_function("sqrt")

    def exp(self) -> Self:
        return self._apply_function("exp")

    def log(self) -> Self:
        """Natural logarithm."""
        return self._apply_function("log")

    def log2(self) -> Self:
        return self._apply_function("log2")

    def log10(self) -> Self:
        return self._apply_function("log10")

    def math(self, function: str, *args: object) -> Self:
        """Apply a mathematical function by name, such as sin, atan2, cbrt or degrees."""
        from aaiclick.data.expressions.functions.mathematics import FLOAT_FUNCTIONS

        if function not in FLOAT_FUNCTIONS and function not in ("atan2", "hypot"):
            raise DataTypeError(
                f"Unknown mathematical function {function!r}.", remedy=f"Use one of {', '.join(FLOAT_FUNCTIONS)}."
            )
        return self._apply_function(function, *args)

    def hash(self) -> Self:
        """64-bit SipHash; never NULL."""
        return self._apply_function("hash")

    def md5(self) -> Self:
        return self._apply_function("md5")

    def sha1(self) -> Self:
        return self._apply_function("sha1")

    def sha256(self) -> Self:
        return self._apply_function("sha256")

    # --- aggregates ----------------------------------------------------------------------------------------------

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
        if not isinstance(q, int | float) or not 0 <= q <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataTypeError(f"A quantile must lie between 0 and 1, and is {q}.")
        return self._apply_function("quantile", params=(float(q),))

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

    # --- windows -------------------------------------------------------------------------------------------------

    def shift(self, rows: int = 1) -> Self:
        """Value this many rows earlier (later, if negative); NULL outside of the rows."""
        return self._apply_window("shift", params=(check_integer(rows, "The number of rows"),))

    def diff(self, rows: int = 1) -> Self:
        """Difference to the value this many rows earlier."""
        return self - self.shift(rows)

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

    def rolling(self, function: str, rows: int) -> Self:
        """Rolling sum, mean, min, max, std, var or count of the last `rows` rows, including the current one."""
        if function not in ("sum", "mean", "min", "max", "count", "std", "var") or rows < 1:
            raise DataTypeError(
                f"Rolling {function!r} over {rows} rows is not supported.",
                remedy="Use sum, mean, min, max, std, var or count, over at least one row.",
            )
        params = (1,) if function in ("std", "var") else ()
        return self._apply_window(function, params=params, frame=(f"{int(rows) - 1} PRECEDING", "CURRENT ROW"))

    def rank(self, *, dense: bool = False, descending: bool = False) -> Self:
        """Rank of the value from 1; equal values have the same rank."""
        return self._apply_window("dense_rank" if dense else "rank", order=((self, descending),), natural=False)

    # --- functions by type ---------------------------------------------------------------------------------------

    @property
    def str(self) -> TextMethods[Self]:
        """Functions of strings."""
        return TextMethods(self)

    @property
    def dt(self) -> DateMethods[Self]:
        """Functions of dates and datetimes."""
        return DateMethods(self)

    @property
    def list(self) -> ListMethods[Self]:
        """Functions of arrays."""
        return ListMethods(self)

    @property
    def map(self) -> MapMethods[Self]:
        """Functions of maps."""
        return MapMethods(self)

    @property
    def struct(self) -> StructMethods[Self]:
        """Fields of nested dicts."""
        return StructMethods(self)

    @property
    def json(self) -> JsonMethods[Self]:
        """Values inside JSON text."""
        return JsonMethods(self)


def _is_fast_divisor(value: object) -> bool:
    """Whether the value is a positive 31-bit integer constant, for which division needs no NULL and overflow checks."""
    return type(value) is int and 0 < value < 1 << 31


def _canonical_value(value: object) -> object:
    """Return 0.0 for -0.0, and NULL for NaN, which equals nothing."""
    if not isinstance(value, float):
        return value
    return None if value != value else value + 0.0


def _to_microseconds(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _check_ddof(ddof: int) -> int:
    if ddof not in (0, 1):
        raise DataTypeError(f"ddof must be 0 or 1, not {ddof}.")
    return ddof
