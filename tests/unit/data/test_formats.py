"""Decompression piece by piece: whole, in several streams, and with hostile data."""

import bz2
import gzip
import lzma
import tracemalloc

import pytest

from aaiclick.data import formats
from aaiclick.data.errors import IngestError
from aaiclick.data.formats import COMPRESSIONS, Decompressor, compressor

KINDS = sorted(set(COMPRESSIONS.values()))


def packed(kind: str, data: bytes) -> bytes:
    feed, finish = compressor(kind)
    return feed(data) + finish()


def plain(kind: str | None, data: bytes, step: int) -> bytes:
    decompress = Decompressor(kind)
    return b"".join(part for at in range(0, len(data), step) for part in decompress(data[at : at + step]))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("kind", [None, *KINDS])
def test_pieces_of_any_size_make_the_whole(kind, step):
    data = b"".join(b"%d," % n for n in range(3_000))
    assert plain(kind, data if kind is None else packed(kind, data), step) == data


@pytest.mark.parametrize("step", [5, 1 << 20])
@pytest.mark.parametrize("kind", KINDS)
def test_several_streams_in_a_row_are_one_file(kind, step):
    assert plain(kind, packed(kind, b"one,") + packed(kind, b"two"), step) == b"one,two"


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 17])
@pytest.mark.parametrize("kind", KINDS)
def test_no_byte_is_lost_at_the_limit_of_a_step(kind, size):
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert plain(kind, packed(kind, data), 1 << 20) == data


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_data_is_explained(kind):
    with pytest.raises(IngestError, match=f"The data is not {kind}, or it is damaged"):
        plain(kind, b"not compressed at all, by anything", 1 << 20)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_piece_is_never_a_large_one_at_once(kind):
    bomb = packed(kind, bytes(64 << 20))
    decompress = Decompressor(kind)
    tracemalloc.start()
    sizes = [len(part) for at in range(0, len(bomb), 1 << 20) for part in decompress(bomb[at : at + (1 << 20)])]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= formats.PLAIN_BYTES
    assert peak < 16 << 20


@pytest.mark.parametrize(("kind", "pack"), [("gzip", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_bomb_is_refused(kind, pack, monkeypatch):
    monkeypatch.setattr(formats, "UNSUSPECTED_BYTES", 8 << 20)
    with pytest.raises(IngestError, match="expands more than 250-fold") as caught:
        plain(kind, pack(bytes(32 << 20)), 1 << 20)
    assert "decompress the file" in caught.value.remedy
