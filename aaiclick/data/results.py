"""Results out: Arrow as ClickHouse sent it becomes Arrow, Python, pandas, polars or NumPy as the types say."""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.arrow import arrow_type
from aaiclick.data.errors import ConversionError
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
    if shape == "record" and table.num_rows == 1:
        return {name: values[0] for name, values in lists.items()}
    if shape in ("table", "record"):
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
    """Whole numbers stay whole numbers beside a NULL: pandas' own default would make floats of them."""
    import pandas as pd

    whole = [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_integer(column.type) and column.null_count
    ]
    frame = table.to_pandas()
    exact = table.select(whole).to_pandas(types_mapper=lambda kind: pd.ArrowDtype(kind))
    for name in whole:
        frame[name] = exact[name].astype(_PANDAS[str(table.schema.field(name).type)])
    return frame


_PANDAS = {f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


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

    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and pa.types.is_integer(column.type) and _beyond_floats(column):
            raise ConversionError(
                f"Column {name!r} holds NULL beside integers beyond 2**53, and NumPy has only floats for that.",
                remedy="Fill the NULLs (fill_null), or use to_arrow() or to_pandas().",
            )
    arrays = [column.to_numpy() for column in table.columns]
    return arrays[0] if len(arrays) == 1 else np.column_stack(arrays)


def _beyond_floats(column: pa.ChunkedArray) -> bool:
    span = cast("Any", pc).min_max(column)
    return max(abs(span["min"].as_py() or 0), abs(span["max"].as_py() or 0)) > 1 << 53
