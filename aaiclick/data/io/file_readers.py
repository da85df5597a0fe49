"""Readers of formats that contain a schema: Parquet, ORC and Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from aaiclick.data.io.arrow_types import clickhouse_type
from aaiclick.data.runtime.tables import Columns
from aaiclick.data.types import DataType

BATCH_ROWS = 65_536
LOGICAL = b"aaiclick.logical"
"""Key in the metadata of a field of Parquet and Arrow, with `json` for text that is JSON."""


class FileReader(ABC):
    """Reader of one local file: its columns, then its rows in pieces."""

    columns: Columns
    note: str = ""
    """What was chosen to read the file, for the preview."""

    is_text: ClassVar[bool] = False
    """Whether types are inferred from a sample."""

    @abstractmethod
    def iter_tables(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:
        """Yield the rows; `columns` are the types that they will be stored with."""


class ParquetReader(FileReader):
    """Columns that are required, or have no NULL according to the statistics, are not nullable."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        without_nulls = _columns_without_nulls(self._file.metadata)
        self.columns = tuple(
            (field.name, _field_type(field).as_nullable(field.nullable and field.name not in without_nulls))
            for field in self._file.schema_arrow
        )

    def iter_tables(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:  # noqa: ARG002
        with self._file:
            for batch in self._file.iter_batches(BATCH_ROWS):
                yield pa.Table.from_batches([batch])


def _columns_without_nulls(metadata: pq.FileMetaData) -> set[str]:
    """Return the columns of plain values for which every row group counts 0 NULLs."""
    names: set[str] = set()
    for position in range(metadata.num_columns):
        groups = [metadata.row_group(i).column(position) for i in range(metadata.num_row_groups)]
        statistics = [group.statistics for group in groups]
        if groups and all(item is not None and item.has_null_count and item.null_count == 0 for item in statistics):
            names.add(groups[0].path_in_schema)
    return names


class OrcReader(FileReader):
    def __init__(self, path: Path) -> None:
        self._file = orc.ORCFile(path)
        self.columns = _columns_of(self._file.schema)

    def iter_tables(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:  # noqa: ARG002
        for stripe in range(self._file.nstripes):
            yield pa.Table.from_batches([self._file.read_stripe(stripe)])


class ArrowReader(FileReader):
    """Reader of Arrow's file format (Feather) and of its stream format."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._is_file = file.read(6) == b"ARROW1"
        with pa.memory_map(str(path)) as source:
            self.columns = _columns_of(self._open(source).schema)

    def _open(self, source: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
        return pa.ipc.open_file(source) if self._is_file else pa.ipc.open_stream(source)

    def iter_tables(self, columns: Mapping[str, DataType]) -> Iterator[pa.Table]:  # noqa: ARG002
        with pa.memory_map(str(self._path)) as source:
            reader = self._open(source)
            if isinstance(reader, pa.RecordBatchFileReader):
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                batches = iter(reader)
            for batch in batches:
                yield pa.Table.from_batches([batch])


def _columns_of(schema: pa.Schema) -> Columns:
    return tuple((field.name, _field_type(field).as_nullable(field.nullable)) for field in schema)


def _field_type(field: pa.Field) -> DataType:
    dtype = clickhouse_type(field.name, field.type)
    return replace(dtype, logical="json") if (field.metadata or {}).get(LOGICAL) == b"json" else dtype
