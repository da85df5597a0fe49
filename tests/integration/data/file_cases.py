"""Columns of every type with NULL, and the table of formats and types in docs/files.md that is made from them."""

# ruff: noqa: DTZ001  (datetimes without a time zone are values here)

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pyarrow as pa

from aaiclick.data.io.file_writers import create_writer
from aaiclick.errors import AaiclickError

FORMATS = ["csv", "tsv", "json", "jsonl", "parquet", "arrow", "orc", "avro"]
EXTREME_DATES = [date(1900, 1, 1), None, date(2299, 12, 31)]
TIMES = [datetime(1925, 1, 1, 1, 2, 3, 4), None, datetime(2199, 12, 31, 23, 59, 59, 999999)]
INSTANTS = [time and time.replace(tzinfo=UTC) for time in TIMES]
TEXTS = ['a,"b";\t\'\n\r\x01\\', "", None]

CASES: dict[str, list[object] | pa.Array] = {
    "Bool": [True, None, False],
    **{
        f"{sign}Int{bits}": pa.array(
            [0 if sign else -(2 ** (bits - 1)), None, 2 ** (bits if sign else bits - 1) - 1],
            getattr(pa, f"{sign.lower()}int{bits}")(),
        )
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
    "Float32": pa.array([1.5, None, -0.1], pa.float32()),
    "Float64": [1.5, None, -1.7976931348623157e308],
    "Float64, NaN and infinity": [float("nan"), float("-inf"), None],
    "String": TEXTS,
    "String of digits": ["007", "1", None],
    "String as Unicode": ["ünï 🦆", "\u2028\ufeff", None],
    "bytes": [b"\xff\x00", b"", None],
    "Date32": EXTREME_DATES,
    "DateTime64(6)": TIMES,
    "DateTime64(6, 'UTC')": INSTANTS,
    "DateTime64(6, 'Europe/Berlin')": pa.array(INSTANTS, pa.timestamp("us", "Europe/Berlin")),
    "DateTime64(9)": pa.array([1, None, 2**60 + 1], pa.timestamp("ns")),
    "Decimal(18, 2)": [Decimal("1234567890123456.78"), None, Decimal("-0.10")],
    "Decimal(18, 2) of fewer than 16 digits": [Decimal("1.50"), None, Decimal("-0.25")],
    "Decimal(38, 10)": pa.array([Decimal("1" * 28 + ".0123456789"), None, Decimal(0)], pa.decimal128(38, 10)),
    "Decimal(76, 6)": pa.array([Decimal("9" * 70 + ".123456"), None, Decimal(-1)], pa.decimal256(76, 6)),
    "Duration": [timedelta(days=-1, microseconds=1), None, timedelta(0)],
    "UUID": [UUID(int=5), None, UUID(int=2**127)],
    "Array(Int64)": [[1, None], None, []],
    "Array(String)": [['"a', None], [""], None],
    "Array(Date32)": [EXTREME_DATES, None, []],
    "Array(Array(Int64))": [[[1], None, []], None, []],
    "Array(Tuple)": [[{"a": 1, "d": date(1950, 1, 1)}, None], [], None],
    "Tuple": [{"a": 1, "b": None}, None, {"a": None, "b": "x"}],
    "Tuple with an Array": [{"l": [1], "m": None}, None, {"l": None, "m": [2, None]}],
    "values of different structures": [{"a": 1}, {"b": [1.5]}, None],
    "Map(String, Int64)": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
}


def is_refused(format_name, name, dtype, column):
    """Whether the writer of a format refuses the column, with an error that names it."""
    batch = pa.record_batch([column.combine_chunks()], names=[name])
    try:
        writer = create_writer(format_name, ((name, dtype),))
        writer.write(batch)
        writer.close()
    except AaiclickError as error:
        return repr(name) in error.what
    return False


def describe(written, read):
    """Return the cell of the documentation for a column that was written and read."""
    return "yes" if written.as_nullable(False) == read.as_nullable(False) else f"as {shorten(read)}"


def shorten(dtype):
    return "JSON text" if dtype.logical == "json" else str(dtype.as_required()).replace("Nullable", "")


def as_markdown(cells):
    lines = [f"| type | {' | '.join(FORMATS)} |", f"|---|{'---|' * len(FORMATS)}"]
    lines += [f"| {name} | {' | '.join(cells[chosen, name] for chosen in FORMATS)} |" for name in CASES]
    return "\n".join(lines) + "\n"
