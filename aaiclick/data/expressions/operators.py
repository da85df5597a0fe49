"""Operators and methods shared by expressions (`col("x")`) and columns of Objects (`obj["x"]`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self, cast

from aaiclick.data.argument_checks import check_methods
from aaiclick.data.errors import DataTypeError, UnreadValueError, check_integer
from aaiclick.data.expressions.aggregate_methods import AggregateMethods
from aaiclick.data.expressions.literals import to_micros
from aaiclick.data.expressions.method_namespaces import (
    DateMethods,
    JsonMethods,
    ListMethods,
    MapMethods,
    StructMethods,
    TextMethods,
)
from aaiclick.data.expressions.selectors import check_mapping
from aaiclick.data.expressions.window_methods import WindowMethods
from aaiclick.data.method_hints import EXPRESSION_HINTS, unknown_method
from aaiclick.data.types import user_type

METHOD_GROUPS = {
    "str": TextMethods, "dt": DateMethods, "list": ListMethods, "map": MapMethods, "struct": StructMethods,
    "json": JsonMethods,
}  # fmt: skip
MAX_CONSTANT_EXPONENT = 64
MAX_QUANTILES = 1_000
UNCHANGED: Final = object()
"""Default of `replace`: values that are not replaced stay as they are."""


@check_methods
class ExpressionMethods(AggregateMethods, WindowMethods):
    """Operators and functions."""

    __array_priority__ = 1_000  # an operator with a NumPy array at the left is this class's

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name == "inner":
                raise AttributeError(name)
            raise unknown_method("Expressions", name, EXPRESSION_HINTS, METHOD_GROUPS, dir(type(self)))

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: object) -> Self:
        if isinstance(other, timedelta):
            return self._apply_function("add_duration", params=(to_micros(other),))
        return self._apply_function("add", other)

    def __radd__(self, other: object) -> Self:
        if isinstance(other, timedelta):
            return self + other
        return self._lift_value(other)._apply_function("add", self)

    def __sub__(self, other: object) -> Self:
        if isinstance(other, timedelta):
            return self._apply_function("add_duration", params=(-to_micros(other),))
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
            remedy="Use & | ~ instead of and, or, not; read it with .data(); or compare: `rows is not None`.",
        )

    def __iter__(self) -> Any:
        raise UnreadValueError(
            "An expression cannot be iterated before it runs.",
            remedy="Read it: 'for row in await rows.data()', or in parts with 'async for … in rows.iter_batches()'.",
        )

    def between(self, low: object, high: object) -> Self:
        """Whether it lies between two values, inclusive."""
        return (self >= low) & (self <= high)

    def isin(self, values: Iterable[object]) -> Self:
        """Whether it is one of these values, or one of the values of an Object with one column."""
        if isinstance(values, str | bytes | ExpressionMethods) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataTypeError(f"isin takes a list of values, not {values!r:.60}.", remedy="For example isin([1, 2]).")
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

    def fill_nan(self, value: object) -> Self:
        """Replace NaN by a value; NULL stays NULL."""
        return self.is_nan().if_else(value, self)

    def replace(self, mapping: Mapping[Any, object], default: object = UNCHANGED) -> Self:
        """Replace values by those of a dict, in which None is NULL; others become `default`, or stay as they are."""
        pairs = check_mapping(mapping, "replace")
        keys = [key for key in pairs if key is not None]
        otherwise = self if default is UNCHANGED else default
        replaced = (
            self._apply_function("replace_values", keys, [pairs[key] for key in keys], otherwise)
            if keys
            else self.is_null().if_else(None, otherwise)
        )
        if None in pairs:
            return self.is_null().if_else(pairs[None], replaced)
        return replaced if default is UNCHANGED else self.is_null().if_else(default, replaced)

    def cut(self, breaks: Sequence[float], labels: Sequence[object] | None = None) -> Self:
        """Label of the interval that contains the number; intervals include their upper end. NaN is above all.

        Without `labels` they are texts such as `(-inf, 10]`, `(10, 20]`, `(20, inf]`.
        """
        bounds = _check_increasing(breaks, "The breaks")
        ends = ["-inf", *(f"{bound:g}" for bound in bounds), "inf"]
        texts = [f"({low}, {high}]" for low, high in pairwise(ends)]
        return self._label_intervals(bounds, texts if labels is None else labels)

    def qcut(self, quantiles: int | Sequence[float], labels: Sequence[object] | None = None) -> Self:
        """Number, from 0, or label of the range between quantiles; 4 divides the values into quarters."""
        if isinstance(quantiles, int):
            if not 0 < quantiles <= MAX_QUANTILES:
                raise DataTypeError(f"The number of ranges must lie between 1 and {MAX_QUANTILES}, not {quantiles}.")
            levels = [number / quantiles for number in range(1, quantiles)]
        else:
            levels = _check_increasing(quantiles, "The quantiles")
        chosen = list(range(len(levels) + 1)) if labels is None else labels
        return self._label_intervals([self.quantile(level) for level in levels], chosen)

    def _label_intervals(self, bounds: Sequence[object], labels: Sequence[object]) -> Self:
        if len(labels) != len(bounds) + 1:
            raise DataTypeError(f"{len(bounds)} breaks need {len(bounds) + 1} labels, not {len(labels)}.")
        branches = [part for bound, label in zip(bounds, labels, strict=False) for part in (self <= bound, label)]
        return self.is_null()._apply_function("case", None, *branches, labels[-1])

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


def _check_increasing(values: object, label: str) -> Sequence[float]:
    """Return increasing numbers; raise DataTypeError for anything else."""
    numbers = cast("list[Any]", list(values)) if isinstance(values, list | tuple | range) else []  # pyright: ignore[reportUnknownArgumentType]
    is_valid = all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
    if not numbers or not is_valid or any(not low < high for low, high in pairwise(numbers)):
        raise DataTypeError(f"{label} must be increasing numbers, not {values!r:.60}.")
    return numbers


def _is_fast_divisor(value: object) -> bool:
    """Whether the value is a positive 31-bit integer constant, for which division needs no NULL and overflow checks."""
    return type(value) is int and 0 < value < 1 << 31


def _canonical_value(value: object) -> object:
    """Return 0.0 for -0.0, and NULL for NaN, which equals nothing."""
    if not isinstance(value, float):
        return value
    return None if value != value else value + 0.0
