"""Import of files and URLs: the bytes are streamed to ClickHouse, which parses them.

This process reads the files, so the server needs no access to the user's disk or network, and embedded and remote
servers behave the same.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.create import assign_name
from aaiclick.data.errors import IngestError, QueryError, column_not_found
from aaiclick.data.io.arrow_types import clickhouse_type
from aaiclick.data.io.formats import FORMATS, Decompressor, format_of
from aaiclick.data.io.parse_errors import summarise_parse_error
from aaiclick.data.io.s3 import SCHEME, S3Access, S3Object, ServerBusyError, download_object
from aaiclick.data.io.ssrf import guarded_get, guarded_session, without_query
from aaiclick.data.object import Object
from aaiclick.data.runtime.tables import Columns, check_column_names, named_table
from aaiclick.data.types import DataType, parse_type, quote_name, quote_text, user_type

PIECE_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 20
"""Bytes used for type inference."""

PARAMETER_BYTES = 30_000
"""Bytes in one query parameter: the server accepts 131,072, and a byte may be sent as four."""
READ_SETTINGS = {
    "max_insert_threads": 1,
    "max_threads": 1,
    "input_format_parquet_preserve_order": 1,
    "date_time_input_format": "best_effort",
}


@dataclass(frozen=True)
class InputSource:
    """A file, S3 object or URL to read; `name` is shown in messages and contains no secret."""

    name: str
    path: Path | None
    format: str
    compression: str | None
    allow_private: bool
    s3: tuple[S3Object, S3Access] | None = None
    url: str = field(default="", repr=False)


async def create_object_from_file(
    source: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    schema: Mapping[str, str | type] | None = None,
    name: str | None = None,
    replace: bool = False,
    retries: int = 3,
    progress: bool | None = None,
    allow_private: bool = False,
    s3: S3Access | None = None,
) -> Object:
    """Store a local file, or one behind an http(s) or s3 URL: CSV, TSV, JSON, JSON lines, Parquet, ORC, Avro or Arrow.

    The format is detected by the name (`data.csv.gz`) or set by `format=`; types are inferred, and `schema` overrides
    those of some columns.
    An interrupted download is retried. Addresses that are not public are refused unless `allow_private`.
    `s3` holds the credentials for an `s3://bucket/key`; the default is the standard AWS variables.
    """
    context = get_data_context()
    if name is not None:
        named_table(name)
    chosen, compression = format_of(str(source), format)
    input_source = _resolve_source(str(source), chosen, compression, allow_private, s3)
    for attempt in range(retries + 1):
        try:
            obj = await _load_source(context, input_source, dict(schema or {}), _shows_progress(progress))
        except (aiohttp.ClientError, TimeoutError, ServerBusyError) as error:
            if attempt == retries or input_source.path is not None:
                reason = str(error).replace(input_source.url, input_source.name) if input_source.url else str(error)
                raise IngestError(
                    f"{input_source.name} could not be read: {reason}.", remedy="Try again later."
                ) from None
            await asyncio.sleep(min(0.2 * 2**attempt, 5))
        else:
            return await assign_name(context, obj, name, replace)
    raise AssertionError


def _resolve_source(
    text: str, chosen: str, compression: str | None, allow_private: bool, s3: S3Access | None
) -> InputSource:
    if text.startswith(SCHEME):
        s3_object = S3Object.parse(text)
        access = S3Access.from_environment() if s3 is None else s3
        return InputSource(str(s3_object), None, chosen, compression, allow_private, s3=(s3_object, access))
    if "://" in text:
        return InputSource(without_query(text), None, chosen, compression, allow_private, url=text)
    return InputSource(text, Path(text), chosen, compression, allow_private)


def _shows_progress(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress


async def _load_source(
    context: DataContext, source: InputSource, schema: dict[str, str | type], progress: bool
) -> Object:
    async with _fetch_whole(source) as ready:
        sample, pieces, total = await _open_source(ready)
        try:
            columns = await _determine_columns(context, ready, sample, schema)
            structure = ", ".join(f"{quote_name(column)} {dtype}" for column, dtype in columns)
            names = ", ".join(quote_name(column) for column, _ in columns)

            async def fill(table: str) -> None:
                statement = (
                    f"INSERT INTO {quote_name(table)} ({quote_name(KEY)}, {names}) "  # noqa: S608
                    f"SELECT rowNumberInAllBlocks(), {names} FROM input({quote_text(structure)}) "
                    f"FORMAT {_input_format(ready.format, sample)}"
                )
                body = _report_progress(pieces, total, ready.name) if progress else pieces
                await context.client.send_stream(
                    statement, _decompress_pieces(body, ready.compression), READ_SETTINGS, context.query_id()
                )

            table, _ = await context.create_table(columns, "table", fill)
        except QueryError as error:
            raise IngestError(
                f"{source.name} could not be read as {source.format}: {summarise_parse_error(error.what)}.",
                remedy="Repair the file, or pass schema= or format=.",
            ) from None
        finally:
            await pieces.aclose()
    return Object.from_table(table)


def _input_format(chosen: str, sample: bytes) -> str:
    if chosen == "arrow" and not sample.startswith(b"ARROW1"):
        return "ArrowStream"
    return FORMATS[chosen].reads


# --- bytes -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _fetch_whole(source: InputSource) -> AsyncGenerator[InputSource, None]:
    """Download to a temporary file first if the format has its schema in a footer."""
    if source.path is not None or not FORMATS[source.format].footer:
        yield source
        return
    with tempfile.NamedTemporaryFile(suffix=".download") as file:
        pieces = _download_source(source)
        try:
            async for piece in pieces:
                await asyncio.to_thread(file.write, piece)
        finally:
            await pieces.aclose()
        file.flush()
        yield replace(source, path=Path(file.name))


async def _open_source(source: InputSource) -> tuple[bytes, Any, int | None]:
    """Return the first bytes, a stream of all bytes (the first ones included), and the total size if known."""
    stream = _download_source(source) if source.path is None else _read_file(source.path)
    first: list[bytes] = []
    size = 0
    async for piece in stream:
        first.append(piece)
        size += len(piece)
        if size >= SAMPLE_BYTES:
            break

    async def iter_all_pieces() -> AsyncIterator[bytes]:
        try:
            for piece in first:
                yield piece
            async for piece in stream:
                yield piece
        finally:
            await stream.aclose()

    total = source.path.stat().st_size if source.path is not None else None
    return b"".join(first), iter_all_pieces(), total


async def _read_file(path: Path) -> AsyncGenerator[bytes, None]:
    try:
        file = await asyncio.to_thread(path.open, "rb")
        with file:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece
    except (OSError, ValueError) as error:  # ValueError: invalid file name
        reason = getattr(error, "strerror", None) or error
        raise IngestError(f"The file {str(path)!r} cannot be read: {reason}.", remedy="Check the path.") from None


async def _download_source(source: InputSource) -> AsyncGenerator[bytes, None]:
    stream = (
        _download_http(source) if source.s3 is None else download_object(*source.s3, source.allow_private, PIECE_BYTES)
    )
    try:
        async for piece in stream:
            yield piece
    finally:
        await stream.aclose()


async def _download_http(source: InputSource) -> AsyncGenerator[bytes, None]:
    async with guarded_session(source.allow_private) as session:
        response = await guarded_get(session, source.url, source.allow_private)
        try:
            if response.status >= 500 or response.status == 429:
                raise ServerBusyError(f"the server answered {response.status}")
            if response.status != 200:
                raise IngestError(f"{source.name} could not be read: the server answered {response.status}.")
            async for piece in response.content.iter_chunked(PIECE_BYTES):
                yield piece
        finally:
            response.close()


async def _decompress_pieces(pieces: Any, compression: str | None) -> AsyncIterator[bytes]:
    decompress = Decompressor(compression)
    async for piece in pieces:
        if not compression:
            yield piece
            continue
        steps = decompress(piece)
        while plain := await asyncio.to_thread(next, steps, b""):
            yield plain


async def _report_progress(pieces: Any, total: int | None, name: str) -> AsyncIterator[bytes]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(Path(name).name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("read", total=total)
        async for piece in pieces:
            progress.advance(task, len(piece))
            yield piece


# --- columns -----------------------------------------------------------------------------------------------------


async def _determine_columns(
    context: DataContext, source: InputSource, sample: bytes, schema: dict[str, str | type]
) -> Columns:
    if FORMATS[source.format].footer and source.path is not None:
        columns = await asyncio.to_thread(_read_footer_columns, source, sample)
    else:
        columns = await _infer_columns(context, source, sample)
    check_column_names(column for column, _ in columns)
    names = [column for column, _ in columns]
    for column in schema:
        if column not in names:
            raise column_not_found(column, names)
    return tuple(
        (column, user_type(schema[column]) if column in schema else _without_null(dtype)) for column, dtype in columns
    )


def _without_null(dtype: DataType) -> DataType:
    """Make arrays, structs and maps not nullable: ClickHouse does not support NULL for them."""
    return replace(dtype, nullable=False) if dtype.is_structure else dtype


async def _infer_columns(context: DataContext, source: InputSource, sample: bytes) -> list[tuple[str, DataType]]:
    """Let ClickHouse infer the types from the sample, cut at the end of a line."""
    is_complete = len(sample) < SAMPLE_BYTES
    sample = _decompress_sample(source, sample)
    if source.format != "avro" and not (is_complete and len(sample) <= SAMPLE_BYTES):
        sample = sample[:SAMPLE_BYTES]
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    if not sample.strip():
        raise IngestError(f"{source.name} is empty, so it has no columns.")
    pieces = [
        sample[start : start + PARAMETER_BYTES] for start in range(0, min(len(sample), SAMPLE_BYTES), PARAMETER_BYTES)
    ]
    parameters = {f"s{i}": _as_parameter(piece) for i, piece in enumerate(pieces)}
    joined = f"concat({', '.join(f'{{{name}:String}}' for name in parameters)}, '')"
    statement = f"DESCRIBE TABLE format({FORMATS[source.format].reads}, {joined})"
    settings = {
        "schema_inference_make_columns_nullable": 1,
        "input_format_max_rows_to_read_for_schema_inference": 50_000,
    }
    rows = (await context.client.read_text(statement, parameters, settings, context.query_id())).to_pylist()
    return [(row["name"], parse_type(row["type"])) for row in rows]


def _decompress_sample(source: InputSource, sample: bytes) -> bytes:
    """Decompress the beginning of a sample, to little more than SAMPLE_BYTES."""
    plain = bytearray()
    for piece in Decompressor(source.compression)(sample):
        plain += piece
        if len(plain) > SAMPLE_BYTES:
            break
    return bytes(plain)


def _as_parameter(sample: bytes) -> str | bytes:
    """Decode as text if possible: bytes are sent escaped, at up to four times the size."""
    try:
        return sample.decode()
    except UnicodeDecodeError:
        return sample


def _read_footer_columns(source: InputSource, sample: bytes) -> list[tuple[str, DataType]]:
    path = str(source.path)
    try:
        if source.format == "parquet":
            schema = pq.read_schema(path)
        elif source.format == "orc":
            schema = orc.ORCFile(path).schema
        else:
            schema = (pa.ipc.open_file(path) if sample.startswith(b"ARROW1") else pa.ipc.open_stream(path)).schema
    except (pa.ArrowException, OSError) as error:
        raise IngestError(
            f"{source.name} could not be read as {source.format}: {str(error).rstrip('.')}.",
            remedy="Repair the file, or pass the right format=.",
        ) from None
    return [(field.name, clickhouse_type(field.name, field.type).as_nullable()) for field in schema]
