"""Input files: paths, directories, globs, URLs and S3 prefixes, with the columns of hive partitions.

Remote files are downloaded to temporary files, one at a time, so the server needs no access to the user's disk or
network, and embedded and remote servers behave the same.
"""

from __future__ import annotations

import asyncio
import glob
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import unquote

import aiohttp

from aaiclick.data.errors import IngestError
from aaiclick.data.io.byte_streams import PIECE_BYTES
from aaiclick.data.io.formats import FORMATS, Decompressor, format_of
from aaiclick.data.io.s3_client import (
    SCHEME,
    S3Access,
    S3Object,
    ServerBusyError,
    download_object,
    list_keys,
    split_address,
)
from aaiclick.data.io.ssrf import guarded_get, guarded_session, without_query

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
WILDCARDS = re.compile(r"[*?\[]")
Source = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class InputFile:
    """One file to read; `name` is shown in messages and contains no secret."""

    name: str
    format: str
    compression: str | None
    path: Path | None = None
    s3: tuple[S3Object, S3Access] | None = None
    url: str = field(default="", repr=False)
    partition: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class FetchOptions:
    """How remote files are downloaded."""

    retries: int = 3
    progress: bool | None = None
    allow_private: bool = False
    s3: S3Access | None = None

    @property
    def shows_progress(self) -> bool:
        return sys.stderr.isatty() if self.progress is None else self.progress


async def find_files(source: Source, format_name: str | None, options: FetchOptions) -> list[InputFile]:
    """List the files of a path, a directory, a glob, a URL, an S3 prefix, or a list of these, in the order of names."""
    if isinstance(source, str | Path):
        files = await _find_one(str(source), format_name, options)
    elif not isinstance(source, list | tuple):
        raise IngestError(f"{source!r:.60} is not a file.", remedy="Use a path, a glob, a URL, or a list of these.")
    else:
        files = [file for item in source for file in await _find_one(str(item), format_name, options)]
    if not files:
        raise IngestError("The list of files is empty.", remedy="Name at least one file.")
    formats = {file.format for file in files}
    if len(formats) > 1:
        raise IngestError(
            f"The files have several formats: {', '.join(sorted(formats))}.", remedy="Read each format by itself."
        )
    names = {tuple(name for name, _ in file.partition) for file in files}
    if len(names) > 1:
        raise IngestError("The files have different partition columns.", remedy="Read each directory by itself.")
    return files


async def _find_one(text: str, format_name: str | None, options: FetchOptions) -> list[InputFile]:
    if text.startswith(SCHEME):
        return await _find_in_bucket(text, format_name, options)
    if "://" in text:
        return [InputFile(without_query(text), *format_of(text, format_name), url=text)]
    return await asyncio.to_thread(_find_local, text, format_name)


def _find_local(text: str, format_name: str | None) -> list[InputFile]:
    path = Path(text)
    try:
        is_directory, exists = path.is_dir(), path.exists()
    except (OSError, ValueError):
        is_directory = exists = False  # opening it raises the error
    if is_directory:
        paths = [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file.relative_to(path))]
    elif not exists and WILDCARDS.search(text):
        paths = [Path(name) for name in sorted(glob.glob(text, recursive=True)) if Path(name).is_file()]  # noqa: PTH207
    else:
        return [InputFile(text, *format_of(text, format_name), path=path)]
    if not paths:
        raise IngestError(f"{text!r} has no files.", remedy="Check the path.")
    return [
        InputFile(str(file), *format_of(str(file), format_name), path=file, partition=_partition_of(file.parts[:-1]))
        for file in paths
    ]


def _is_hidden(path: Path) -> bool:
    """Whether a part of the path starts with `.` or `_`, as the marker files of Spark do."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _partition_of(directories: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Return the columns in directory names of the form `column=value`."""
    pairs = [part.split("=", 1) for part in directories if "=" in part]
    return tuple((unquote(name), None if value == HIVE_NULL else unquote(value)) for name, value in pairs if name)


# --- S3 ----------------------------------------------------------------------------------------------------------


async def _find_in_bucket(text: str, format_name: str | None, options: FetchOptions) -> list[InputFile]:
    access = S3Access.from_environment() if options.s3 is None else options.s3
    if "*" not in text and not text.endswith("/"):
        s3_object = S3Object.parse(text)
        return [InputFile(str(s3_object), *format_of(text, format_name), s3=(s3_object, access))]
    bucket, pattern = split_address(text)
    prefix = pattern.partition("*")[0]
    matches = _compile_glob(pattern if "*" in pattern else f"{pattern}**")
    keys = [
        key
        async for key in list_keys(bucket, prefix, access, options.allow_private)
        if matches.fullmatch(key) and not key.endswith("/") and not _is_hidden(Path(key[len(prefix) :]))
    ]
    if not keys:
        raise IngestError(f"{text!r} has no files.", remedy="Check the bucket and the prefix.")
    return [
        InputFile(
            f"{SCHEME}{bucket}/{key}", *format_of(key, format_name), s3=(S3Object(bucket, key), access),
            partition=_partition_of(key.split("/")[:-1]),
        )
        for key in keys
    ]  # fmt: skip


def _compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `*` matches within a directory, `**` matches any number of directories."""
    tokens = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*/|\*\*|\*)", pattern)
    return re.compile("".join(tokens.get(part) or re.escape(part) for part in parts), re.DOTALL)


# --- bytes -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def fetch_file(file: InputFile, options: FetchOptions) -> AsyncGenerator[tuple[Path, str | None], None]:
    """Yield a local path and its compression: remote files, and compressed ones with a footer, are temporary files."""
    is_seekable = not (file.compression and FORMATS[file.format].footer)
    if file.path is not None and is_seekable:
        yield file.path, file.compression
        return
    with NamedTemporaryFile(suffix=".download") as target:
        await _save(file, options, target, None if is_seekable else file.compression)
        target.flush()
        yield Path(target.name), file.compression if is_seekable else None


async def _save(file: InputFile, options: FetchOptions, target: Any, compression: str | None) -> None:
    for attempt in range(options.retries + 1):
        decompress = Decompressor(compression)
        target.seek(0)
        target.truncate()
        pieces = _read_local(file.path) if file.path is not None else _download(file, options)
        try:
            async for piece in pieces:
                for plain in decompress(piece):
                    await asyncio.to_thread(target.write, plain)
        except (aiohttp.ClientError, TimeoutError, ServerBusyError) as error:
            if attempt == options.retries:
                reason = str(error).replace(file.url, file.name) if file.url else str(error)
                raise IngestError(f"{file.name} could not be read: {reason}.", remedy="Try again later.") from None
            await asyncio.sleep(min(0.2 * 2**attempt, 5))
        else:
            return
        finally:
            await pieces.aclose()


async def _read_local(path: Path) -> AsyncGenerator[bytes, None]:
    with path.open("rb") as source:
        while piece := await asyncio.to_thread(source.read, PIECE_BYTES):
            yield piece


async def _download(file: InputFile, options: FetchOptions) -> AsyncGenerator[bytes, None]:
    stream = (
        _download_http(file, options)
        if file.s3 is None
        else download_object(*file.s3, options.allow_private, PIECE_BYTES)
    )
    try:
        async for piece in _report_progress(stream, file.name) if options.shows_progress else stream:
            yield piece
    finally:
        await stream.aclose()


async def _download_http(file: InputFile, options: FetchOptions) -> AsyncGenerator[bytes, None]:
    async with guarded_session(options.allow_private) as session:
        response = await guarded_get(session, file.url, options.allow_private)
        try:
            if response.status >= 500 or response.status == 429:
                raise ServerBusyError(f"the server answered {response.status}")
            if response.status != 200:
                raise IngestError(f"{file.name} could not be read: the server answered {response.status}.")
            async for piece in response.content.iter_chunked(PIECE_BYTES):
                yield piece
        finally:
            response.close()


async def _report_progress(pieces: AsyncIterator[bytes], name: str) -> AsyncIterator[bytes]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(Path(name).name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("read", total=None)
        async for piece in pieces:
            progress.advance(task, len(piece))
            yield piece
