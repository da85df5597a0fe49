"""Export of Objects to files and S3: streamed from ClickHouse, visible only when complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from aaiclick.data.errors import DataError
from aaiclick.data.io.file_writers import create_writer
from aaiclick.data.io.formats import create_compressor, format_of
from aaiclick.data.io.s3_client import S3Access, S3Object, upload_object
from aaiclick.data.runtime.execute import read_batches
from aaiclick.data.runtime.tables import Columns

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext
    from aaiclick.data.expressions.nodes import Relation

RowStream = Callable[[str], AsyncGenerator[bytes, None]]
"""Function from a format to the encoded rows."""


async def export_bytes(context: DataContext, relation: Relation, chosen: str) -> AsyncGenerator[bytes, None]:
    """Stream the rows in a file format."""
    batches = read_batches(context, relation)
    async with aclosing(encode_batches(batches, tuple(relation.schema.items()), chosen)) as pieces:
        async for piece in pieces:
            yield piece


async def encode_batches(
    batches: AsyncGenerator[pa.RecordBatch, None], columns: Columns, chosen: str
) -> AsyncGenerator[bytes, None]:
    """Encode batches in a file format."""
    writer = create_writer(chosen, columns)
    async with aclosing(batches):
        async for batch in batches:
            if piece := await asyncio.to_thread(writer.write, batch):
                yield piece
    yield await asyncio.to_thread(writer.close)


async def export_file(context: DataContext, relation: Relation, path: str | Path, format_name: str | None) -> Path:
    """Write rows to a file."""
    return await write_file(path, format_name, lambda chosen: export_bytes(context, relation, chosen))


async def write_file(path: str | Path, format_name: str | None, source: RowStream) -> Path:
    """Write a file atomically: under a temporary name, renamed when complete."""
    if "://" in str(path):
        raise DataError(f"{str(path)[:20]!r}… is not a file.", remedy="A file or an s3://bucket/key can be written.")
    file_path = Path(path)
    if await asyncio.to_thread(file_path.is_dir):
        raise DataError(f"{str(file_path)!r} is a directory.", remedy="Name a file in it.")
    chosen, compression = format_of(file_path.name, format_name)
    partial = file_path.with_name(f".{file_path.name}.{uuid4().hex[:8]}.partial")
    try:
        file = await asyncio.to_thread(partial.open, "wb")
    except (OSError, ValueError) as error:  # ValueError: invalid file name
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{str(file_path)!r} cannot be written: {reason}.", remedy="Check the directory.") from None
    try:
        with file:
            async with aclosing(_compress_pieces(source(chosen), compression)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
        partial.replace(file_path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return file_path


async def export_s3(
    context: DataContext, relation: Relation, url: str, format_name: str | None, access: S3Access | None
) -> str:
    """Write rows to an S3 object."""
    return await write_s3(url, format_name, access, lambda chosen: export_bytes(context, relation, chosen))


async def write_s3(url: str, format_name: str | None, access: S3Access | None, source: RowStream) -> str:
    """Write an S3 object, visible only when complete; return its address as s3://bucket/key."""
    s3_object = S3Object.parse(url)
    chosen, compression = format_of(s3_object.key, format_name)
    async with aclosing(_compress_pieces(source(chosen), compression)) as pieces:
        await upload_object(s3_object, S3Access.from_environment() if access is None else access, pieces)
    return str(s3_object)


async def _compress_pieces(pieces: AsyncGenerator[bytes, None], compression: str | None) -> AsyncGenerator[bytes, None]:
    compress, flush = create_compressor(compression)
    try:
        async for piece in pieces:
            yield await asyncio.to_thread(compress, piece) if compression else piece
        yield flush()
    finally:
        await pieces.aclose()
