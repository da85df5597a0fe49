"""Arrow arrays of durations, and of structures that may be NULL, to and from their stored form in ClickHouse.

`storage_type` in `aaiclick.data.types` describes the stored form: integers, and lists of at most one element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data.io.nested_arrays import inner_arrays, map_inner_arrays, offsets_of, spread_values
from aaiclick.data.types import DataType, iter_types, map_inner_types


def has_stored_form(dtype: DataType) -> bool:
    """Whether the type is stored as another one."""
    return any(part.is_nullable_structure or part.is_duration for part in iter_types(dtype))


def with_null_structures(array: pa.ChunkedArray, dtype: DataType) -> DataType:
    """Return the type with the structures nullable that are NULL in the array."""
    if not dtype.is_structure:
        return dtype
    for chunk in array.chunks:
        dtype = _mark_nulls(chunk, dtype)
    return dtype


def _mark_nulls(array: pa.Array, dtype: DataType) -> DataType:
    if not dtype.is_structure:
        return dtype
    if array.null_count:
        dtype = replace(dtype, nullable=True)
    inner = iter(inner_arrays(array))
    return map_inner_types(dtype, lambda part: _mark_nulls(next(inner), part))


def to_storage(array: pa.ChunkedArray, dtype: DataType) -> pa.ChunkedArray:
    """Store each NULL structure as an empty list and each other one as a list of one element."""
    if not has_stored_form(dtype):
        return array
    return _map_chunks(array, lambda chunk: _wrap(chunk, dtype))


def from_storage(array: pa.ChunkedArray, dtype: DataType) -> pa.ChunkedArray:
    """Reverse `to_storage`."""
    if not has_stored_form(dtype):
        return array
    return _map_chunks(array, lambda chunk: _unwrap(chunk, dtype))


def _map_chunks(array: pa.ChunkedArray, change: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    return pa.chunked_array([change(chunk) for chunk in array.chunks or [pa.array([], array.type)]])


def _wrap(array: pa.Array, dtype: DataType) -> pa.Array:
    if not has_stored_form(dtype):
        return array
    if dtype.is_duration:
        return array.cast(pa.int64())
    if not dtype.is_nullable_structure:
        return map_inner_arrays(array, dtype, _wrap)
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.ListArray.from_arrays(offsets_of(is_valid), _wrap(array.drop_null(), replace(dtype, nullable=False)))


def _unwrap(array: pa.Array, dtype: DataType) -> pa.Array:
    if not has_stored_form(dtype):
        return array
    if dtype.is_duration:
        return array.cast(pa.duration("us"))
    if not dtype.is_nullable_structure:
        return map_inner_arrays(array, dtype, _unwrap)
    elements = _unwrap(cast("pa.ListArray", array).flatten(), replace(dtype, nullable=False))
    return spread_values(elements, pc.list_value_length(array))
