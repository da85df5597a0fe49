"""Every file format with every type and NULL: the same values come back, or the column is refused by name."""

# ruff: noqa: DTZ001  (datetimes without a time zone are values here)

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from aaiclick.data import CsvOptions, col, create_object_from_file, create_object_from_value, preview_file
from aaiclick.data.errors import ConversionError, DataError, IngestError
from tests.integration.data.file_cases import CASES, FORMATS, as_markdown, describe, is_refused

pytestmark = pytest.mark.usefixtures("data")

DOCUMENT = Path(__file__).parents[3] / "docs" / "files.md"
START, END = "<!-- formats: begin -->\n", "<!-- formats: end -->"


async def test_every_type_is_kept_or_refused_as_documented(tmp_path):
    obj = await create_object_from_value(dict(CASES))
    table, values = await obj.to_arrow(), await obj.data()
    cells = {}
    for chosen in FORMATS:
        writable = [n for n in CASES if not is_refused(chosen, "x", obj.schema[n], table.column(n))]
        names = {name: f"c{i}" for i, name in enumerate(writable)}  # Avro has rules for names
        path = await obj.select(**{names[n]: col(n) for n in writable}).export(tmp_path / f"all.{chosen}")
        read = await create_object_from_file(path)
        read_values = await read.data()
        for name in CASES:
            if name not in names:
                cells[chosen, name] = "refused"
                continue
            assert repr(read_values[names[name]]) == repr(values[name]) or read_values[names[name]] == values[name]
            cells[chosen, name] = describe(obj.schema[name], read.schema[names[name]])
    assert DOCUMENT.read_text().split(START)[1].split(END)[0] == as_markdown(cells)


@pytest.mark.parametrize("suffix", ["gz", "zst", "xz", "bz2", "lz4"])
async def test_every_format_is_read_with_every_compression(tmp_path, suffix):
    obj = await create_object_from_value({"a": [1, None], "l": [["x"], None]})
    for chosen in FORMATS:
        path = await obj.export(tmp_path / f"rows.{chosen}.{suffix}")
        assert await (await create_object_from_file(path)).data() == {"a": [1, None], "l": [["x"], None]}, chosen


async def test_refused_columns_are_named(tmp_path):
    obj = await create_object_from_value({"id": [1], "raw": [b"\xff"], "big": pa.array([2**64 - 1], pa.uint64())})
    for chosen, name in {"csv": "raw", "json": "raw", "avro": "big", "orc": "big"}.items():
        with pytest.raises(DataError, match=f"Column '{name}'"):
            await obj.export(tmp_path / f"x.{chosen}")
    assert list(tmp_path.iterdir()) == []


async def test_bytes_that_are_read_as_text_are_refused_by_name(data):
    from aaiclick.data import create_object_from_query

    obj = await create_object_from_query("SELECT unhex('ff') AS raw, ['a', unhex('fe')] AS l")
    for name in ("raw", "l"):
        for read in (obj.select(name).data, obj.select(name).to_polars, obj.select(name).to_pandas):
            with pytest.raises(ConversionError, match=f"Column '{name}' holds bytes"):
                await read()
    assert await obj.select(raw=col("raw").cast("bytes")).data() == {"raw": [b"\xff"]}


async def test_null_lists_structs_and_maps_in_expressions():
    obj = await create_object_from_value({"l": [[1, None], None, []], "s": [{"a": 1}, None, {"a": 2}], "i": [1, 2, 3]})
    assert str(obj.schema["l"]) == "Nullable(Array(Nullable(Int64)))"
    values = await obj.select(
        n=col("l").list.len(), null=col("l").is_null(), a=col("s").struct.field("a"), full=col("l").fill_null([9])
    ).data()
    assert values == {
        "n": [2, None, 0], "null": [False, True, False], "a": [1, None, 2], "full": [[1, None], [9], []],
    }  # fmt: skip
    assert (await obj.sort("l").data())["i"] == [3, 1, 2]
    assert (await obj.sort("l", descending=True, nulls_first=True).data())["i"] == [2, 1, 3]
    assert (await obj.distinct("s").data())["l"] == [[1, None], None, []]
    assert await obj.explode("l").select("i").data() == {"i": [1, 1]}
    assert (await (await obj.filter(col("s").is_not_null())).data())["i"] == [1, 3]
    assert await obj.select(n=col("l").count(), u=col("l").nunique()).data() == {"n": [2], "u": [2]}
    with pytest.raises(DataError, match="column 'l' is Nullable"):
        obj.select(n=col("l").least(col("l")))
    await obj.insert({"l": [None], "s": [None], "i": [4]})
    assert (await obj.to_polars())["s"].to_list()[-1] is None


async def test_files_of_pandas_and_polars(tmp_path):
    frame = pd.DataFrame({
        "i": pd.array([1, None, 3], "Int64"), "s": ["a", None, ""], "c": pd.Categorical(["x", "y", "x"]),
        "t": pd.to_datetime(["2024-01-01", None, "1965-01-01"]), "l": [[1], None, []],
    })  # fmt: skip
    frame.to_parquet(tmp_path / "pandas.parquet")
    want = {
        "i": [1, None, 3], "s": ["a", None, ""], "c": ["x", "y", "x"],
        "t": [datetime(2024, 1, 1), None, datetime(1965, 1, 1)], "l": [[1], None, []],
    }  # fmt: skip
    assert await (await create_object_from_file(tmp_path / "pandas.parquet")).data() == want
    polars = pl.from_pandas(frame.drop(columns="l")).with_columns(l=pl.Series([[1], None, []]))
    polars.write_parquet(tmp_path / "polars.parquet")
    polars.write_ipc(tmp_path / "polars.arrow", compression="lz4")
    polars.write_ndjson(tmp_path / "polars.jsonl")
    polars.drop("l").write_csv(tmp_path / "polars.csv")
    for name in ("polars.parquet", "polars.arrow", "polars.jsonl"):
        assert await (await create_object_from_file(tmp_path / name)).data() == want, name
    assert (await (await create_object_from_file(tmp_path / "polars.csv")).data())["t"] == want["t"]
    frame.to_csv(tmp_path / "pandas.csv", sep=";", decimal=",", encoding="utf-16")
    read = await create_object_from_file(tmp_path / "pandas.csv")
    assert (await read.data())["column_1"] == [0, 1, 2]
    assert (await read.data())["i"] == [1, None, 3]


async def test_files_of_duckdb():
    for name in ("duckdb.parquet", "duckdb.csv"):
        obj = await create_object_from_file(Path(__file__).parent / "files" / name)
        values = await obj.select("i", "s", "d", "t").data()
        assert values == {
            "i": [1, None, -5], "s": ["a,b", "", None], "d": [date(1960, 2, 29), None, None],
            "t": [datetime(2024, 1, 1, 12, tzinfo=UTC), None, datetime(1950, 6, 1, tzinfo=UTC)],
        }  # fmt: skip
    obj = await create_object_from_file(Path(__file__).parent / "files" / "duckdb.parquet")
    assert await obj.select("l", "st", "u").data() == {
        "l": [[1, None], None, []], "st": [{"a": 1}, None, {"a": None}], "u": [2**64 - 1, None, 0],
    }  # fmt: skip


async def test_partitioned_directory_as_spark_writes_it(tmp_path):
    rows = pa.table({"n": [1, 2, 3, 4], "day": pa.array([19000, 19000, 19001, None], pa.date32()), "k": list("abab")})
    spark = ds.partitioning(pa.schema([("day", pa.date32()), ("k", pa.string())]), flavor="hive")
    ds.write_dataset(rows, tmp_path, format="parquet", partitioning=spark, basename_template="part-{i}.snappy.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.snappy.parquet.crc").write_bytes(b"crc")
    obj = await create_object_from_file(tmp_path)
    assert {name: str(dtype) for name, dtype in obj.schema.items()} == {
        "n": "Int64", "day": "Nullable(Date32)", "k": "String",
    }  # fmt: skip
    assert sorted(map(tuple, (row.values() for row in await obj.rows())), key=str) == sorted(
        ((row["n"], row["day"], row["k"]) for row in rows.to_pylist()), key=str
    )
    one = await create_object_from_file(f"{tmp_path}/day=*/k=b/*.parquet")
    assert sorted((await one.data())["n"]) == [2, 4]


async def test_files_with_other_columns_and_types_are_united(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([2**40]), "c": [1.5]}), tmp_path / "2.parquet")
    obj = await create_object_from_file(tmp_path)
    assert await obj.data() == {"a": [1, 2**40], "b": ["x", None], "c": [None, 1.5]}
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "3.parquet")
    with pytest.raises(IngestError, match="Column 'a' is Int64 in one file and String in another"):
        await create_object_from_file([tmp_path / "2.parquet", tmp_path / "3.parquet"])
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "t" / "2.csv").write_text("b,a\nx,3\n")
    assert await (await create_object_from_file(tmp_path / "t")).data() == {"a": [1, 3], "b": ["2", "x"]}


async def test_required_parquet_columns_and_those_without_nulls_are_not_nullable(tmp_path):
    schema = pa.schema([
        pa.field("r", pa.int64(), nullable=False), pa.field("o", pa.int64()), pa.field("n", pa.int64()),
        pa.field("l", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ])  # fmt: skip
    pq.write_table(pa.table([[1, 2], [1, 2], [1, None], [[1], []]], schema=schema), tmp_path / "x.parquet")
    obj = await create_object_from_file(tmp_path / "x.parquet")
    assert {name: str(dtype) for name, dtype in obj.schema.items()} == {
        "r": "Int64", "o": "Int64", "n": "Nullable(Int64)", "l": "Array(Int64)",
    }  # fmt: skip
    path = await obj.export(tmp_path / "y.parquet")
    assert not pq.read_schema(path).field("r").nullable


async def test_a_null_list_after_the_first_batch_is_kept(tmp_path):
    lists = [[1]] * 70_000 + [None]
    pq.write_table(pa.table({"l": lists}), tmp_path / "x.parquet")
    obj = await create_object_from_file(tmp_path / "x.parquet")
    assert await obj.count() == 70_001
    assert (await obj[70_000:].data())["l"] == [None]


CSV_CASES = {
    "comma": ("a,b\n1,x\n", None, {"a": [1], "b": ["x"]}),
    "semicolon and decimal comma": ("a;b\n1,5;x\n", CsvOptions(decimal=","), {"a": [1.5], "b": ["x"]}),
    "tab": ("a\tb\n1\tx,y\n", None, {"a": [1], "b": ["x,y"]}),
    "bar": ("a|b\n1|x\n", None, {"a": [1], "b": ["x"]}),
    "header only": ("a,b\n", None, {"a": [], "b": []}),
    "no header": ("1,x,2.5\n2,y,3.5\n", None, {"column_1": [1, 2], "column_2": ["x", "y"], "column_3": [2.5, 3.5]}),
    "years as header": ("country,2019\nfr,1\n", None, {"country": ["fr"], "2019": [1]}),
    "column without a name": ("a,,c\n1,2,3\n", None, {"a": [1], "column_2": [2], "c": [3]}),
    "quoted digits": ('a,b\n"007",1\n', None, {"a": ["007"], "b": [1]}),
    "empty text and NULL": ('a,b\n"",1\n,2\n\\N,3\n', None, {"a": ["", None, None], "b": [1, 2, 3]}),
    "quoted empty numbers": ('a,b\n"",1\n"",""\n', None, {"a": ["", ""], "b": [1, None]}),
    "pandas' one column": ('a\n1.0\n""\n2.5\n', None, {"a": [1.0, None, 2.5]}),
    "null text": ("a,b\nNA,1\n2,NA\n", CsvOptions(null=["NA"]), {"a": [None, 2], "b": [1, None]}),
    "skipped rows": ("# made by\n# hand\na\n1\n", CsvOptions(skip_rows=2), {"a": [1]}),
    "names": ("1,2\n", CsvOptions(columns=["x", "y"]), {"x": [1], "y": [2]}),
    "dates": ("d\n31.12.1965\n", CsvOptions(date_format="%d.%m.%Y"), {"d": [date(1965, 12, 31)]}),
    "times": ("t\n31/12/65 10:30\n", CsvOptions(datetime_format="%d/%m/%y %H:%M"), {
        "t": [datetime(2065, 12, 31, 10, 30)]}),
    "invalid date": ("d\n2024-02-30\n", None, {"d": ["2024-02-30"]}),
    "date out of range": ("d\n1800-01-01\n", None, {"d": ["1800-01-01"]}),
    "carriage returns": ("a,b\r\n1,x\r\n", None, {"a": [1], "b": ["x"]}),
    "byte order mark": ("\ufeffa\n1\n", None, {"a": [1]}),
    "single quotes": ("a,b\n'x,y',1\n", CsvOptions(quote="'"), {"a": ["x,y"], "b": [1]}),
    "NaN": ("x\nnan\n1\n-inf\n", None, {"x": [float("nan"), 1.0, float("-inf")]}),
}  # fmt: skip


async def test_csv_options_and_sniffing(tmp_path):
    for label, (text, options, want) in CSV_CASES.items():
        path = tmp_path / "x.csv"
        path.write_bytes(text.encode())
        values = await (await create_object_from_file(path, csv=options)).data()
        assert repr(values) == repr(want), label


async def test_csv_numbers_keep_their_digits(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        "i,u,w,f,d\n9223372036854775807,18446744073709551615,18446744073709551616,0.1,12345678901234567.89\n"
    )
    obj = await create_object_from_file(path)
    assert [str(dtype.as_required()) for dtype in obj.schema.values()] == [
        "Int64", "UInt64", "Decimal(38, 0)", "Float64", "Decimal(38, 2)",
    ]  # fmt: skip
    assert [str(values[0]) for values in (await obj.data()).values()] == path.read_text().splitlines()[1].split(",")
    decimals = await create_object_from_file(path, csv=CsvOptions(fractions="decimal"))
    assert str(decimals.schema["f"]) == "Nullable(Decimal(18, 1))"


async def test_ragged_and_badly_encoded_csv_files_are_errors(tmp_path):
    path = tmp_path / "x.csv"
    for content, message in {
        b"a,b\n1,2,3\n": "row 2 has 3 values, but the header has 2 names",
        b"a,b\n1,2\n3\n": "Expected 2 columns, got 1",
        "a,é\n1,é\n".encode("latin-1"): "encoding",
        b"a,a\n1,2\n": "Two columns are named 'a'",
    }.items():
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            await create_object_from_file(path)
    path.write_bytes("a\né\n".encode("latin-1"))
    assert await (await create_object_from_file(path, csv=CsvOptions(encoding="latin-1"))).data() == {"a": ["é"]}
    with pytest.raises(IngestError, match="separator"):
        CsvOptions(separator=",,")


async def test_preview_says_what_was_chosen(tmp_path):
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1" / "x.csv.gz").write_bytes(gzip.compress(b"a;b\n1;x\n"))
    preview = await preview_file(tmp_path)
    assert (preview.format, preview.compression, preview.rows) == ("csv", "gzip", [{"a": 1, "b": "x", "k": 1}])
    assert "separator ';', header" in str(preview)
    assert "a: Nullable(Int64)" in str(preview)


JSON_CASES = {
    "null list": ('{"a": [1]}\n{"a": null}\n', {"a": [[1], None]}),
    "missing field": ('{"a": 1}\n{"b": 2}\n', {"a": [1, None], "b": [None, 2]}),
    "array of rows": ('[{"a": 1},\n {"a": 2}]', {"a": [1, 2]}),
    "other keys": ('{"a": {"x": 1}}\n{"a": {"y": 2}}\n', {"a": [{"x": 1}, {"y": 2}]}),
    "mixed types": ('{"a": 1}\n{"a": "x"}\n', {"a": [1, "x"]}),
    "text of digits": ('{"a": "007"}\n', {"a": ["007"]}),
    "large integer": ('{"a": 18446744073709551615}\n', {"a": [2**64 - 1]}),
    "only NULL": ('{"a": null}\n', {"a": [None]}),
    "date": ('{"a": "1960-01-01", "b": "2024-01-01T00:00:00+01:00"}\n', {
        "a": [date(1960, 1, 1)], "b": [datetime(2023, 12, 31, 23, tzinfo=UTC)]}),
}  # fmt: skip


async def test_json_rows(tmp_path):
    for label, (text, want) in JSON_CASES.items():
        path = tmp_path / "x.jsonl"
        path.write_text(text)
        assert await (await create_object_from_file(path)).data() == want, label
    path.write_text('{"a": 12345678901234567890.123}\n')
    assert str((await (await create_object_from_file(path)).data())["a"][0]) == "12345678901234567890.123"


async def test_json_rows_after_the_sample_are_checked(tmp_path):
    path = tmp_path / "x.jsonl"
    head = '{"a": 1, "s": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}\n' * 20_000
    for line, message in {
        '{"a": 1, "b": 2}': "row 20001: 'b' is not among the columns",
        '{"a": "x"}': "row 20001: Cannot parse input 'x' of column 'a' as Nullable",
        '{"a": 1.5}': "row 20001: Cannot parse input 1.5 of column 'a'",
        "[1]": "row 20001: '1' is not an object",
        '{"a": 1, "a": 2}': "two values with one name",
    }.items():
        path.write_text(head + line + "\n")
        with pytest.raises(IngestError, match=message.replace("[", r"\[")):
            await create_object_from_file(path)
    path.write_text(head + '{"a": null}\n')
    assert await (await create_object_from_file(path)).count() == 20_001
