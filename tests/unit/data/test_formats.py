"""Incremental decompression: single and concatenated streams, corrupt data and decompression bombs."""

import bz2
import gzip
import lzma
import tracemalloc

import pytest

from aaiclick.data.errors import IngestError
from aaiclick.data.io import formats
from aaiclick.data.io.formats import COMPRESSIONS, Decompressor, create_compressor

FORMATS = sorted(set(COMPRESSIONS.values()))


def compress(compression: str, data: bytes) -> bytes:
    feed, finish = create_compressor(compression)
    return feed(data) + finish()


def decompress_in_steps(compression: str | None, data: bytes, step: int) -> bytes:
    decompress = Decompressor(compression)
    return b"".join(part for at in range(0, len(data), step) for part in decompress(data[at : at + step]))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("compression", [None, *FORMATS])
def test_decompression_of_pieces_of_any_size(compression, step):
    data = b"".join(b"%d," % n for n in range(3_000))
    assert decompress_in_steps(compression, data if compression is None else compress(compression, data), step) == data


@pytest.mark.parametrize("step", [5, 1 << 20])
@pytest.mark.parametrize("compression", FORMATS)
def test_concatenated_streams_are_one_file(compression, step):
    assert (
        decompress_in_steps(compression, compress(compression, b"one,") + compress(compression, b"two"), step)
        == b"one,two"
    )


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 17])
@pytest.mark.parametrize("compression", FORMATS)
def test_no_bytes_are_lost_at_the_step_limit(compression, size):
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert decompress_in_steps(compression, compress(compression, data), 1 << 20) == data


@pytest.mark.parametrize("compression", FORMATS)
def test_corrupt_data_raises_ingest_error(compression):
    with pytest.raises(IngestError, match=f"The data is not {compression}, or it is damaged"):
        decompress_in_steps(compression, b"not compressed at all, by anything", 1 << 20)


@pytest.mark.parametrize("compression", FORMATS)
def test_decompression_output_is_bounded(compression):
    bomb = compress(compression, bytes(64 << 20))
    decompress = Decompressor(compression)
    tracemalloc.start()
    sizes = [len(part) for at in range(0, len(bomb), 1 << 20) for part in decompress(bomb[at : at + (1 << 20)])]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= formats.MAX_STEP_BYTES
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("compression", "pack"), [("gzip", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]
)
def test_decompression_bomb_is_rejected(compression, pack, monkeypatch):
    monkeypatch.setattr(formats, "EXPANSION_FREE_BYTES", 8 << 20)
    with pytest.raises(IngestError, match="expands more than 250-fold") as caught:
        decompress_in_steps(compression, pack(bytes(32 << 20)), 1 << 20)
    assert "decompress the file" in caught.value.remedy
