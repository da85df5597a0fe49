"""The fluent methods that an expression (`col("x")`) and a column of an Object (`obj["x"]`) have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Self

from aaiclick.data.errors import DataTypeError, whole
from aaiclick.data.namespaces import DateMethods, JsonMethods, ListMethods, MapMethods, StructMethods, TextMethods
from aaiclick.data.types import user_type

CUMULATIVE = ("UNBOUNDED PRECEDING", "CURRENT ROW")


class Expressive(ABC):
    """Operators and functions; each subclass says how a call is applied."""

    @abstractmethod
    def _call(self, function: str, *args: Any, params: tuple[Any, ...] = ()) -> Self:
        """Apply a function of the table to this and the arguments."""

    @abstractmethod
    def _window(
        self,
        function: str,
        *args: Any,
        params: tuple[Any, ...] = (),
        order: tuple[Any, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
    ) -> Self:
        """Apply a function over a window in row order."""

    @abstractmethod
    def _value(self, value: Any) -> Self:
        """A Python value as one of these."""

    @abstractmethod
    def _positional(self, function: str) -> Self:
        """Apply an aggregate that also takes the row's position."""

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Self:
        if isinstance(other, timedelta):
            return self.dt.add(microseconds=_micros(other))
        return self._call("add", other)

    def __radd__(self, other: Any) -> Self:
        return self._value(other)._call("add", self)

    def __sub__(self, other: Any) -> Self:
        if isinstance(other, timedelta):
            return self.dt.add(microseconds=-_micros(other))
        return self._call("sub", other)

    def __rsub__(self, other: Any) -> Self:
        return self._value(other)._call("sub", self)

    def __mul__(self, other: Any) -> Self:
        return self._call("mul", other)

    def __rmul__(self, other: Any) -> Self:
        return self._value(other)._call("mul", self)

    def __truediv__(self, other: Any) -> Self:
        return self._call("truediv", other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._value(other)._call("truediv", self)

    def __floordiv__(self, other: Any) -> Self:
        if _is_small(other):
            return self._call("floordiv_by", params=(other,))
        return self._call("floordiv", other)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._value(other)._call("floordiv", self)

    def __mod__(self, other: Any) -> Self:
        if _is_small(other):
            return self._call("mod_by", params=(other,))
        return self._call("mod", other)

    def __rmod__(self, other: Any) -> Self:
        return self._value(other)._call("mod", self)

    def __pow__(self, other: Any) -> Self:
        return self._call("pow", other)

    def __rpow__(self, other: Any) -> Self:
        return self._value(other)._call("pow", self)

    def __lshift__(self, other: Any) -> Self:
        return self._call("shift_left", other)

    def __rshift__(self, other: Any) -> Self:
        return self._call("shift_right", other)

    def __rlshift__(self, other: Any) -> Self:
        return self._value(other)._call("shift_left", self)

    def __rrshift__(self, other: Any) -> Self:
        return self._value(other)._call("shift_right", self)

    def __neg__(self) -> Self:
        return self._call("neg")

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self._call("abs")

    def __round__(self, decimals: int = 0) -> Self:
        return self.round(decimals)

    # --- comparison and logic ------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Self:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._call("eq", other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._call("ne", other)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Self:
        return self._call("lt", other)

    def __le__(self, other: Any) -> Self:
        return self._call("le", other)

    def __gt__(self, other: Any) -> Self:
        return self._call("gt", other)

    def __ge__(self, other: Any) -> Self:
        return self._call("ge", other)

    def __and__(self, other: Any) -> Self:
        return self._call("and", other)

    def __rand__(self, other: Any) -> Self:
        return self._value(other)._call("and", self)

    def __or__(self, other: Any) -> Self:
        return self._call("or", other)

    def __ror__(self, other: Any) -> Self:
        return self._value(other)._call("or", self)

    def __xor__(self, other: Any) -> Self:
        return self._call("xor", other)

    def __rxor__(self, other: Any) -> Self:
        return self._value(other)._call("xor", self)

    def __invert__(self) -> Self:
        return self._call("not")

    def __bool__(self) -> bool:
        raise DataTypeError(
            "An expression has no truth value before it runs.",
            remedy="Use & | ~ instead of and, or, not; or read it with .data().",
        )

    def __iter__(self) -> Any:
        raise TypeError("An expression cannot be looped over; read it with .data() or .iter_batches().")

    def between(self, low: Any, high: Any) -> Self:
        """Whether it lies between two values, both included."""
        return (self >= low) & (self <= high)

    def isin(self, values: Iterable[Any]) -> Self:
        """Whether it is one of these values."""
        return self._call("isin", list(values))

    def is_null(self) -> Self:
        return self._call("is_null")

    def is_not_null(self) -> Self:
        return self._call("is_not_null")

    def is_nan(self) -> Self:
        return self._call("is_nan")

    def is_finite(self) -> Self:
        return self._call("is_finite")

    # --- values --------------------------------------------------------------------------------------------------

    def if_else(self, then: Any, otherwise: Any) -> Self:
        """`then` where this condition holds, `otherwise` elsewhere (also where it is NULL)."""
        return self._call("if_else", then, otherwise)

    def fill_null(self, value: Any) -> Self:
        """The value where this is NULL."""
        return self._call("coalesce", value)

    def coalesce(self, *others: Any) -> Self:
        """The first of these that is not NULL."""
        return self._call("coalesce", *others)

    def null_if(self, value: Any) -> Self:
        """NULL where this equals the value."""
        return self._call("null_if", value)

    def least(self, *others: Any) -> Self:
        return self._call("least", *others)

    def greatest(self, *others: Any) -> Self:
        return self._call("greatest", *others)

    def clip(self, low: Any = None, high: Any = None) -> Self:
        """Not below `low`, not above `high`."""
        bounded = self if low is None else self._call("greatest", low)
        return bounded if high is None else bounded._call("least", high)

    def cast(self, kind: str | type) -> Self:
        """As another type (`"Int64"`, `float`, `"Nullable(String)"`); an integer that does not fit is an error."""
        return self._call("cast", params=(user_type(kind),))

    def try_cast(self, kind: str | type) -> Self:
        """As another type, NULL where that fails."""
        return self._call("try_cast", params=(user_type(kind),))

    def abs(self) -> Self:
        return self._call("abs")

    def sign(self) -> Self:
        return self._call("sign")

    def round(self, decimals: int = 0) -> Self:
        return self._call("round", params=(whole(decimals, "The number of decimals"),))

    def floor(self) -> Self:
        return self._call("floor")

    def ceil(self) -> Self:
        return self._call("ceil")

    def trunc(self) -> Self:
        return self._call("trunc")

    def sqrt(self) -> Self:
        return self._call("sqrt")

    def exp(self) -> Self:
        return self._call("exp")

    def log(self) -> Self:
        """Natural logarithm."""
        return self._call("log")

    def log2(self) -> Self:
        return self._call("log2")

    def log10(self) -> Self:
        return self._call("log10")

    def math(self, function: str, *args: Any) -> Self:
        """Any other mathematical function by name: sin, atan2, cbrt, degrees, …"""
        from aaiclick.data.functions.mathematics import FLOAT_FUNCTIONS

        if function not in FLOAT_FUNCTIONS and function not in ("atan2", "hypot"):
            raise DataTypeError(
                f"There is no mathematical function {function!r}.", remedy=f"There is: {', '.join(FLOAT_FUNCTIONS)}."
            )
        return self._call(function, *args)

    def hash(self) -> Self:
        """64-bit SipHash; never NULL."""
        return self._call("hash")

    def md5(self) -> Self:
        return self._call("md5")

    def sha1(self) -> Self:
        return self._call("sha1")

    def sha256(self) -> Self:
        return self._call("sha256")

    # --- aggregates ----------------------------------------------------------------------------------------------

    def sum(self) -> Self:
        return self._call("sum")

    def min(self) -> Self:
        return self._call("min")

    def max(self) -> Self:
        return self._call("max")

    def mean(self) -> Self:
        return self._call("mean")

    def std(self, ddof: int = 1) -> Self:
        return self._call("std", params=(_ddof(ddof),))

    def var(self, ddof: int = 1) -> Self:
        return self._call("var", params=(_ddof(ddof),))

    def median(self) -> Self:
        return self.quantile(0.5)

    def quantile(self, q: float) -> Self:
        """The exact quantile, interpolated between neighbours as NumPy does."""
        if not isinstance(q, int | float) or not 0 <= q <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataTypeError(f"A quantile lies between 0 and 1, not at {q}.")
        return self._call("quantile", params=(float(q),))

    def nunique(self) -> Self:
        return self._call("nunique")

    def count_if(self) -> Self:
        return self._call("count_if")

    def any(self) -> Self:
        return self._call("any")

    def all(self) -> Self:
        return self._call("all")

    def first(self) -> Self:
        return self._positional("first")

    def last(self) -> Self:
        return self._positional("last")

    def argmin(self) -> Self:
        """Position of the least value."""
        return self._positional("arg_min")

    def argmax(self) -> Self:
        """Position of the greatest value."""
        return self._positional("arg_max")

    def collect(self) -> Self:
        """All values as one array, in row order."""
        return self._positional("collect")

    def corr(self, other: Any) -> Self:
        """Pearson correlation with another column."""
        return self._call("corr", other)

    def cov(self, other: Any) -> Self:
        return self._call("cov", other)

    # --- windows -------------------------------------------------------------------------------------------------

    def shift(self, rows: int = 1) -> Self:
        """The value this many rows earlier (later, if negative); NULL outside."""
        return self._window("shift", params=(whole(rows, "The number of rows"),))

    def diff(self, rows: int = 1) -> Self:
        """The difference to the value this many rows earlier."""
        return self - self.shift(rows)

    def cum_sum(self) -> Self:
        return self._window("sum", frame=CUMULATIVE)

    def cum_min(self) -> Self:
        return self._window("min", frame=CUMULATIVE)

    def cum_max(self) -> Self:
        return self._window("max", frame=CUMULATIVE)

    def cum_mean(self) -> Self:
        return self._window("mean", frame=CUMULATIVE)

    def cum_count(self) -> Self:
        return self._window("count", frame=CUMULATIVE)

    def rolling(self, function: str, rows: int) -> Self:
        """sum, mean, min, max, std, var or count of the last `rows` rows, this one included."""
        if function not in ("sum", "mean", "min", "max", "count", "std", "var") or rows < 1:
            raise DataTypeError(
                f"There is no rolling {function!r} over {rows} rows.",
                remedy="Use sum, mean, min, max, std, var or count.",
            )
        params = (1,) if function in ("std", "var") else ()
        return self._window(function, params=params, frame=(f"{int(rows) - 1} PRECEDING", "CURRENT ROW"))

    def rank(self, *, dense: bool = False, descending: bool = False) -> Self:
        """Position in order of value from 1; equal values share one."""
        return self._window("dense_rank" if dense else "rank", order=((self, descending),), natural=False)

    # --- by kind of value ----------------------------------------------------------------------------------------

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


def _is_small(value: object) -> bool:
    """A positive whole number by which division is simple and fast."""
    return type(value) is int and 0 < value < 1 << 31


def _micros(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _ddof(ddof: int) -> int:
    if ddof not in (0, 1):
        raise DataTypeError(f"ddof is 0 or 1, not {ddof}.")
    return ddof
