"""Readable streams over files: decompression with protection against bombs, and transcoding to UTF-8."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aaiclick.data.errors import IngestError
from aaiclick.data.io.formats import Decompressor

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIECE_BYTES = 1 << 20
UTF8 = "utf-8"
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class PieceStream(io.RawIOBase):
    """A readable stream over an iterator of pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        target = memoryview(buffer)
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


class OpenFile(AbstractContextManager["OpenFile"]):
    """The decompressed bytes of a local file, as UTF-8 if `encoding` is given."""

    def __init__(self, path: Path, compression: str | None, encoding: str = "") -> None:
        try:
            self._file = path.open("rb")
        except (OSError, ValueError) as error:  # ValueError: invalid file name
            reason = getattr(error, "strerror", None) or error
            raise IngestError(f"The file {str(path)!r} cannot be read: {reason}.", remedy="Check the path.") from None
        pieces = _decompress(self._file, compression)
        self.stream = PieceStream(_transcode(pieces, encoding) if encoding not in ("", UTF8) else pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read_sample(self, size: int) -> bytes:
        """Read up to `size` bytes from the current position."""
        sample = bytearray()
        while len(sample) < size and (piece := self.stream.read(size - len(sample))):
            sample += piece
        return bytes(sample)


def detect_encoding(sample: bytes) -> str:
    """Return the encoding that a byte order mark names; UTF-8 without one."""
    return next((name for mark, name in BYTE_ORDER_MARKS.items() if sample.startswith(mark)), UTF8)


def _decompress(file: io.BufferedReader, compression: str | None) -> Iterator[bytes]:
    decompress = Decompressor(compression)
    while piece := file.read(PIECE_BYTES):
        yield from decompress(piece)


def _transcode(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for piece in pieces:
            if text := decoder.decode(piece):
                yield text.encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeDecodeError as error:
        raise IngestError(f"The file is not {encoding}: {error.reason}.", remedy="Pass another encoding.") from None
