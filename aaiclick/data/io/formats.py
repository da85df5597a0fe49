"""File formats and compressions: detection by file name, streaming compression and decompression."""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from aaiclick.data.errors import IngestError, suggest_name


@dataclass(frozen=True)
class FileFormat:
    """A file format; one with a footer can only be read from a file that can be searched."""

    footer: bool = False


FORMATS = {
    "csv": FileFormat(),
    "tsv": FileFormat(),
    "json": FileFormat(),
    "jsonl": FileFormat(),
    "parquet": FileFormat(footer=True),
    "orc": FileFormat(footer=True),
    "arrow": FileFormat(footer=True),
    "avro": FileFormat(),
}
SUFFIXES = {"ndjson": "jsonl", "feather": "arrow", "pq": "parquet", "tab": "tsv"}
MAX_STEP_BYTES = 1 << 20
"""Maximum output of one decompression step, however small its input."""

EXPANSION_FREE_BYTES = 1 << 30
MAX_EXPANSION = 250
"""Real data seldom expands 50-fold; after the first gigabyte, files that expand more than this are refused."""

COMPRESSIONS = {"gz": "gzip", "zst": "zstd", "xz": "xz", "bz2": "bz2", "lz4": "lz4"}


def format_of(name: str, format_name: str | None) -> tuple[str, str | None]:
    """Return the format (a key of FORMATS) and the compression, by `format_name` or by the file name's suffixes."""
    parts = PurePosixPath(name.split("?")[0].split("#")[0]).name.lower().split(".")[1:]
    compression = COMPRESSIONS.get(parts[-1]) if parts else None
    if compression:
        parts = parts[:-1]
    chosen = (format_name or (parts[-1] if parts else "")).lower()
    chosen = SUFFIXES.get(chosen, chosen)
    if chosen not in FORMATS:
        raise IngestError(
            f"The format of {name!r} is not known{f': {chosen!r}' if chosen else ''}.",
            remedy=f"{suggest_name(chosen, FORMATS)} Pass format= to say which.",
        )
    return chosen, compression


class _GzipDecompressor:
    """zlib with the interface of the other decompressors."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class Decompressor:
    """Streaming decompressor with bounded output pieces; accepts several concatenated compressed streams.

    Raises IngestError for a decompression bomb.
    """

    def __init__(self, compression: str | None) -> None:
        self._compression = compression
        self._inner = self._create_decompressor()
        self._read = 0
        self._written = 0

    def _create_decompressor(self) -> Any:
        makers: dict[str | None, Callable[[], object]] = {
            None: lambda: None,
            "gzip": _GzipDecompressor,
            "bz2": bz2.BZ2Decompressor,
            "xz": lzma.LZMADecompressor,
        }
        maker = makers.get(self._compression)
        return maker() if maker is not None else _create_bundled_codec(str(self._compression), "decompress")

    def __call__(self, piece: bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes of a piece, at most MAX_STEP_BYTES at a time."""
        self._read += len(piece)
        if self._inner is None:
            yield piece
            return
        while piece or not (self._inner.eof or self._inner.needs_input):
            if self._inner.eof:
                self._inner = self._create_decompressor()
            plain = self._decompress_piece(piece)
            piece = (self._inner.unused_data or b"") if self._inner.eof else b""
            self._check_expansion(len(plain))
            if plain:
                yield plain

    def _decompress_piece(self, piece: bytes) -> bytes:
        try:
            return self._inner.decompress(piece, MAX_STEP_BYTES)
        except Exception as error:  # noqa: BLE001  (each library has its own)
            raise IngestError(
                f"The data is not {self._compression}, or it is damaged: {error}.",
                remedy="Repair the file, or correct its suffix.",
            ) from None

    def _check_expansion(self, size: int) -> None:
        self._written += size
        if self._written > EXPANSION_FREE_BYTES and self._written > MAX_EXPANSION * self._read:
            raise IngestError(
                f"The {self._compression} data expands more than {MAX_EXPANSION}-fold, to over "
                f"{EXPANSION_FREE_BYTES:,} bytes: reading stopped.",
                remedy="If that is expected, decompress the file before it is read.",
            )


def create_compressor(compression: str | None) -> tuple[Callable[[bytes], bytes], Callable[[], bytes]]:
    """Return the functions `compress(piece)` and `flush()` of a compression."""
    if compression is None:
        return (lambda piece: piece), (lambda: b"")
    makers: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.compressobj(6, zlib.DEFLATED, 31),
        "bz2": bz2.BZ2Compressor,
        "xz": lzma.LZMACompressor,
    }
    codec = makers[compression]() if compression in makers else _create_bundled_codec(compression, "compress")
    return codec.compress, codec.flush


def _create_bundled_codec(compression: str, direction: str) -> Any:
    """Create a zstd or lz4 codec; both libraries are dependencies of clickhouse-connect."""
    if compression == "lz4":
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor() if direction == "decompress" else _Lz4Compressor()
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor() if direction == "decompress" else zstd.ZstdCompressor()


class _Lz4Compressor:
    """lz4's compressor, which must be asked for the frame header separately."""

    def __init__(self) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameCompressor()
        self._has_header = False

    def compress(self, piece: bytes) -> bytes:
        head = b"" if self._has_header else self._frame.begin()
        self._has_header = True
        return head + self._frame.compress(piece)

    def flush(self) -> bytes:
        return self._frame.flush()
