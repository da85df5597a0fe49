"""Conversion of results from Arrow to Python, pandas, polars and NumPy."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.errors import ConversionError
from aaiclick.data.io.arrow_nullable_structures import from_storage
from aaiclick.data.io.arrow_types import arrow_type
from aaiclick.data.io.nested_arrays import inner_types, map_inner_arrays
from aaiclick.data.runtime.tables import Shape
from aaiclick.data.types import DataType, iter_types, storage_type

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl

Columns = tuple[tuple[str, DataType], ...]


def normalise(table: pa.Table, columns: Columns) -> pa.Table:
    """Cast a table to the Arrow types of its columns: server versions send different ones."""
    arrays = [
        from_storage(_cast_column(name, table.column(i), storage_type(dtype)), dtype)
        for i, (name, dtype) in enumerate(columns)
    ]
    fields = [pa.field(name, array.type, nullable=True) for (name, _), array in zip(columns, arrays, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def normalise_batch(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    table = normalise(pa.Table.from_batches([batch]), columns).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _cast_column(name: str, column: pa.ChunkedArray, dtype: DataType) -> pa.ChunkedArray:
    chunks = [_cast_array(chunk, dtype) for chunk in column.chunks]
    array = pa.chunked_array(chunks, arrow_type(dtype))
    if any(part.name == "String" and part.logical != "bytes" for part in iter_types(dtype)):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise ConversionError(
                f"Column {name!r} holds bytes that are not UTF-8 text.",
                remedy='Read it as bytes: .cast("bytes"), or schema= when it is created.',
            ) from None
    return array


def _cast_array(array: pa.Array, dtype: DataType) -> pa.Array:
    arrow = arrow_type(dtype)
    if array.type == arrow:
        return array
    if dtype.is_structure:
        return map_inner_arrays(array, dtype, _cast_array).cast(arrow)
    if isinstance(arrow, pa.UuidType):  # older servers send the 16 bytes
        storage = array.cast(pa.binary(16)) if not isinstance(array.type, pa.BaseExtensionType) else array
        return pa.ExtensionArray.from_storage(arrow, storage)
    if dtype.is_date and pa.types.is_integer(array.type):  # older servers send the day number
        return array.cast(pa.int32()).cast(arrow)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.cast(array.type.storage_type)
    return array.cast(arrow, safe=False) if pa.types.is_timestamp(arrow) else array.cast(arrow)


def to_python(table: pa.Table, columns: Columns, shape: Shape) -> Any:
    """Return a scalar, a list, or a dict of lists, by the shape."""
    lists = {name: column_values(table.column(i), dtype) for i, (name, dtype) in enumerate(columns)}
    if shape == "record" and table.num_rows == 1:
        return {name: values[0] for name, values in lists.items()}
    if shape in ("table", "record"):
        return lists
    (values,) = lists.values()
    if shape == "column":
        return values
    return values[0] if values else None


def column_values(array: pa.ChunkedArray, dtype: DataType) -> list[object]:
    """Return a column as Python values."""
    convert = _converter(dtype)
    holds_map = any(part.name == "Map" for part in iter_types(dtype))
    values: list[Any] = array.to_pylist(maps_as_pydicts="strict") if holds_map else array.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(dtype: DataType) -> Callable[[Any], object] | None:
    """Return the function from Arrow's Python value to the value of the type, or None if they are the same."""
    if dtype.is_integer and dtype.bits > 64:
        return int
    if not dtype.is_structure:
        return _CONVERTERS.get(dtype.logical or dtype.name)
    inner = [_converter(part) for part in inner_types(dtype)]
    if not any(inner):
        return None
    changes = [_null_or(convert) for convert in inner]
    if dtype.name == "Array":
        return lambda values: [changes[0](value) for value in values]
    if dtype.name == "Map":
        return lambda values: {changes[0](key): changes[1](value) for key, value in values.items()}
    return lambda values: {key: change(value) for (key, value), change in zip(values.items(), changes, strict=True)}


def _null_or(convert: Callable[[Any], object] | None) -> Callable[[Any], object]:
    return lambda value: value if value is None or convert is None else convert(value)


_CONVERTERS: dict[str, Callable[[Any], object]] = {
    "json": json.loads,
    "JSON": json.loads,
    "IPv4": ipaddress.IPv4Address,
    "IPv6": ipaddress.IPv6Address,
}


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert to pandas; integer columns with NULLs stay integers, which pandas by default makes floats."""
    import pandas as pd

    integer_columns = [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_integer(column.type) and column.null_count
    ]
    frame = map_columns(table, _for_pandas).to_pandas(integer_object_nulls=True)
    nullable_frame = table.select(integer_columns).to_pandas(types_mapper=lambda arrow: pd.ArrowDtype(arrow))
    for name in integer_columns:
        frame[name] = nullable_frame[name].astype(_PANDAS_INTEGERS[str(table.schema.field(name).type)])  # pyright: ignore[reportUnknownMemberType]
    return frame


def _for_pandas(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column.type, pa.UuidType) else uuids_to_text(name, column)


_PANDAS_INTEGERS = {f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def to_polars(table: pa.Table) -> pl.DataFrame:
    """Convert to polars, which has no UUID type and Decimals of at most 38 digits."""
    import polars as pl

    return cast("pl.DataFrame", pl.from_arrow(map_columns(table, _for_polars)))


def _for_polars(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal256(column.type):
        try:
            return column.cast(pa.decimal128(38, column.type.scale))
        except pa.ArrowInvalid:
            raise ConversionError(
                f"Column {name!r} has more than 38 digits, which polars cannot hold.",
                remedy="Use to_arrow(), or cast it to text.",
            ) from None
    return uuids_to_text(name, column)


def map_columns(table: pa.Table, change: Callable[[str, pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    columns = [change(name, table.column(i)) for i, name in enumerate(table.column_names)]
    return pa.Table.from_arrays(columns, names=table.column_names)


def uuids_to_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:  # noqa: ARG001
    """Convert UUIDs, also inside of lists, to text."""
    target = _without_uuids(column.type)
    if target == column.type:
        return column
    return pa.chunked_array([pa.array(uuids_as_text(column.to_pylist()), target)])


def _without_uuids(arrow: pa.DataType) -> pa.DataType:
    if isinstance(arrow, pa.UuidType):
        return pa.string()
    if pa.types.is_list(arrow):
        return pa.list_(_without_uuids(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, _without_uuids(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(_without_uuids(arrow.key_type), _without_uuids(arrow.item_type))
    return arrow


def uuids_as_text(value: object) -> Any:
    match value:
        case UUID():
            return str(value)
        case list() | tuple():
            return [uuids_as_text(item) for item in cast("list[object]", value)]
        case dict():
            return {key: uuids_as_text(item) for key, item in cast("dict[str, object]", value).items()}
        case _:
            return value


def to_numpy(table: pa.Table) -> np.ndarray[Any, Any]:
    """Convert one column to a vector, several to a matrix of their common type."""
    import numpy as np

    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and pa.types.is_integer(column.type) and _exceeds_float_precision(column):
            raise ConversionError(
                f"Column {name!r} has NULLs and integers beyond 2**53, which NumPy can store only as floats.",
                remedy="Fill the NULLs (fill_null), or use to_arrow() or to_pandas().",
            )
    arrays = [column.to_numpy() for column in table.columns]
    return arrays[0] if len(arrays) == 1 else np.column_stack(arrays)


def _exceeds_float_precision(column: pa.ChunkedArray) -> bool:
    span = pc.min_max(column)
    return max(abs(span["min"].as_py() or 0), abs(span["max"].as_py() or 0)) > 1 << 53
