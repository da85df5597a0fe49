"""Objects out to files: streamed from ClickHouse, and there only when complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from uuid import uuid4

from aaiclick.data.errors import DataError
from aaiclick.data.execute import prepare
from aaiclick.data.formats import FORMATS, compressor, format_of
from aaiclick.data.statements import compile_query

if TYPE_CHECKING:
    from aaiclick.data.context import DataContext
    from aaiclick.data.nodes import Relation


async def export_bytes(context: DataContext, relation: Relation, chosen: str) -> AsyncIterator[bytes]:
    """The rows in a file format, as they are made."""
    context.check(relation)
    query = compile_query(await prepare(context, relation))
    settings = {
        "output_format_json_array_of_rows": int(chosen == "json"),
        "output_format_arrow_compression_method": "none",
    }
    stream = context.client.stream_bytes(query, FORMATS[chosen].writes, settings)
    try:
        async for piece in stream:
            yield piece
    finally:
        await stream.aclose()


async def export_file(context: DataContext, relation: Relation, path: str | Path, given: str | None) -> Path:
    """Write a file; under its name it appears only when it is complete."""
    target = Path(path)
    chosen, compression = format_of(target.name, given)
    compress, flush = compressor(compression)
    partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.partial")
    try:
        file = await asyncio.to_thread(partial.open, "wb")
    except OSError as error:
        raise DataError(
            f"{str(target)!r} cannot be written: {error.strerror}.", remedy="Check the directory."
        ) from None
    try:
        with file:
            async for piece in export_bytes(context, relation, chosen):
                await asyncio.to_thread(_write, file, compress, piece)
            file.write(flush())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return target


def _write(file: BinaryIO, compress: Callable[[bytes], bytes], piece: bytes) -> None:
    file.write(compress(piece))
