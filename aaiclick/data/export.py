"""Objects out to files and to S3: streamed from ClickHouse, and there only when complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from aaiclick.data.errors import DataError
from aaiclick.data.execute import prepare
from aaiclick.data.formats import FORMATS, compressor, format_of
from aaiclick.data.s3 import S3Access, S3Object, upload
from aaiclick.data.statements import compile_query

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext
    from aaiclick.data.nodes import Relation

Source = Callable[[str], AsyncGenerator[bytes, None]]
"""Rows in the format that it is asked for."""


def format_settings(chosen: str) -> dict[str, Any]:
    """What ClickHouse has to be told to write a format as we mean it."""
    return {
        "output_format_json_array_of_rows": int(chosen == "json"),
        "output_format_arrow_compression_method": "none",
    }


async def export_bytes(context: DataContext, relation: Relation, chosen: str) -> AsyncGenerator[bytes, None]:
    """The rows in a file format, as they are made."""
    context.check(relation)
    query = compile_query(await prepare(context, relation))
    stream = context.client.stream_bytes(query, FORMATS[chosen].writes, format_settings(chosen), context.query_id())
    try:
        async for piece in stream:
            yield piece
    finally:
        await stream.aclose()


async def export_file(context: DataContext, relation: Relation, path: str | Path, given: str | None) -> Path:
    """Write rows to a file."""
    return await write_file(path, given, lambda chosen: export_bytes(context, relation, chosen))


async def write_file(path: str | Path, given: str | None, source: Source) -> Path:
    """Write a file; under its name it appears only when it is complete."""
    if "://" in str(path):
        raise DataError(f"{str(path)[:20]!r}… is not a file.", remedy="A file or an s3://bucket/key can be written.")
    target = Path(path)
    if await asyncio.to_thread(target.is_dir):
        raise DataError(f"{str(target)!r} is a directory.", remedy="Name a file in it.")
    chosen, compression = format_of(target.name, given)
    partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.partial")
    try:
        file = await asyncio.to_thread(partial.open, "wb")
    except (OSError, ValueError) as error:  # ValueError: no file has such a name
        words = getattr(error, "strerror", None) or error
        raise DataError(f"{str(target)!r} cannot be written: {words}.", remedy="Check the directory.") from None
    try:
        with file:
            async with aclosing(_compressed(source(chosen), compression)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return target


async def export_s3(
    context: DataContext, relation: Relation, url: str, given: str | None, access: S3Access | None
) -> str:
    """Write rows to an object of S3."""
    return await write_s3(url, given, access, lambda chosen: export_bytes(context, relation, chosen))


async def write_s3(url: str, given: str | None, access: S3Access | None, source: Source) -> str:
    """Write an object of S3; it appears only when it is complete. Returns its address, as s3://bucket/key."""
    target = S3Object.parse(url)
    chosen, compression = format_of(target.key, given)
    async with aclosing(_compressed(source(chosen), compression)) as pieces:
        await upload(target, S3Access.from_environment() if access is None else access, pieces)
    return str(target)


async def _compressed(pieces: AsyncGenerator[bytes, None], compression: str | None) -> AsyncGenerator[bytes, None]:
    compress, flush = compressor(compression)
    try:
        async for piece in pieces:
            yield await asyncio.to_thread(compress, piece) if compression else piece
        yield flush()
    finally:
        await pieces.aclose()
