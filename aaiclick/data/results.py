"""Results out: Arrow as ClickHouse sent it becomes Arrow, Python, pandas, polars or NumPy as the types say."""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from aaiclick.data.arrow import arrow_type
from aaiclick.data.tables import Shape
from aaiclick.data.types import DataType

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl

Columns = tuple[tuple[str, DataType], ...]


def normalise(table: pa.Table, columns: Columns) -> pa.Table:
    """Exactly the Arrow types that belong to the columns, whatever this server's version sent."""
    arrays = [_conform(table.column(i), kind) for i, (_, kind) in enumerate(columns)]
    fields = [pa.field(name, array.type, nullable=True) for (name, _), array in zip(columns, arrays, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def normalise_batch(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    table = normalise(pa.Table.from_batches([batch]), columns).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _conform(array: pa.ChunkedArray, kind: DataType) -> pa.ChunkedArray:
    target = arrow_type(kind)
    if array.type == target:
        return array
    if isinstance(target, pa.UuidType):  # older servers send the 16 bytes
        storage = array.cast(pa.binary(16)) if not isinstance(array.type, pa.BaseExtensionType) else array
        return pa.chunked_array([pa.ExtensionArray.from_storage(target, each) for each in storage.chunks], target)
    if kind.is_date and pa.types.is_integer(array.type):  # older servers send the day number
        return array.cast(pa.int32()).cast(target)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.cast(array.type.storage_type)
    return array.cast(target, safe=False) if pa.types.is_timestamp(target) else array.cast(target)


def to_python(table: pa.Table, columns: Columns, shape: Shape) -> Any:
    """A value, a list, or a dict of lists."""
    lists = {name: column_values(table.column(i), kind) for i, (name, kind) in enumerate(columns)}
    if shape == "table":
        return lists
    (values,) = lists.values()
    if shape == "column":
        return values
    return values[0] if values else None


def column_values(array: pa.ChunkedArray, kind: DataType) -> list[Any]:
    values: list[Any] = array.to_pylist(maps_as_pydicts="strict") if _holds_map(kind) else array.to_pylist()
    convert = _CONVERTERS.get(kind.logical or kind.name)
    if convert is None and kind.is_integer and kind.bits > 64:
        convert = int
    return values if convert is None else [None if each is None else convert(each) for each in values]


def _holds_map(kind: DataType) -> bool:
    inner = [arg[1] if isinstance(arg, tuple) else arg for arg in kind.args]  # pyright: ignore[reportUnknownVariableType]
    return kind.name == "Map" or any(isinstance(each, DataType) and _holds_map(each) for each in inner)


_CONVERTERS: dict[str, Any] = {
    "json": json.loads,
    "JSON": json.loads,
    "IPv4": ipaddress.IPv4Address,
    "IPv6": ipaddress.IPv6Address,
}


def to_pandas(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=None)


def to_polars(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    return cast("pl.DataFrame", pl.from_arrow(_plain_extensions(table)))


def _plain_extensions(table: pa.Table) -> pa.Table:
    """polars knows no UUIDs: as text."""
    for i, field in enumerate(table.schema):
        if isinstance(field.type, pa.UuidType):
            texts = [None if each is None else str(each) for each in table.column(i).to_pylist()]
            table = table.set_column(i, field.name, pa.array(texts, pa.string()))
    return table


def to_numpy(table: pa.Table) -> np.ndarray[Any, Any]:
    """One column as a vector, several as a matrix of their common type."""
    import numpy as np

    arrays = [column.to_numpy() for column in table.columns]
    return arrays[0] if len(arrays) == 1 else np.column_stack(arrays)
