"""Arrow arrays of lists, structs and maps: their inner arrays, and arrays rebuilt from changed inner arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.types import DataType


def inner_types(dtype: DataType) -> list[DataType]:
    """Return the type of the elements, of the fields, or of keys and values."""
    args = cast("tuple[tuple[str, DataType] | DataType, ...]", dtype.args)
    return [arg[1] if isinstance(arg, tuple) else arg for arg in args]


def field_names(dtype: DataType) -> list[str]:
    """Return the names of the fields of a Tuple; those without a name are numbered."""
    args = cast("tuple[object, ...]", dtype.args)
    return [
        str(cast("tuple[str, object]", arg)[0]) if isinstance(arg, tuple) else str(i) for i, arg in enumerate(args, 1)
    ]


def inner_arrays(array: pa.Array) -> list[pa.Array]:
    """Return the elements, the fields, or keys and values, of the values that are not NULL."""
    array = array.drop_null() if array.null_count else array
    if isinstance(array, pa.StructArray):
        return array.flatten()
    if isinstance(array, pa.MapArray):
        start, end = (array.offsets[0].as_py(), array.offsets[len(array)].as_py()) if len(array) else (0, 0)
        return [part.slice(start, end - start) for part in (array.keys, array.items)]
    return [cast("pa.ListArray", array).flatten()]


def map_inner_arrays(array: pa.Array, dtype: DataType, change: Callable[[pa.Array, DataType], pa.Array]) -> pa.Array:
    """Return the array with changed inner arrays; NULL stays NULL."""
    parts = [change(*pair) for pair in zip(inner_arrays(array), inner_types(dtype), strict=True)]
    present = array.drop_null() if array.null_count else array
    built: pa.Array
    if isinstance(present, pa.StructArray):
        built = pa.StructArray.from_arrays(parts, names=field_names(dtype))
    elif isinstance(present, pa.MapArray):
        lengths = np.diff(present.offsets.to_numpy()[: len(present) + 1])
        built = pa.MapArray.from_arrays(offsets_of(lengths), parts[0], parts[1])
    else:
        lengths = pc.list_value_length(present).to_numpy(zero_copy_only=False)
        built = pa.ListArray.from_arrays(offsets_of(lengths), parts[0])
    return spread_values(built, array.is_valid()) if array.null_count else built


def spread_values(values: pa.Array, is_valid: pa.Array) -> pa.Array:
    """Return an array with the values where `is_valid` is true, in order, and NULL elsewhere."""
    valid = is_valid.to_numpy(zero_copy_only=False).astype(bool)
    return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def offsets_of(lengths: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
