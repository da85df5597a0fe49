"""Documents of http_fetch are decoded within limits."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.execution import http_fetch_operator
from aaiclick.catalog.execution.http_fetch_operator import _parse_records
from aaiclick.catalog.operators.config import HttpFetchConfig

SETTINGS = HttpFetchConfig(url="https://example.com/x?secret=1", format="parquet")


def document(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def test_a_document_is_decoded_whole():
    table = pa.table({"n": list(range(5_000)), "words": ["a", None] * 2_500})
    assert _parse_records(document(table), SETTINGS).equals(table)
    assert _parse_records(document(table.slice(0, 0)), SETTINGS).num_rows == 0


def test_parquet_expansion_is_limited(monkeypatch):
    """A dictionary with one long value: 5,000 rows of 100 kB in a small file."""
    monkeypatch.setattr(http_fetch_operator, "DECODED_BYTES", 200 << 20)
    value = pa.array(["x" * 100_000])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), value)
    body = document(pa.table({"long": column.cast(pa.dictionary(pa.int32(), pa.string()))}))
    file = io.BytesIO(body)
    assert len(body) < 200_000
    assert pq.ParquetFile(file).metadata.row_group(0).total_byte_size < 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(OperatorError, match=r"https://example.com/x expands to more than 209,715,200 bytes"):
        _parse_records(strip_arrow_schema(body), SETTINGS)
    assert pa.total_allocated_bytes() - before < 10 << 20


def strip_arrow_schema(body: bytes) -> bytes:
    """A file of another writer, without the Arrow schema that marks the column as a dictionary."""
    table = pq.ParquetFile(io.BytesIO(body)).schema_arrow
    assert table is not None
    return body.replace(b"ARROW:schema", b"XRROW:schema")


def test_declared_parquet_size_over_limit_is_refused(monkeypatch):
    monkeypatch.setattr(http_fetch_operator, "DECODED_BYTES", 1_000)
    with pytest.raises(OperatorError, match="expands to more than"):
        _parse_records(document(pa.table({"n": list(range(5_000))})), SETTINGS)


@pytest.mark.parametrize(
    ("format_", "body"),
    [
        ("json", b"[" + b"{}," * 20_000 + b"{}]"),
        ("json", b"[" * 20_000),
        ("jsonl", b"{}\n" * 20_000),
        ("csv", b"\r\n\n" + b"," * 20_000),
        ("csv", b"a,b\n" + b",\n" * 20_000),
        ("csv", b"a\r" * 20_000),
    ],
)
def test_a_text_document_of_too_many_values_is_refused_before_parsing(monkeypatch, format_, body):
    for limit in ("JSON_VALUES", "CSV_VALUES", "CSV_COLUMNS"):
        monkeypatch.setattr(http_fetch_operator, limit, 10_000)
    settings = HttpFetchConfig(url="https://example.com/x?secret=1", format=format_)
    with pytest.raises(OperatorError, match=r"^https://example.com/x has more than 10,000 (values|columns)"):
        _parse_records(body, settings)


def test_a_text_document_within_the_limits_is_read():
    assert _parse_records(b'[{"a": 1}, {"a": 2}]', HttpFetchConfig(url="https://example.com/x")) == [{"a": 1}, {"a": 2}]
    csv = HttpFetchConfig(url="https://example.com/x", format="csv")
    assert _parse_records(b"a,b\n1,2\n", csv).to_pylist() == [{"a": 1, "b": 2}]
