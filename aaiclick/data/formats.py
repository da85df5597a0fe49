"""File formats and compressions: which one a name means, and how to undo or do a compression piece by piece."""

# lz4 and zstd ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from aaiclick.data.errors import IngestError, nearest


@dataclass(frozen=True)
class Format:
    """How ClickHouse calls it, and whether its schema stands at the end of the file."""

    reads: str
    writes: str
    footer: bool = False


FORMATS = {
    "csv": Format("CSVWithNames", "CSVWithNames"),
    "tsv": Format("TSVWithNames", "TSVWithNames"),
    "json": Format("JSONEachRow", "JSONEachRow"),  # reads an array of objects as well as lines; writes an array
    "jsonl": Format("JSONEachRow", "JSONEachRow"),
    "parquet": Format("Parquet", "Parquet", footer=True),
    "orc": Format("ORC", "ORC", footer=True),
    "arrow": Format("Arrow", "Arrow", footer=True),
    "avro": Format("Avro", "Avro"),
}
SUFFIXES = {"ndjson": "jsonl", "feather": "arrow", "pq": "parquet", "tab": "tsv"}
PLAIN_BYTES = 1 << 20
"""The most that one step of decompression makes, however small its input."""

UNSUSPECTED_BYTES = 1 << 30
MOST_EXPANSION = 250
"""Files of real data seldom expand 50-fold; beyond the first gigabyte, those that do more than this are refused."""

COMPRESSIONS = {"gz": "gzip", "zst": "zstd", "xz": "xz", "bz2": "bz2", "lz4": "lz4"}


def format_of(name: str, given: str | None) -> tuple[str, str | None]:
    """The format (a key of FORMATS) and compression that a file name, or the caller, says."""
    parts = PurePosixPath(name.split("?")[0].split("#")[0]).name.lower().split(".")[1:]
    compression = COMPRESSIONS.get(parts[-1]) if parts else None
    if compression:
        parts = parts[:-1]
    chosen = (given or (parts[-1] if parts else "")).lower()
    chosen = SUFFIXES.get(chosen, chosen)
    if chosen not in FORMATS:
        raise IngestError(
            f"The format of {name!r} is not known{f': {chosen!r}' if chosen else ''}.",
            remedy=f"{nearest(chosen, FORMATS)} Pass format= to say which.",
        )
    return chosen, compression


class _Gzip:
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
    """Turns compressed pieces into plain ones of bounded size; a file may be several compressed ones in a row.

    Raises IngestError for a file that expands out of all proportion: a decompression bomb.
    """

    def __init__(self, compression: str | None) -> None:
        self._compression = compression
        self._inner = self._fresh()
        self._read = 0
        self._written = 0

    def _fresh(self) -> Any:
        makers: dict[str | None, Callable[[], Any]] = {
            None: lambda: None,
            "gzip": _Gzip,
            "bz2": bz2.BZ2Decompressor,
            "xz": lzma.LZMADecompressor,
        }
        maker = makers.get(self._compression)
        return maker() if maker is not None else _foreign(str(self._compression), "decompress")

    def __call__(self, piece: bytes) -> Iterator[bytes]:
        """The plain bytes of the next piece, at most PLAIN_BYTES at a time."""
        self._read += len(piece)
        if self._inner is None:
            yield piece
            return
        while piece or not (self._inner.eof or self._inner.needs_input):
            if self._inner.eof:
                self._inner = self._fresh()
            plain = self._decompress(piece)
            piece = (self._inner.unused_data or b"") if self._inner.eof else b""
            self._check(len(plain))
            if plain:
                yield plain

    def _decompress(self, piece: bytes) -> bytes:
        try:
            return self._inner.decompress(piece, PLAIN_BYTES)
        except Exception as error:  # noqa: BLE001  (each library has its own)
            raise IngestError(
                f"The data is not {self._compression}, or it is damaged: {error}.",
                remedy="Mend the file, or correct the end of its name.",
            ) from None

    def _check(self, size: int) -> None:
        self._written += size
        if self._written > UNSUSPECTED_BYTES and self._written > MOST_EXPANSION * self._read:
            raise IngestError(
                f"The {self._compression} data expands more than {MOST_EXPANSION}-fold, to over "
                f"{UNSUSPECTED_BYTES:,} bytes: reading stopped.",
                remedy="If that is expected, decompress the file before it is read.",
            )


def compressor(compression: str | None) -> tuple[Callable[[bytes], bytes], Callable[[], bytes]]:
    """Turns plain pieces into compressed ones, and gives what is left at the end."""
    if compression is None:
        return (lambda piece: piece), (lambda: b"")
    makers: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.compressobj(6, zlib.DEFLATED, 31),
        "bz2": bz2.BZ2Compressor,
        "xz": lzma.LZMACompressor,
    }
    made = makers[compression]() if compression in makers else _foreign(compression, "compress")
    return made.compress, made.flush


def _foreign(compression: str, direction: str) -> Any:
    """zstd and lz4 come with clickhouse-connect."""
    if compression == "lz4":
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor() if direction == "decompress" else _Lz4()
    try:
        from compression import zstd  # pyright: ignore[reportMissingImports]  (Python 3.14)
    except ImportError:
        from backports import zstd
    return zstd.ZstdDecompressor() if direction == "decompress" else zstd.ZstdCompressor()


class _Lz4:
    """lz4's compressor wants to write its header by itself."""

    def __init__(self) -> None:
        import lz4.frame

        self._made = lz4.frame.LZ4FrameCompressor()
        self._begun = False

    def compress(self, piece: bytes) -> bytes:
        head = b"" if self._begun else self._made.begin()
        self._begun = True
        return head + self._made.compress(piece)

    def flush(self) -> bytes:
        return self._made.flush()
