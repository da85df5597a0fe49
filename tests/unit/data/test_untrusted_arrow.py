"""Arrow streams of untrusted processes: what is refused, and what is read."""

import pyarrow as pa
import pytest

from aaiclick.data.errors import ConversionError
from aaiclick.data.io.untrusted_arrow import read_foreign_stream

ROWS = pa.table({"number": [1, 2, None], "text": ["a", None, "c"], "flags": [[True], [], None]})


def encode(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("table", [ROWS, ROWS.slice(0, 0), pa.table({"flag": [True, False] * 5_000})])
def test_a_plain_stream_is_read(table):
    assert read_foreign_stream(encode(table)).equals(table)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_stream_is_refused_before_it_is_expanded(compression):
    data = encode(pa.table({"text": ["x" * 1_000_000] * 100}), compression)
    before = pa.total_allocated_bytes()
    with pytest.raises(ConversionError, match="compressed"):
        read_foreign_stream(data)
    assert pa.total_allocated_bytes() - before < 1_000_000


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(10_000_000),
        pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), pa.array(["x"])),
        pa.array([[None]], pa.list_(pa.null())),
    ],
    ids=["nulls", "runs", "nested nulls"],
)
def test_types_of_values_without_bytes_are_refused(column):
    with pytest.raises(ConversionError, match="not supported"):
        read_foreign_stream(encode(pa.table({"column": column})))


def test_rows_without_bytes_are_refused():
    rows = pa.StructArray.from_buffers(pa.struct([]), 100_000_000, [None])
    with pytest.raises(ConversionError, match="100,000,000 rows"):
        read_foreign_stream(encode(pa.table({"nothing": rows})))


@pytest.mark.parametrize("size", range(0, 600, 37))
def test_a_truncated_stream_is_read_as_nothing_or_refused(size):
    data = encode(ROWS)[:size]
    try:
        assert read_foreign_stream(data).num_rows in (0, 3)
    except ConversionError as error:
        assert "cannot be read" in str(error)  # noqa: PT017  (both ends are allowed)


def test_every_changed_byte_is_refused_or_read():
    data = encode(ROWS)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0xFF
        try:
            read_foreign_stream(bytes(changed)).to_pylist()
        except (ConversionError, UnicodeDecodeError):
            continue
