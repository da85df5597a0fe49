"""Files and URLs in: the bytes are streamed to ClickHouse, which parses them.

Files are read here, not by the server: it needs no access to the user's disk or network, and an embedded server and
a remote one behave the same.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

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

from aaiclick.data.arrow import clickhouse_type
from aaiclick.data.context import DataContext, get_data_context
from aaiclick.data.create import keep
from aaiclick.data.errors import IngestError, QueryError, column_not_found
from aaiclick.data.formats import FORMATS, Decompressor, format_of
from aaiclick.data.frame import KEY
from aaiclick.data.guard import guarded_get, guarded_session, without_query
from aaiclick.data.object import Object
from aaiclick.data.s3 import SCHEME, BusyError, S3Access, S3Object, download
from aaiclick.data.tables import Columns, check_column_names, named_table
from aaiclick.data.types import DataType, parse_type, quote_name, quote_text, user_type
from aaiclick.data.unreadable import what_is_wrong

PIECE = 1 << 20
SAMPLE = 1 << 20
"""Bytes from which types are inferred."""

FIELD = 30_000
"""Bytes in one query parameter: the server takes 131,072, and a byte may be sent as four."""
READ_SETTINGS = {
    "max_insert_threads": 1,
    "max_threads": 1,
    "input_format_parquet_preserve_order": 1,
    "date_time_input_format": "best_effort",
}


@dataclass(frozen=True)
class Source:
    """Where the bytes come from: a file, an object of S3, or an address; `name` is for people and holds no secret."""

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

    The format is told by the name (`data.csv.gz`) or by `format=`; types are inferred, and `schema` gives some
    columns others.
    A download that breaks off is tried again. Addresses that are not public are refused unless `allow_private`.
    `s3` says how to reach an `s3://bucket/key`; by default the standard AWS variables do.
    """
    context = get_data_context()
    if name is not None:
        named_table(name)
    chosen, compression = format_of(str(source), format)
    where = _source(str(source), chosen, compression, allow_private, s3)
    for attempt in range(retries + 1):
        try:
            made = await _load(context, where, dict(schema or {}), _shows(progress))
        except (aiohttp.ClientError, TimeoutError, BusyError) as error:
            if attempt == retries or where.path is not None:
                words = str(error).replace(where.url, where.name) if where.url else str(error)
                raise IngestError(f"{where.name} could not be read: {words}.", remedy="Try again later.") from None
            await asyncio.sleep(min(0.2 * 2**attempt, 5))
        else:
            return await keep(context, made, name, replace)
    raise AssertionError


def _source(text: str, chosen: str, compression: str | None, allow_private: bool, s3: S3Access | None) -> Source:
    if text.startswith(SCHEME):
        target = S3Object.parse(text)
        access = S3Access.from_environment() if s3 is None else s3
        return Source(str(target), None, chosen, compression, allow_private, s3=(target, access))
    if "://" in text:
        return Source(without_query(text), None, chosen, compression, allow_private, url=text)
    return Source(text, Path(text), chosen, compression, allow_private)


def _shows(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress


async def _load(context: DataContext, source: Source, schema: dict[str, str | type], progress: bool) -> Object:
    async with _local(source) as ready:
        sample, pieces, total = await _opened(ready)
        try:
            columns = await _columns(context, ready, sample, schema)
            structure = ", ".join(f"{quote_name(column)} {kind}" for column, kind in columns)
            names = ", ".join(quote_name(column) for column, _ in columns)

            async def fill(table: str) -> None:
                statement = (
                    f"INSERT INTO {quote_name(table)} ({quote_name(KEY)}, {names}) "  # noqa: S608
                    f"SELECT rowNumberInAllBlocks(), {names} FROM input({quote_text(structure)}) "
                    f"FORMAT {_reads(ready.format, sample)}"
                )
                body = _shown(pieces, total, ready.name) if progress else pieces
                await context.client.send(statement, _plain(body, ready.compression), READ_SETTINGS, context.query_id())

            table, _ = await context.create_table(columns, "table", fill)
        except QueryError as error:
            raise IngestError(
                f"{source.name} could not be read as {source.format}: {what_is_wrong(error.what)}.",
                remedy="Mend the file, or pass schema= or format=.",
            ) from None
        finally:
            await pieces.aclose()
    return Object.from_table(table)


def _reads(chosen: str, sample: bytes) -> str:
    if chosen == "arrow" and not sample.startswith(b"ARROW1"):
        return "ArrowStream"
    return FORMATS[chosen].reads


# --- bytes -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _local(source: Source) -> AsyncGenerator[Source, None]:
    """Formats with their schema at the end are needed whole: a download of one goes to a temporary file first."""
    if source.path is not None or not FORMATS[source.format].footer:
        yield source
        return
    with tempfile.NamedTemporaryFile(suffix=".download") as file:
        pieces = _download(source)
        try:
            async for piece in pieces:
                await asyncio.to_thread(file.write, piece)
        finally:
            await pieces.aclose()
        file.flush()
        yield replace(source, path=Path(file.name))


async def _opened(source: Source) -> tuple[bytes, Any, int | None]:
    """The first bytes, all bytes as a stream (with the first again), and how many there are."""
    stream = _download(source) if source.path is None else _file(source.path)
    first: list[bytes] = []
    size = 0
    async for piece in stream:
        first.append(piece)
        size += len(piece)
        if size >= SAMPLE:
            break

    async def everything() -> AsyncIterator[bytes]:
        try:
            for piece in first:
                yield piece
            async for piece in stream:
                yield piece
        finally:
            await stream.aclose()

    total = source.path.stat().st_size if source.path is not None else None
    return b"".join(first), everything(), total


async def _file(path: Path) -> AsyncGenerator[bytes, None]:
    try:
        file = await asyncio.to_thread(path.open, "rb")
        with file:
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece
    except (OSError, ValueError) as error:  # ValueError: no file has such a name
        words = getattr(error, "strerror", None) or error
        raise IngestError(f"The file {str(path)!r} cannot be read: {words}.", remedy="Check the path.") from None


async def _download(source: Source) -> AsyncGenerator[bytes, None]:
    stream = _http(source) if source.s3 is None else download(*source.s3, source.allow_private, PIECE)
    try:
        async for piece in stream:
            yield piece
    finally:
        await stream.aclose()


async def _http(source: Source) -> AsyncGenerator[bytes, None]:
    async with guarded_session(source.allow_private) as session:
        response = await guarded_get(session, source.url, source.allow_private)
        try:
            if response.status >= 500 or response.status == 429:
                raise BusyError(f"the server answered {response.status}")
            if response.status != 200:
                raise IngestError(f"{source.name} could not be read: the server answered {response.status}.")
            async for piece in response.content.iter_chunked(PIECE):
                yield piece
        finally:
            response.close()


async def _plain(pieces: Any, compression: str | None) -> AsyncIterator[bytes]:
    decompress = Decompressor(compression)
    async for piece in pieces:
        if not compression:
            yield piece
            continue
        steps = decompress(piece)
        while plain := await asyncio.to_thread(next, steps, b""):
            yield plain


async def _shown(pieces: Any, total: int | None, name: str) -> AsyncIterator[bytes]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(Path(name).name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("read", total=total)
        async for piece in pieces:
            progress.advance(task, len(piece))
            yield piece


# --- columns -----------------------------------------------------------------------------------------------------


async def _columns(context: DataContext, source: Source, sample: bytes, schema: dict[str, str | type]) -> Columns:
    if FORMATS[source.format].footer and source.path is not None:
        found = await asyncio.to_thread(_footer, source, sample)
    else:
        found = await _inferred(context, source, sample)
    check_column_names(column for column, _ in found)
    known = [column for column, _ in found]
    for column in schema:
        if column not in known:
            raise column_not_found(column, known)
    return tuple((column, user_type(schema[column]) if column in schema else _flat(kind)) for column, kind in found)


def _flat(kind: DataType) -> DataType:
    """Arrays, structs and maps cannot be NULL in a table."""
    return replace(kind, nullable=False) if kind.is_structure else kind


async def _inferred(context: DataContext, source: Source, sample: bytes) -> list[tuple[str, DataType]]:
    """What ClickHouse makes of the first megabytes, cut at the end of a line."""
    whole = len(sample) < SAMPLE
    sample = _plain_sample(source, sample)
    if source.format != "avro" and not (whole and len(sample) <= SAMPLE):
        sample = sample[:SAMPLE]
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    if not sample.strip():
        raise IngestError(f"{source.name} is empty, so it has no columns.")
    pieces = [sample[at : at + FIELD] for at in range(0, min(len(sample), SAMPLE), FIELD)]
    parameters = {f"s{i}": _as_parameter(piece) for i, piece in enumerate(pieces)}
    joined = f"concat({', '.join(f'{{{each}:String}}' for each in parameters)}, '')"
    statement = f"DESCRIBE TABLE format({FORMATS[source.format].reads}, {joined})"
    settings = {
        "schema_inference_make_columns_nullable": 1,
        "input_format_max_rows_to_read_for_schema_inference": 50_000,
    }
    rows = (await context.client.read_text(statement, parameters, settings, context.query_id())).to_pylist()
    return [(row["name"], parse_type(row["type"])) for row in rows]


def _plain_sample(source: Source, sample: bytes) -> bytes:
    """The beginning of the plain bytes: little more than a sample, however far they expand."""
    plain = bytearray()
    for piece in Decompressor(source.compression)(sample):
        plain += piece
        if len(plain) > SAMPLE:
            break
    return bytes(plain)


def _as_parameter(sample: bytes) -> str | bytes:
    """As text where it is text: bytes are sent in an escaped form of four times the size."""
    try:
        return sample.decode()
    except UnicodeDecodeError:
        return sample


def _footer(source: Source, sample: bytes) -> list[tuple[str, DataType]]:
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
            remedy="Mend the file, or pass format= to say what it is.",
        ) from None
    return [(field.name, clickhouse_type(field.name, field.type).as_nullable()) for field in schema]
