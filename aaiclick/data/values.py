"""Python values in: anything a user may hold becomes an Arrow table with ClickHouse types, or an error that says why
not.

Nothing is changed silently. What ClickHouse cannot hold as it is (a missing dict among dicts, dicts with different
keys, a
missing list) is kept as JSON text and comes back as it was.
"""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.arrow import arrow_type, clickhouse_type, fits
from aaiclick.data.errors import ConversionError
from aaiclick.data.families import foreign
from aaiclick.data.literals import zone_name
from aaiclick.data.tables import VALUE, Shape, check_column_names
from aaiclick.data.types import DataType, user_type

Schema = Mapping[str, str | type]
DEEPEST = 60
"""Levels of nested lists and dicts; Arrow's own format ends at 64."""

SCALARS = (bool, int, float, str, bytes, date, datetime, Decimal, UUID)


@dataclass(frozen=True)
class Whole:
    """A list or dict that is one value, and neither rows nor columns."""

    value: Any


@dataclass(frozen=True)
class Rows:
    """Values ready to be stored."""

    table: pa.Table
    columns: tuple[tuple[str, DataType], ...]
    shape: Shape


def rows_of(value: Any, schema: Schema | None = None, *, streamed: bool = False) -> Rows:
    """Any supported value as rows; `streamed` makes columns nullable, since later batches may hold NULLs."""
    shape, columns = _columns(value)
    if not columns:
        raise ConversionError("There are no columns.", remedy='Name at least one: {"x": []}.')
    check_column_names(columns)
    wanted = types_of(schema)
    unknown = next((name for name in wanted if name not in columns), None)
    if unknown is not None:
        raise ConversionError(
            f"schema= names a column {unknown!r} that is not there.", remedy=f"There is: {', '.join(columns)}."
        )
    _same_lengths(columns)
    arrays: dict[str, pa.ChunkedArray] = {}
    kinds: list[tuple[str, DataType]] = []
    for name, values in columns.items():
        array, kind = _stored(name, values, wanted.get(name))
        if streamed and name not in wanted:
            kind = kind.as_nullable()
        arrays[name] = array
        kinds.append((name, kind))
    return Rows(pa.table(arrays), tuple(kinds), shape)


def types_of(schema: Schema | None) -> dict[str, DataType]:
    """A schema as users write it, read."""
    if schema is not None and not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConversionError(
            f"schema= is {schema!r:.60}.", remedy='It is a dict of columns and types, such as {"x": "Int64"}.'
        )
    return {name: user_type(kind) for name, kind in (schema or {}).items()}


def conform(value: Any, columns: tuple[tuple[str, DataType], ...], place: str) -> pa.Table:
    """Another batch for a table whose columns are fixed."""
    if isinstance(value, Iterator | AsyncIterator):
        raise ConversionError(
            f"{place} is an iterator, and one batch at a time is wanted here.", remedy="Give each batch by itself."
        )
    _, given = _columns(value)
    names = [name for name, _ in columns]
    if sorted(given) != sorted(names):
        missing, extra = sorted(set(names) - set(given)), sorted(set(given) - set(names))
        raise ConversionError(
            f"{place} has other columns: missing {missing}, unexpected {extra}.",
            remedy="Give each batch the same columns.",
        )
    _same_lengths(given)
    return pa.table({name: _another(name, given[name], kind, place) for name, kind in columns})


def _another(name: str, values: Any, kind: DataType, place: str) -> pa.ChunkedArray:
    """More values of a column that is there: never cast to what they are not."""
    if kind.logical == "json":
        return _stored(name, values, kind)[0]
    with _explained(name):
        array = _as_arrow(name, values)
        said = foreign(array.type, arrow_type(kind))
        if said is not None:
            raise ConversionError(
                f"{place} has other values in column {name!r}, which is {kind}: {said}.",
                remedy="Convert them before, or say the type when the column is made (schema=).",
            )
        if kind.is_structure and (array.null_count or _hides_nulls(array.cast(arrow_type(kind)))):
            raise ConversionError(
                f"{place} has NULL in column {name!r}, which is {kind}.",
                remedy="ClickHouse holds no NULL in place of a list or dict: give an empty one, or leave the row out.",
            )
        return _from_arrow(name, array, kind)[0]


def _as_arrow(name: str, values: Any) -> pa.ChunkedArray:
    """Values with the type they have by themselves."""
    if isinstance(values, list):
        present = [each for each in cast("list[Any]", values) if each is not None]
        _one_kind(name, present)
        if present and all(type(each) is int and each >= 0 for each in present) and max(present) >= 1 << 63:
            return pa.chunked_array([pa.array(values, pa.uint64())])
        values = pa.array(_prepared(present, cast("list[Any]", values)), from_pandas=False)
    array = pa.chunked_array([values]) if isinstance(values, pa.Array) else cast("pa.ChunkedArray", values)
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


# --- shapes ------------------------------------------------------------------------------------------------------


def _columns(value: Any) -> tuple[Shape, dict[str, Any]]:
    """What kind of thing it is, and its columns as Arrow arrays or Python lists."""
    if value is None or isinstance(value, SCALARS) or _is_numpy_scalar(value):
        return "scalar", {VALUE: [value]}
    if isinstance(value, Whole):
        return "scalar", {VALUE: [value.value]}
    if isinstance(value, pa.Table | pa.RecordBatch):
        check_column_names(value.schema.names)
        return "table", {name: value.column(i) for i, name in enumerate(value.schema.names)}
    if isinstance(value, pa.ChunkedArray | pa.Array):
        return "column", {VALUE: value}
    frame = _frame_columns(value)
    if frame is not None:
        return frame
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[str, Any]", value))
    if isinstance(value, list | tuple | set | frozenset | range):
        return _sequence(list(cast("Sequence[Any]", value)))
    raise ConversionError(
        f"A {type(value).__module__}.{type(value).__name__} cannot become an Object.",
        remedy="Use a scalar, a list, a dict of columns, a list of dicts, Arrow, pandas, polars, NumPy,"
        " or an iterator of these.",
    )


def _mapping(value: Mapping[str, Any]) -> tuple[Shape, dict[str, Any]]:
    if not value:
        raise ConversionError("An empty dict has no columns.", remedy='Name at least one: {"x": []}.')
    as_lists = {name: _as_list(column) for name, column in value.items()}
    if all(column is None for column in as_lists.values()):
        return "record", {name: [each] for name, each in value.items()}
    mixed = next((name for name, column in as_lists.items() if column is None), None)
    if mixed is not None:
        raise ConversionError(f"Column {mixed!r} is not a list, but others are.", remedy="Give every column as a list.")
    return "table", as_lists


def _as_list(column: Any) -> Any:
    if isinstance(column, list | tuple | range | set | frozenset):
        return list(cast("Sequence[Any]", column))
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    frame = _frame_columns(column)
    return None if frame is None else next(iter(frame[1].values()))


def _sequence(values: list[Any]) -> tuple[Shape, dict[str, Any]]:
    if values and all(isinstance(each, Mapping) for each in values):
        rows = cast("list[Mapping[str, Any]]", values)
        names = list(dict.fromkeys(name for row in rows for name in row))
        if names:
            return "table", {name: [row.get(name) for row in rows] for name in names}
    return "column", {VALUE: values}


def _is_numpy_scalar(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0


def _frame_columns(value: Any) -> tuple[Shape, dict[str, Any]] | None:
    """pandas, polars and NumPy, recognised without importing them."""
    module, kind = type(value).__module__.split(".")[0], type(value).__name__
    if module == "polars" and kind == "DataFrame":
        return "table", {name: value[name].to_arrow() for name in value.columns}
    if module == "polars" and kind == "Series":
        return "column", {VALUE: value.to_arrow()}
    if module == "pandas" and kind == "DataFrame":
        check_column_names(str(name) for name in value.columns)
        return "table", {str(name): _from_pandas(str(name), value[name]) for name in value.columns}
    if module == "pandas" and kind in ("Series", "Index"):
        return "column", {VALUE: _from_pandas(VALUE, value)}
    if module == "numpy" and kind == "ndarray":
        return _numpy_columns(value)
    return None


def _from_pandas(name: str, values: Any) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ConversionError(
            f"Column {name!r} of dtype {values.dtype} cannot be stored: {error}.",
            remedy="Make its values of one kind (astype).",
        ) from None


def _numpy_columns(value: Any) -> tuple[Shape, dict[str, Any]]:
    if value.dtype.names:
        return "table", {name: pa.array(value[name]) for name in value.dtype.names}
    if value.ndim == 1:
        return "column", {VALUE: value.tolist() if value.dtype.kind == "O" else pa.array(value)}
    return "column", {VALUE: value.tolist()}


def _same_lengths(columns: Mapping[str, Any]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ConversionError(f"The columns differ in length: {shown}.", remedy="Give each the same number of values.")


# --- one column --------------------------------------------------------------------------------------------------


def _stored(name: str, values: Any, wanted: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    with _explained(name):
        return _column(name, values, wanted)


@contextmanager
def _explained(name: str) -> Generator[None]:
    try:
        yield
    except UnicodeEncodeError:
        raise ConversionError(
            f"Column {name!r} holds text that is not Unicode: half of a pair.", remedy="Use bytes."
        ) from None
    except RecursionError:
        raise ConversionError(
            f"Column {name!r} holds values that are nested too deeply.", remedy="Flatten them."
        ) from None
    except pa.ArrowException as error:
        raise ConversionError(f"Column {name!r} cannot be stored: {error}.", remedy="Choose another type.") from None
    except OverflowError:
        raise ConversionError(
            f"Column {name!r} cannot be stored: it holds integers beyond 64 bits.", remedy="Use Decimal, or text."
        ) from None


def _column(name: str, values: Any, wanted: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    if isinstance(values, list):
        return _from_python(name, cast("list[Any]", values), wanted)
    array = pa.chunked_array([values]) if isinstance(values, pa.Array) else cast("pa.ChunkedArray", values)
    return _from_arrow(name, array, wanted)


def _from_arrow(name: str, array: pa.ChunkedArray, wanted: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if _depth(array.type) > DEEPEST:
        raise RecursionError
    if _hides_nulls(array):
        return _from_python(name, array.to_pylist(), wanted)
    kind = wanted or clickhouse_type(name, array.type)
    if wanted is None and (array.null_count or pa.types.is_null(array.type)):
        kind = kind.as_nullable()
    if not kind.nullable and not kind.is_structure and array.null_count:
        raise ConversionError(
            f"Column {name!r} is {kind}, but {array.null_count} of its values are NULL.",
            remedy=f"Use Nullable({kind}).",
        )
    target = arrow_type(kind)
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
            array = array.cast(pa.decimal256(76, target.scale))  # Arrow asks for room for any integer first
        converted = array if array.type == target else array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConversionError(
            f"Column {name!r} does not fit {kind}: {error}.", remedy="Choose a type that holds all its values."
        ) from None
    fits(name, converted, kind)
    _kept(name, array, converted, kind)
    return converted, kind


def _kept(name: str, array: pa.ChunkedArray, converted: pa.ChunkedArray, kind: DataType) -> None:
    """Arrow rounds floats into decimals, and makes large ones infinite, without a word."""
    if not pa.types.is_floating(array.type) or array.type == converted.type:
        return
    back = converted.cast(pa.float64())
    own = array.cast(pa.float64())
    if pa.types.is_decimal(converted.type):
        changed = pc.fill_null(pc.not_equal(back, own), False)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        changed = pc.and_(pc.is_inf(back), pc.is_finite(own))  # pyright: ignore[reportAttributeAccessIssue]
    if cast("Any", pc).any(changed).as_py():
        raise ConversionError(
            f"Column {name!r} does not fit {kind}: some of its values would become others.",
            remedy="Choose a type that holds all its values, or round them first.",
        )


def _depth(kind: Any) -> int:
    return 1 + max((_depth(kind.field(i).type) for i in range(kind.num_fields)), default=0)


def _hides_nulls(array: pa.ChunkedArray) -> bool:
    """Whether a list or struct is NULL somewhere, which ClickHouse cannot hold as such."""
    kind = array.type
    if pa.types.is_struct(kind):
        return (
            bool(array.null_count)
            or any(_hides_nulls(cast("Any", pc).struct_field(array, [i])) for i in range(kind.num_fields))
            or kind.num_fields == 0
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if array.null_count:
            return True
        flat = cast("Any", pc).list_flatten(array)
        return not pa.types.is_primitive(kind.value_type) and _hides_nulls(
            flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])
        )
    return False


def _from_python(name: str, values: list[Any], wanted: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    if wanted is not None and wanted.logical == "json":
        return _as_json(name, values)
    present = [each for each in values if each is not None]
    if (
        present
        and isinstance(present[0], Mapping | list | tuple)
        and (len(present) < len(values) or not _regular(present))
    ):
        return _as_json(name, values)
    _one_kind(name, present)
    if any(isinstance(each, Decimal) and not each.is_finite() for each in present):
        raise ConversionError(
            f"Column {name!r} holds a Decimal that is not a number.", remedy="Use None, or a float's NaN."
        )
    try:
        array = pa.array(_prepared(present, values), from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        return _wide_integers(name, values, wanted, error)
    return _from_arrow(name, pa.chunked_array([array]), wanted if wanted is not None or present else None)


def _wide_integers(
    name: str, values: list[Any], wanted: DataType | None, error: Exception
) -> tuple[pa.ChunkedArray, DataType]:
    if all(each is None or (isinstance(each, int) and 0 <= each < 1 << 64) for each in values):
        return _from_arrow(name, pa.chunked_array([pa.array(values, pa.uint64())]), wanted)
    if isinstance(error, OverflowError):
        raise error
    raise ConversionError(
        f"Column {name!r} cannot be stored: {error}.", remedy="Make its values of one kind, or pass schema=."
    ) from None


def _prepared(present: list[Any], values: list[Any]) -> list[Any]:
    """Datetimes of several zones would be read in the first one's; as moments in UTC they are all right."""
    if not present or not isinstance(present[0], datetime):
        return (
            [each.item() if _is_numpy_scalar(each) else each for each in values]
            if present and _is_numpy_scalar(present[0])
            else values
        )
    zones = {zone_name(each) if each.tzinfo else "" for each in present}
    if len(zones) == 1 and (zones == {""} or zones != {"UTC"}):
        return values
    return [each if each is None else each.astimezone(UTC) for each in values]


_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("bool", (bool,)),
    ("number", (int, float)),
    ("Decimal", (Decimal,)),
    ("str", (str,)),
    ("bytes", (bytes, bytearray)),
    ("datetime", (datetime,)),
    ("date", (date,)),
    ("UUID", (UUID,)),
    ("dict", (Mapping,)),
    ("list", (list, tuple)),
)


_PLAIN: frozenset[type] = frozenset({bool, int, float, Decimal, str, bytes, date, UUID})
"""Types whose values, when all of one such type, have nothing to be refused for."""


def _one_kind(name: str, present: list[Any]) -> None:
    """Refuse what Arrow would quietly unify (True and 2, naive and aware) or complain about less clearly."""
    if len(types := set(map(type, present))) == 1 and types <= _PLAIN:
        return  # the usual column, told without a step per value
    first: str | None = None
    whole = fractional = False
    for place, value in enumerate(present):
        value = value.item() if _is_numpy_scalar(value) else value
        if isinstance(value, time | timedelta):
            raise ConversionError(
                f"Column {name!r} holds a {type(value).__name__}, which has no ClickHouse type.",
                remedy="Use seconds as a number.",
            )
        kind = next((word for word, types in _KINDS if isinstance(value, types)), type(value).__name__)
        if kind == "datetime" and value.tzinfo is not None:
            kind = "datetime with a time zone"
        first = first or kind
        if kind != first:
            raise ConversionError(
                f"Column {name!r} mixes {first} and {kind} (value {place}: {value!r:.60}).",
                remedy="Make its values of one kind.",
            )
        if kind == "number":
            whole = whole or (isinstance(value, int) and abs(value) > 1 << 53)
            fractional = fractional or isinstance(value, float)
    if whole and fractional:
        raise ConversionError(
            f"Column {name!r} mixes fractions with integers beyond 2**53, which a float cannot hold.",
            remedy="Use Decimal.",
        )


def _regular(values: list[Any]) -> bool:
    """Whether nested values have one form throughout, so that a Tuple or Array holds them exactly."""
    if isinstance(values[0], Mapping):
        keys = list(cast("Mapping[Any, Any]", values[0]))
        if not keys or any(
            not isinstance(each, Mapping) or list(cast("Mapping[str, Any]", each)) != keys for each in values
        ):
            return False
        return all(isinstance(key, str) and _regular_inside([each[key] for each in values]) for key in keys)
    if isinstance(values[0], list | tuple):
        if any(not isinstance(each, list | tuple) for each in values):
            return False
        inner = [each for value in values for each in value]
        return not inner or _regular_inside(inner)
    return True


def _regular_inside(values: list[Any]) -> bool:
    present = [each for each in values if each is not None]
    if present and isinstance(present[0], Mapping | list | tuple):
        return len(present) == len(values) and _regular(present)
    kinds = {next((word for word, types in _KINDS if isinstance(each, types)), type(each).__name__) for each in present}
    return len(kinds) == 1 and not any(isinstance(each, Mapping | list | tuple) for each in present)


def _as_json(name: str, values: list[Any]) -> tuple[pa.ChunkedArray, DataType]:
    try:
        texts = [None if each is None else json.dumps(each, ensure_ascii=False, allow_nan=False) for each in values]
        if any(
            text is not None and json.loads(text) != _listed(each) for text, each in zip(texts, values, strict=True)
        ):
            raise TypeError("its keys are not all strings")
    except (TypeError, ValueError) as error:
        raise ConversionError(
            f"Column {name!r} holds nested values of several forms, and they are not JSON either: {error}.",
            remedy="Give every dict the same keys and kinds of values.",
        ) from None
    kind = DataType("String", nullable=any(each is None for each in values), logical="json")
    return pa.chunked_array([pa.array(texts, pa.string())]), kind


def _listed(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_listed(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        return {key: _listed(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    return value
