"""Rows of a small Object that is not stored as a table: they become part of the queries that read it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.types import DataType, quote_name, storage_type


@dataclass(frozen=True)
class LiteralRows:
    """Rows of a literal; `is_result` if they are stored with the task that returned them."""

    rows: pa.Table
    columns: tuple[tuple[str, DataType], ...]
    is_result: bool = False

    @cached_property
    def structure(self) -> str:
        """Names and types of the key and the columns, as in CREATE TABLE."""
        columns = (f"{quote_name(name)} {storage_type(dtype)}" for name, dtype in self.columns)
        return ", ".join((f"{quote_name(KEY)} UInt64", *columns))

    @cached_property
    def encoded(self) -> str:
        """The rows with their keys as a query parameter."""
        return b64encode(encode_numbered_rows(self.rows, 0)).decode()


def encode_numbered_rows(rows: pa.Table, start: int) -> bytes:
    """Arrow stream of rows with keys from `start`."""
    keys = pa.array(np.arange(start, start + rows.num_rows, dtype=np.uint64))
    numbered = rows.add_column(0, KEY, keys)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, numbered.schema) as writer:
        writer.write_table(numbered)
    return sink.getvalue().to_pybytes()
