"""Conversion of results from Arrow to Python, pandas, polars and NumPy."""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.errors import ConversionError
from aaiclick.data.io.arrow_types import arrow_type
from aaiclick.data.runtime.tables import Shape
from aaiclick.data.types import DataType

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl

Columns = tuple[tuple[str, DataType], ...]


def normalise(table: pa.Table, columns: Columns) -> pa.Table:
    """Cast a table to the Arrow types of its columns: server versions send different ones."""
    arrays = [_cast_column(table.column(i), dtype) for i, (_, dtype) in enumerate(columns)]
    fields = [pa.field(name, array.type, nullable=True) for (name, _), array in zip(columns, arrays, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def normalise_batch(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    table = normalise(pa.Table.from_batches([batch]), columns).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _cast_column(array: pa.ChunkedArray, dtype: DataType) -> pa.ChunkedArray:
    arrow = arrow_type(dtype)
    if array.type == arrow:
        return array
    if isinstance(arrow, pa.UuidType):  # older servers send the 16 bytes
        storage = array.cast(pa.binary(16)) if not isinstance(array.type, pa.BaseExtensionType) else array
        return pa.chunked_array([pa.ExtensionArray.from_storage(arrow, chunk) for chunk in storage.chunks], arrow)
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
    values: list[Any] = array.to_pylist(maps_as_pydicts="strict") if _holds_map(dtype) else array.to_pylist()
    convert = _CONVERTERS.get(dtype.logical or dtype.name)
    if convert is None and dtype.is_integer and dtype.bits > 64:
        convert = int
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _holds_map(dtype: DataType) -> bool:
    inner: list[object] = [arg[1] if isinstance(arg, tuple) else arg for arg in dtype.args]
    return dtype.name == "Map" or any(isinstance(argument, DataType) and _holds_map(argument) for argument in inner)


_CONVERTERS: dict[str, Any] = {
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
    frame = table.to_pandas()
    nullable_frame = table.select(integer_columns).to_pandas(types_mapper=lambda arrow: pd.ArrowDtype(arrow))
    for name in integer_columns:
        frame[name] = nullable_frame[name].astype(_PANDAS_INTEGERS[str(table.schema.field(name).type)])  # pyright: ignore[reportUnknownMemberType]
    return frame


_PANDAS_INTEGERS = {f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def to_polars(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    return cast("pl.DataFrame", pl.from_arrow(_uuids_to_text(table)))


def _uuids_to_text(table: pa.Table) -> pa.Table:
    """Convert UUIDs to text, since polars has no UUID type."""
    for i, field in enumerate(table.schema):
        if isinstance(field.type, pa.UuidType):
            texts = [None if value is None else str(value) for value in table.column(i).to_pylist()]
            table = table.set_column(i, field.name, pa.array(texts, pa.string()))
    return table


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
