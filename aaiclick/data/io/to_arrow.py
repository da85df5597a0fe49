"""Conversion of Python values to Arrow tables with ClickHouse types.

No value is changed silently. Nested values that ClickHouse has no type for (dicts with different keys) are stored as
JSON text and converted back on reading.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.errors import ConversionError
from aaiclick.data.io.arrow_nullable_structures import to_storage, with_null_structures
from aaiclick.data.io.arrow_types import arrow_type, check_range, clickhouse_type
from aaiclick.data.io.lossy_cast_checks import find_mismatch
from aaiclick.data.io.python_values import (
    check_single_type,
    have_same_structure,
    is_numpy_scalar,
    prepare_values,
    to_json_column,
    to_structures,
)
from aaiclick.data.runtime.tables import VALUE, Shape, check_column_names
from aaiclick.data.types import DataType, iter_types, user_type

Schema = Mapping[str, str | type]
MAX_DEPTH = 60
"""Levels of nested lists and dicts; Arrow's format supports 64."""

SCALARS = (bool, int, float, str, bytes, date, datetime, timedelta, Decimal, UUID)


@dataclass(frozen=True)
class SingleValue:
    """Marks a list or dict as one value instead of rows or columns."""

    value: Any


class NullStructureError(ConversionError):
    """A list, struct or map is NULL in a column that was not declared so; `wider` is the type that holds it."""

    def __init__(self, name: str, dtype: DataType, wider: DataType) -> None:
        super().__init__(f"Column {name!r} is {dtype}, but has NULL.", remedy=f"Use {wider}.")
        self.name = name
        self.wider = wider


@dataclass(frozen=True)
class ArrowRows:
    """Converted values with their column types and shape."""

    table: pa.Table
    columns: tuple[tuple[str, DataType], ...]
    shape: Shape


def to_arrow_rows(value: object, schema: Schema | None = None, *, streamed: bool = False) -> ArrowRows:
    """Convert any supported value to rows; `streamed` makes columns nullable, since later batches may have NULLs."""
    shape, columns = _split_columns(value)
    if not columns:
        raise ConversionError("There are no columns.", remedy='Name at least one: {"x": []}.')
    check_column_names(columns)
    requested = parse_schema(schema)
    unknown = next((name for name in requested if name not in columns), None)
    if unknown is not None:
        raise ConversionError(
            f"schema= names an unknown column {unknown!r}.", remedy=f"The columns are: {', '.join(columns)}."
        )
    _check_lengths(columns)
    arrays: dict[str, pa.ChunkedArray] = {}
    dtypes: list[tuple[str, DataType]] = []
    for name, values in columns.items():
        array, dtype = _convert_column(name, values, requested.get(name))
        if streamed and name not in requested:
            dtype = dtype.as_nullable()
        arrays[name] = array
        dtypes.append((name, dtype))
    return ArrowRows(pa.table(arrays), tuple(dtypes), shape)


def parse_schema(schema: Schema | None) -> dict[str, DataType]:
    """Parse a schema as users write it."""
    if schema is not None and not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConversionError(
            f"schema= is {schema!r:.60}.", remedy='It is a dict of columns and types, such as {"x": "Int64"}.'
        )
    return {name: user_type(dtype) for name, dtype in (schema or {}).items()}


def conform_batch(value: object, columns: tuple[tuple[str, DataType], ...], label: str) -> pa.Table:
    """Convert a further batch to the fixed columns of a table."""
    if isinstance(value, Iterator | AsyncIterator):
        raise ConversionError(
            f"{label} is an iterator, but a single batch is expected.", remedy="Pass each batch by itself."
        )
    _, values = _split_columns(value)
    names = [name for name, _ in columns]
    if set(values) != set(names):
        missing, extra = sorted(set(names) - set(values)), sorted(set(values) - set(names), key=str)
        raise ConversionError(
            f"{label} has other columns: missing {missing}, unexpected {extra}.",
            remedy="Give each batch the same columns.",
        )
    _check_lengths(values)
    return pa.table({name: _convert_batch_column(name, values[name], dtype, label) for name, dtype in columns})


def _convert_batch_column(name: str, values: object, dtype: DataType, label: str) -> pa.ChunkedArray:
    """Convert further values of an existing column; raises where a cast would change them."""
    if dtype.logical == "json":
        return _convert_column(name, values, dtype)[0]
    with _explain_errors(name):
        array = _as_arrow(name, values)
        mismatch = find_mismatch(array.type, arrow_type(dtype))
        if mismatch is not None:
            raise ConversionError(
                f"{label} has other values in column {name!r}, which is {dtype}: {mismatch}.",
                remedy="Convert them first, or set the type when the column is created (schema=).",
            )
        if dtype.is_structure and with_null_structures(array.cast(arrow_type(dtype)), dtype) != dtype:
            raise ConversionError(
                f"{label} has NULL in column {name!r}, which is {dtype}.",
                remedy="Create the column as Nullable (schema=), use an empty list or dict, or leave the row out.",
            )
        return _from_arrow(name, array, dtype)[0]


def conform_table(table: pa.Table, columns: tuple[tuple[str, DataType], ...]) -> pa.Table:
    """Convert the rows of a file to the stored form of columns; a missing column is NULL."""
    arrays: dict[str, pa.ChunkedArray] = {}
    for name, dtype in columns:
        with _explain_errors(name):
            values = table.column(name) if name in table.column_names else pa.chunked_array([pa.nulls(table.num_rows)])
            arrays[name] = _from_arrow(name, values, dtype)[0]
    return pa.table(arrays)


def _as_arrow(name: str, values: object) -> pa.ChunkedArray:
    """Convert values to Arrow with inferred types."""
    if isinstance(values, list):
        values = cast("list[Any]", values)
        present = [value for value in values if value is not None]
        check_single_type(name, present)
        if present and all(type(value) is int and value >= 0 for value in present) and max(present) >= 1 << 63:
            return pa.chunked_array([pa.array(values, pa.uint64())])
        values = pa.array(prepare_values(present, values), from_pandas=False)
    array = pa.chunked_array([values]) if isinstance(values, pa.Array) else cast("pa.ChunkedArray", values)
    return _decode_dictionary(array) if pa.types.is_dictionary(array.type) else array


# --- shapes ------------------------------------------------------------------------------------------------------


def _split_columns(value: object) -> tuple[Shape, dict[str, object]]:
    """Return the shape of a value, and its columns as Arrow arrays or Python lists."""
    if value is None or isinstance(value, SCALARS) or is_numpy_scalar(value):
        return "scalar", {VALUE: [value]}
    if isinstance(value, SingleValue):
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
        return _mapping_columns(cast("Mapping[str, Any]", value))
    if isinstance(value, list | tuple | set | frozenset | range):
        return _sequence_columns(list(cast("Sequence[Any]", value)))
    raise ConversionError(
        f"A {type(value).__module__}.{type(value).__name__} cannot become an Object.",
        remedy="Use a scalar, a list, a dict of columns, a list of dicts, Arrow, pandas, polars, NumPy,"
        " or an iterator of these.",
    )


def _mapping_columns(value: Mapping[str, object]) -> tuple[Shape, dict[str, object]]:
    if not value:
        raise ConversionError("An empty dict has no columns.", remedy='Name at least one: {"x": []}.')
    as_lists = {name: _as_list(column) for name, column in value.items()}
    if all(column is None for column in as_lists.values()):
        return "record", {name: [item] for name, item in value.items()}
    mixed = next((name for name, column in as_lists.items() if column is None), None)
    if mixed is not None:
        raise ConversionError(f"Column {mixed!r} is not a list, but others are.", remedy="Give every column as a list.")
    return "table", as_lists


def _as_list(column: object) -> object:
    if isinstance(column, list | tuple | range | set | frozenset):
        return list(cast("Sequence[Any]", column))
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    frame = _frame_columns(column)
    return None if frame is None else next(iter(frame[1].values()))


def _sequence_columns(values: list[object]) -> tuple[Shape, dict[str, object]]:
    if values and all(isinstance(item, Mapping) for item in values):
        rows = cast("list[Mapping[str, Any]]", values)
        names = list(dict.fromkeys(name for row in rows for name in row))
        if names:
            return "table", {name: [row.get(name) for row in rows] for name in names}
    return "column", {VALUE: values}


def _frame_columns(value: Any) -> tuple[Shape, dict[str, object]] | None:
    """Return the columns of a pandas, polars or NumPy value, detected without importing those libraries."""
    module, class_name = type(value).__module__.split(".")[0], type(value).__name__
    if module == "polars" and class_name == "DataFrame":
        return "table", {name: value[name].to_arrow() for name in value.columns}
    if module == "polars" and class_name == "Series":
        return "column", {VALUE: value.to_arrow()}
    if module == "pandas" and class_name == "DataFrame":
        check_column_names(str(name) for name in value.columns)
        _check_index(value)
        return "table", {str(name): _from_pandas(str(name), value[name]) for name in value.columns}
    if module == "pandas" and class_name in ("Series", "Index"):
        return "column", {VALUE: _from_pandas(VALUE, value)}
    if module == "numpy" and class_name == "ndarray":
        return _numpy_columns(value)
    return None


def _check_index(frame: Any) -> None:
    """Raise ConversionError for an index with a name, such as the keys of a group_by: it would be lost."""
    names = [name for name in frame.index.names if name is not None]
    if names:
        raise ConversionError(
            f"The frame has the index {', '.join(map(repr, names))}, and an index is not stored.",
            remedy="Call reset_index() to keep it as a column, or reset_index(drop=True).",
        )


def _from_pandas(name: str, values: Any) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ConversionError(
            f"Column {name!r} of dtype {values.dtype} cannot be stored: {error}.",
            remedy="Make its values of one kind (astype).",
        ) from None


def _numpy_columns(value: Any) -> tuple[Shape, dict[str, object]]:
    if value.dtype.names:
        return "table", {name: pa.array(value[name]) for name in value.dtype.names}
    if value.ndim == 1:
        return "column", {VALUE: value.tolist() if value.dtype.kind == "O" else pa.array(value)}
    return "column", {VALUE: value.tolist()}


def _check_lengths(columns: Mapping[str, Any]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ConversionError(f"The columns differ in length: {shown}.", remedy="Give each the same number of values.")


# --- one column --------------------------------------------------------------------------------------------------


def _convert_column(name: str, values: object, requested: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    with _explain_errors(name):
        return _dispatch_column(name, values, requested)


@contextmanager
def _explain_errors(name: str) -> Generator[None]:
    try:
        yield
    except UnicodeEncodeError:
        raise ConversionError(
            f"Column {name!r} contains text that is not valid Unicode: a lone surrogate.", remedy="Use bytes."
        ) from None
    except RecursionError:
        raise ConversionError(
            f"Column {name!r} holds values that are nested too deeply.", remedy="Flatten them."
        ) from None
    except pa.ArrowException as error:
        raise ConversionError(f"Column {name!r} cannot be stored: {error}.", remedy="Choose another type.") from None
    except OverflowError:
        raise ConversionError(
            f"Column {name!r} cannot be stored: it holds integers, or microseconds of timedeltas, beyond 64 bits.",
            remedy="Use Decimal, or text.",
        ) from None


def _dispatch_column(name: str, values: object, requested: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    if isinstance(values, list):
        return _from_python(name, cast("list[Any]", values), requested)
    array = pa.chunked_array([values]) if isinstance(values, pa.Array) else cast("pa.ChunkedArray", values)
    return _from_arrow(name, array, requested)


def _from_arrow(name: str, array: pa.ChunkedArray, requested: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    if pa.types.is_dictionary(array.type):
        array = _decode_dictionary(array)
    if _nesting_depth(array.type) > MAX_DEPTH:
        raise RecursionError
    if _has_empty_struct(array.type):
        return to_json_column(name, array.to_pylist())
    dtype = requested or clickhouse_type(name, array.type)
    if requested is None and (array.null_count or pa.types.is_null(array.type)):
        dtype = dtype.as_nullable()
    if not dtype.nullable and not dtype.is_structure and array.null_count:
        raise ConversionError(
            f"Column {name!r} is {dtype}, but {array.null_count} of its values are NULL.",
            remedy=f"Use Nullable({dtype}).",
        )
    arrow = arrow_type(dtype)
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(arrow):
            array = array.cast(pa.decimal256(76, arrow.scale))  # Arrow first requires enough digits for any integer
        converted = array if array.type == arrow else array.cast(arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConversionError(
            f"Column {name!r} does not fit {dtype}: {error}.", remedy="Choose a type that holds all its values."
        ) from None
    check_range(name, converted, dtype)
    _check_unchanged(name, array, converted, dtype)
    wider = with_null_structures(converted, dtype)
    if requested is not None and wider != dtype:
        raise NullStructureError(name, dtype, wider)
    return to_storage(converted, wider), wider


def _check_unchanged(name: str, array: pa.ChunkedArray, converted: pa.ChunkedArray, dtype: DataType) -> None:
    """Raise if the cast changed floats: Arrow rounds them to decimals, and makes large ones infinite."""
    if not pa.types.is_floating(array.type) or array.type == converted.type:
        return
    converted_floats = converted.cast(pa.float64())
    source_floats = array.cast(pa.float64())
    if pa.types.is_decimal(converted.type):
        changed = pc.fill_null(pc.not_equal(converted_floats, source_floats), False)
    else:
        changed = pc.and_(pc.is_inf(converted_floats), pc.is_finite(source_floats))
    if pc.any(changed).as_py():
        raise ConversionError(
            f"Column {name!r} does not fit {dtype}: some values would change.",
            remedy="Choose a type that holds all its values, or round them first.",
        )


def _decode_dictionary(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace the positions of a dictionary by its values; Arrow cannot do so for views of text."""
    values_type = array.type.value_type if isinstance(array.type, pa.DictionaryType) else array.type
    target = pa.string() if pa.types.is_string_view(values_type) else values_type
    chunks = [
        chunk.dictionary.cast(target).take(chunk.indices) for chunk in cast("list[pa.DictionaryArray]", array.chunks)
    ]
    return pa.chunked_array(chunks, target)


def _nesting_depth(arrow: pa.DataType) -> int:
    return 1 + max((_nesting_depth(arrow.field(i).type) for i in range(arrow.num_fields)), default=0)


def _has_empty_struct(arrow: pa.DataType) -> bool:
    """Whether it contains a struct without fields, for which ClickHouse has no type."""
    if pa.types.is_struct(arrow) and arrow.num_fields == 0:
        return True
    return any(_has_empty_struct(arrow.field(i).type) for i in range(arrow.num_fields))


def _from_python(name: str, values: list[object], requested: DataType | None) -> tuple[pa.ChunkedArray, DataType]:
    if requested is not None and requested.logical == "json":
        return to_json_column(name, values)
    present = [value for value in values if value is not None]
    if present and isinstance(present[0], Mapping | list | tuple):
        is_regular = have_same_structure(present)
        if requested is not None and requested.is_structure and (not is_regular or _has_map(requested)):
            return _from_arrow(name, pa.chunked_array([to_structures(name, values, requested)]), requested)
        if not is_regular:
            return to_json_column(name, values)
    check_single_type(name, present)
    if any(isinstance(value, Decimal) and not value.is_finite() for value in present):
        raise ConversionError(
            f"Column {name!r} holds a Decimal that is not a number.", remedy="Use None, or a float's NaN."
        )
    try:
        array = pa.array(prepare_values(present, values), from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        return _wide_integers(name, values, requested, error)
    return _from_arrow(name, pa.chunked_array([array]), requested if requested is not None or present else None)


def _has_map(dtype: DataType) -> bool:
    return any(part.name == "Map" for part in iter_types(dtype))


def _wide_integers(
    name: str, values: list[object], requested: DataType | None, error: Exception
) -> tuple[pa.ChunkedArray, DataType]:
    if all(value is None or (isinstance(value, int) and 0 <= value < 1 << 64) for value in values):
        return _from_arrow(name, pa.chunked_array([pa.array(values, pa.uint64())]), requested)
    if isinstance(error, OverflowError):
        raise error
    raise ConversionError(
        f"Column {name!r} cannot be stored: {error}.", remedy="Make its values of one kind, or pass schema=."
    ) from None
