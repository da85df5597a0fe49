"""Import of files: one file, a list, a directory or a glob becomes one Object, in constant memory.

This process parses the files and sends Arrow batches to ClickHouse in one INSERT, so that a file and the same Python
values are stored by the same rules.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaiclick.data.argument_checks import check_arguments
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.create import assign_name
from aaiclick.data.errors import ConversionError, IngestError, QueryError, column_not_found
from aaiclick.data.io.avro import AvroReader
from aaiclick.data.io.csv_dialect import CsvOptions
from aaiclick.data.io.csv_reader import CsvReader
from aaiclick.data.io.file_readers import ArrowReader, FileReader, OrcReader, ParquetReader
from aaiclick.data.io.formats import FORMATS
from aaiclick.data.io.input_files import FetchOptions, InputFile, Source, fetch_file, find_files
from aaiclick.data.io.json_reader import JsonReader
from aaiclick.data.io.s3_client import S3Access
from aaiclick.data.io.text_type_inference import convert_text, infer_text_type
from aaiclick.data.io.to_arrow import NullStructureError, conform_table
from aaiclick.data.object import Object
from aaiclick.data.pending_result import explain_await
from aaiclick.data.runtime.tables import Columns, check_column_names, named_table
from aaiclick.data.types import STRING, DataType, quote_name, supertype, user_type

EXAMINED_FILES = 100
"""Number of local CSV, JSON and Avro files from which columns are inferred; of remote files it is one."""

PREVIEW_ROWS = 5
Schema = Mapping[str, str | type]


@check_arguments
@explain_await
async def create_object_from_file(
    source: Source,
    *,
    format: str | None = None,  # noqa: A002
    schema: Schema | None = None,
    csv: CsvOptions | None = None,
    name: str | None = None,
    replace: bool = False,
    retries: int = 3,
    progress: bool | None = None,
    allow_private: bool = False,
    s3: S3Access | None = None,
) -> Object:
    """Store files: CSV, TSV, JSON, JSON lines, Parquet, ORC, Avro or Arrow, local or behind an http(s) or s3 URL.

    `source` is a file, a directory, a glob, or a list of these; `column=value` in names of directories is a column.
    The format is detected by the name (`data.csv.gz`) or set by `format=`; types are inferred, and `schema` overrides
    those of some columns. `preview_file` shows what is chosen.
    An interrupted download is retried. Addresses that are not public are refused unless `allow_private`.
    `s3` holds the credentials for an `s3://bucket/key`; the default is the standard AWS variables.

    ```python
    Path("orders.csv").write_text("id,euros\\n1,20\\n")
    await (await create_object_from_file("orders.csv")).data()  # {'id': [1], 'euros': [20]}
    ```
    """
    context = get_data_context()
    if name is not None:
        named_table(name)
    job = _Import(csv or CsvOptions(), FetchOptions(retries, progress, allow_private, s3), dict(schema or {}))
    files = await find_files(source, format, job.options)
    obj = await _load_files(context, job, files)
    return await assign_name(context, obj, name, replace)


@check_arguments
@explain_await
async def preview_file(
    source: Source,
    *,
    format: str | None = None,  # noqa: A002
    schema: Schema | None = None,
    csv: CsvOptions | None = None,
    allow_private: bool = False,
    s3: S3Access | None = None,
    rows: int = PREVIEW_ROWS,
) -> FilePreview:
    """Return what `create_object_from_file` would choose, and the first rows, without storing anything.

    ```python
    Path("orders.csv").write_text("id,euros\\n1,20\\n")
    (await preview_file("orders.csv")).rows  # [{'id': 1, 'euros': 20}]
    ```
    """
    job = _Import(csv or CsvOptions(), FetchOptions(0, False, allow_private, s3), dict(schema or {}))
    files = await find_files(source, format, job.options)
    columns, note = await _examine_files(job, files)
    async with _open_reader(job, files[0]) as reader:
        table = await asyncio.to_thread(_read_first_rows, reader, files[0], columns, rows)
    return FilePreview(
        tuple(file.name for file in files),
        files[0].format,
        files[0].compression,
        note,
        dict(columns),
        table.to_pylist(),
    )


@dataclass(frozen=True)
class FilePreview:
    """What was chosen to read files, and their first rows.

    ```python
    Path("orders.csv").write_text("id,euros\\n1,20\\n")
    print(await preview_file("orders.csv"))
    ```
    """

    files: tuple[str, ...]
    format: str
    compression: str | None
    note: str
    columns: Mapping[str, DataType]
    rows: list[dict[str, Any]] = field(repr=False)

    def __str__(self) -> str:
        compression = f", {self.compression}" if self.compression else ""
        lines = [f"{self.files[0]}{f' and {len(self.files) - 1} more' if len(self.files) > 1 else ''}"]
        lines.append(f"{self.format}{compression}{f': {self.note}' if self.note else ''}")
        lines += [f"  {name}: {dtype}" for name, dtype in self.columns.items()]
        lines += [f"  {row}" for row in self.rows]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Import:
    csv: CsvOptions
    options: FetchOptions
    schema: dict[str, str | type]


# --- columns -----------------------------------------------------------------------------------------------------


async def _examine_files(job: _Import, files: list[InputFile]) -> tuple[Columns, str]:
    """Return the columns of all files together, and a note on what was chosen."""
    if all(file.path is not None for file in files):
        examined = files if FORMATS[files[0].format].footer else files[:EXAMINED_FILES]
    else:
        examined = files[:1]
    described: list[Columns] = []
    note, is_text = "", False
    for file in examined:
        async with _open_reader(job, file) as reader:
            described.append(reader.columns)
            note, is_text = note or reader.note, reader.is_text
    columns = _merge_columns(described, is_text, is_complete=len(examined) == len(files))
    partition = _partition_columns(files)
    columns = tuple((name, dtype) for name, dtype in columns if name not in dict(partition)) + partition
    check_column_names(name for name, _ in columns)
    return _apply_schema(columns, job.schema, adds_columns=files[0].format in ("json", "jsonl")), note


def _merge_columns(described: list[Columns], is_text: bool, *, is_complete: bool) -> Columns:
    """Unite the columns of several files; a column that a file lacks is nullable."""
    merged: dict[str, DataType] = {}
    for number, columns in enumerate(described):
        check_column_names(name for name, _ in columns)
        for name, dtype in columns:
            earlier = merged.get(name)
            if earlier is None:
                merged[name] = dtype.as_nullable(dtype.nullable or number > 0)
                continue
            common = _json_supertype(earlier, dtype) or supertype(earlier, dtype)
            if common is None and is_text:
                common = STRING.as_nullable()
            if common is None:
                raise IngestError(
                    f"Column {name!r} is {earlier} in one file and {dtype} in another.", remedy="Pass schema=."
                )
            merged[name] = common
        merged |= {name: dtype.as_nullable() for name, dtype in merged.items() if name not in dict(columns)}
    if not is_complete:
        merged = {name: dtype.as_nullable() for name, dtype in merged.items()}
    return tuple(merged.items())


def _json_supertype(left: DataType, right: DataType) -> DataType | None:
    """Return the type of columns of which one is free-form JSON or has only NULLs."""
    json_types = [dtype for dtype in (left, right) if dtype.logical == "json"]
    return json_types[0].as_nullable() if json_types else None


def _partition_columns(files: list[InputFile]) -> Columns:
    names = [name for name, _ in files[0].partition]
    columns: list[tuple[str, DataType]] = []
    for position, name in enumerate(names):
        texts = pa.array([file.partition[position][1] for file in files], pa.string())
        columns.append((name, infer_text_type(texts).as_nullable(texts.null_count > 0)))
    return tuple(columns)


def _apply_schema(columns: Columns, schema: dict[str, str | type], *, adds_columns: bool) -> Columns:
    names = [name for name, _ in columns]
    unknown = [name for name in schema if name not in names]
    if unknown and not adds_columns:
        raise column_not_found(unknown[0], names)
    in_file = tuple((name, user_type(schema[name]) if name in schema else dtype) for name, dtype in columns)
    return (*in_file, *((name, user_type(schema[name])) for name in unknown))


# --- rows --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_reader(job: _Import, file: InputFile) -> AsyncGenerator[FileReader, None]:
    async with fetch_file(file, job.options) as (path, compression):
        yield await asyncio.to_thread(_create_reader, job, file, path, compression)


def _create_reader(job: _Import, file: InputFile, path: Path, compression: str | None) -> FileReader:
    with _explain_errors(file):
        match file.format:
            case "parquet":
                return ParquetReader(path)
            case "orc":
                return OrcReader(path)
            case "arrow":
                return ArrowReader(path)
            case "avro":
                return AvroReader(path, compression)
            case "json" | "jsonl":
                return JsonReader(path, compression)
            case _:
                return CsvReader(path, compression, job.csv, is_tsv=file.format == "tsv")


@contextmanager
def _explain_errors(file: InputFile) -> Generator[None]:
    try:
        yield
    except NullStructureError:
        raise
    except (IngestError, ConversionError) as error:
        what = error.what if error.what.endswith(".") else f"{error.what}."
        if what.startswith("The file "):
            raise
        is_about_file = what.startswith(("is ", "has "))
        text = f"{file.name} {what}" if is_about_file else f"{file.name} could not be read as {file.format}: {what}"
        raise IngestError(text, remedy=error.remedy) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise IngestError(
                f"The file {file.name!r} cannot be read: {error.strerror}.", remedy="Check the path."
            ) from None
        raise IngestError(
            f"{file.name} could not be read as {file.format}: {str(error).rstrip('.')}.",
            remedy="Repair the file, or pass the right format=.",
        ) from None


def _read_first_rows(reader: FileReader, file: InputFile, columns: Columns, rows: int) -> pa.Table:
    with _explain_errors(file):
        tables = reader.iter_tables(_column_types(columns, file))
        first = next(tables, None)
        return _add_partition(first, file, columns).slice(0, rows) if first is not None else pa.table({})


async def _fetch_first(job: _Import, files: list[InputFile], stack: AsyncExitStack) -> list[InputFile]:
    """Download the first file, which is read twice: for the columns, and for the rows."""
    path, compression = await stack.enter_async_context(fetch_file(files[0], job.options))
    return [dataclasses.replace(files[0], path=path, compression=compression), *files[1:]]


async def _load_files(context: DataContext, job: _Import, files: list[InputFile]) -> Object:
    async with AsyncExitStack() as stack:
        files = await _fetch_first(job, files, stack)
        columns, _ = await _examine_files(job, files)
        while True:
            try:
                return await _insert_files(context, job, files, columns)
            except NullStructureError as error:  # read again, with a type that holds the NULL
                if error.name in job.schema:
                    raise IngestError(error.what, remedy=error.remedy) from None
                columns = tuple((name, error.wider if name == error.name else dtype) for name, dtype in columns)


async def _insert_files(context: DataContext, job: _Import, files: list[InputFile], columns: Columns) -> Object:
    names = ", ".join(quote_name(column) for column, _ in columns)

    async def fill(table: str) -> None:
        statement = f"INSERT INTO {quote_name(table)} ({quote_name(KEY)}, {names}) FORMAT ArrowStream"
        await context.client.send_stream(statement, _encode_files(job, files, columns), {}, context.query_id())

    try:
        table, _ = await context.create_table(columns, "table", fill)
    except QueryError as error:
        raise IngestError(
            f"{files[0].name} could not be stored: {error.what}", remedy="Pass schema= for its columns."
        ) from None
    return Object.from_table(table)


async def _encode_files(job: _Import, files: list[InputFile], columns: Columns) -> AsyncIterator[bytes]:
    """Yield one Arrow stream with the rows of all files, numbered from 0."""
    encoder = _StreamEncoder(columns)
    for file in files:
        async with _open_reader(job, file) as reader:
            pieces = _encode_file(encoder, reader, file, columns)
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
    yield encoder.close()


def _encode_file(encoder: _StreamEncoder, reader: FileReader, file: InputFile, columns: Columns) -> Iterator[bytes]:
    with _explain_errors(file):
        extra = next((name for name, _ in reader.columns if name not in dict(columns)), None)
        if extra is not None:
            raise IngestError(
                f"column {extra!r} is not in the first files", remedy="Read the files in groups of equal columns."
            )
        for table in reader.iter_tables(_column_types(columns, file)):
            yield encoder.encode(conform_table(_add_partition(table, file, columns), columns))


def _column_types(columns: Columns, file: InputFile) -> dict[str, DataType]:
    partition = dict(file.partition)
    return {name: dtype for name, dtype in columns if name not in partition}


def _add_partition(table: pa.Table, file: InputFile, columns: Columns) -> pa.Table:
    types = dict(columns)
    for name, text in file.partition:
        values = convert_text(name, pa.array([text], pa.string()), types[name])
        repeated = values.take(pa.array(np.zeros(table.num_rows, dtype=np.int64)))
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, repeated)
    return table


class _StreamEncoder:
    """Encoder of tables as one Arrow stream, with the row numbers as the key."""

    def __init__(self, columns: Columns) -> None:
        self._rows = 0
        self._sink = io.BytesIO()
        empty = conform_table(pa.table({name: pa.array([], pa.null()) for name, _ in columns}), columns)
        self._schema = empty.schema.insert(0, pa.field(KEY, pa.uint64()))
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def encode(self, table: pa.Table) -> bytes:
        keys = pa.array(np.arange(self._rows, self._rows + table.num_rows, dtype=np.uint64))
        self._rows += table.num_rows
        self._writer.write_table(table.add_column(0, KEY, keys).cast(self._schema))
        return self._take()

    def close(self) -> bytes:
        self._writer.close()
        return self._take()

    def _take(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data
