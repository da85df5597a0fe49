"""Invalid and extreme input: refused with an aaiclick error or stored exactly; never a library's error."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import aaiclick.data
from aaiclick.data import (
    DataContext,
    array,
    case,
    coalesce,
    col,
    create_object_from_file,
    create_object_from_value,
    if_else,
    open_object,
)
from aaiclick.data.errors import ConversionError, DataError, IngestError
from aaiclick.data.runtime import lifecycle
from aaiclick.errors import AaiclickError
from tests.unit.data.test_argument_errors import WRONG, vary_arguments

pytestmark = pytest.mark.usefixtures("data")


def endless():
    value = []
    value.append(value)
    return value


def deep():
    value = 1
    for _ in range(3000):
        value = [value]
    return [value]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [2**64],
        lambda: [-(2**127)],
        lambda: [[2**70]],
        lambda: ["\ud800"],
        lambda: {"\ud800": [1]},
        lambda: [{"a": "\ud800"}, [1]],
        lambda: [["\ud800"]],
        endless,
        deep,
        lambda: pa.table({}),
        lambda: pa.table([[1], [2]], names=["a", "a"]),
        lambda: {"aai_id": [1]},
        lambda: [1j],
        lambda: [Decimal("NaN")],
    ],
)
async def test_unsupported_values_are_refused(make, data):
    with pytest.raises(DataError):
        await create_object_from_value(make())
    tables = await data.client.read_text("SELECT name FROM system.tables WHERE database = currentDatabase()")
    assert tables.num_rows == 0


async def test_error_message_for_too_large_integers():
    with pytest.raises(ConversionError, match="beyond 64 bits"):
        await create_object_from_value([1, 2**64])


async def test_unknown_time_zone_is_refused():
    with pytest.raises(DataError):
        await create_object_from_value([datetime(2020, 1, 1)], schema={"value": "DateTime64(6, 'No/Zone')"})  # noqa: DTZ001


async def test_a_name_that_is_not_unicode():
    with pytest.raises(DataError):
        await create_object_from_value([1], name="\ud800")


@pytest.mark.parametrize(
    "use",
    [
        lambda o: o.select(),
        lambda o: o.select(x=col("a").quantile("x")),
        lambda o: o.select(x=col("a").round("x")),
        lambda o: o.select(x=col("a").shift("x")),
        lambda o: o.sample(-1),
        lambda o: o.sample("1"),
        lambda o: o.filter(col("s") == "\ud800"),
        lambda o: o.filter("s = '\ud800'"),
        lambda o: o.select(col("a").alias("\ud800")),
        lambda o: o.group_by("s").agg(**{"\ud800": col("a").sum()}),
    ],
)
async def test_invalid_parameters_are_refused(use):
    obj = await create_object_from_value({"a": [1, 2], "s": ["x", "y"]})
    with pytest.raises(DataError):
        await use(obj).data()


@pytest.mark.parametrize("name", ["nul\x00.csv", "sur\ud800.csv", "directory.csv"])
async def test_invalid_file_names_are_refused(tmp_path, name):
    (tmp_path / "directory.csv").mkdir()
    obj = await create_object_from_value([1])
    with pytest.raises(DataError):
        await obj.export(tmp_path / name)
    with pytest.raises(IngestError):
        await create_object_from_file(tmp_path / name)


async def test_unreadable_file_is_reported():
    with pytest.raises(IngestError):
        await create_object_from_file("/proc/self/mem", format="csv")


async def test_very_many_columns_and_very_long_names():
    wide = {f"column {i}": [i] for i in range(10_000)}
    obj = await create_object_from_value(wide)
    assert await obj.data() == wide
    long = {"x" * 70_000: [1], "y" * 70_000: [2]}
    assert await (await create_object_from_value(long)).data() == long


async def test_very_long_strings():
    values = ["x" * 1_000_000, "", "ü" * 1_000_000]
    obj = await create_object_from_value(values)
    assert await obj.data() == values
    assert await (obj == values[2]).data() == [False, False, True]


async def test_a_hundred_concurrent_queries():
    obj = await create_object_from_value(list(range(1000)))
    sums = await asyncio.gather(*((obj * i).sum().data() for i in range(100)))
    assert sums == [499_500 * i for i in range(100)]


async def test_two_contexts_on_one_named_object(clickhouse_endpoint):
    await create_object_from_value([1, 2], name="shared")
    async with DataContext(clickhouse_endpoint):
        other = await open_object("shared")
        async with DataContext(clickhouse_endpoint):
            mine = await open_object("shared")
            await mine.insert([3])
        assert await other.data() == [1, 2, 3]
        await create_object_from_value([9], name="shared", replace=True)
        assert await other.data() == [9]


async def test_error_names_a_dropped_table(data):
    obj = await create_object_from_value([1])
    await data.client.run(f"DROP TABLE {obj.table_id} SYNC")
    with pytest.raises(DataError, match="The table does not exist"):
        await obj.data()
    with pytest.raises(DataError, match="The table does not exist"):
        async for _ in obj.iter_batches():
            pass
    with pytest.raises(DataError, match="The table does not exist"):
        await obj.insert([2])


async def test_failed_drop_is_retried(clickhouse_endpoint, monkeypatch, admin):
    """After a restart of the server the connection is broken, and the table is dropped nevertheless."""
    whole, failing, failed = lifecycle._HttpConnection.run, [True], threading.Event()

    def run(self, statement):
        if failing[0]:
            failed.set()
            raise BrokenPipeError
        whole(self, statement)

    monkeypatch.setattr(lifecycle._HttpConnection, "run", run)
    handler = lifecycle.LocalLifecycleHandler(clickhouse_endpoint)
    await handler.start()
    async with DataContext(clickhouse_endpoint, lifecycle=handler):
        obj = await create_object_from_value([1])
        name = obj.table_id
        del obj
        await asyncio.to_thread(failed.wait)
    failing[0] = False
    await handler.stop()
    assert admin.query(f"EXISTS TABLE {clickhouse_endpoint.database}.{name}").result_rows == [(0,)]


@pytest.mark.parametrize(
    "build",
    [
        lambda _: if_else(1, 2, 3),
        lambda _: case(1),
        lambda _: case((col("x"), 1, 2)),
        lambda _: coalesce(None, 1),
        lambda _: array(),
        lambda obj: obj.with_row_index(5),
        lambda _: col("s").str.slice("x"),
        lambda _: col("s").str.slice(1.7),
        lambda _: col("s").str.slice(0, -1),
        lambda _: col("s").str.pad_start("x"),
        lambda _: col("l").list.slice(None),
    ],
)
async def test_invalid_arguments_raise_sentences(build):
    obj = await create_object_from_value({"x": [1]})
    with pytest.raises(DataError):
        build(obj)


ASYNC_CALLS = (
    'obj.pivot("k", index="s", values="i", aggregate="sum", columns=["a", "b"])', 'obj.explain("PLAN")',
    "obj.chunks(5)", "obj.html(1)", 'obj.export("/nowhere/x.csv", format="csv")', 'obj.insert({"k": ["a"]})',
    'create_object_from_value({"a": [1]}, name="x", schema={"a": int}, replace=True)',
    'create_object_from_query("SELECT 1", {"x": 1}, name="x", replace=True)',
    'create_object_from_file("/nowhere/x.csv", format="csv", schema={"a": int}, name="x", replace=True, retries=1)',
    'preview_file("/nowhere/x.csv", format="csv", schema={"a": int}, csv=None, rows=1)', 'open_object("x")',
    'delete_object("x")', "insert(obj, [1])",
)  # fmt: skip


async def test_arguments_of_coroutines(monkeypatch, tmp_path):
    """Every argument × values of wrong types: accepted, or an error of aaiclick."""
    monkeypatch.chdir(tmp_path)
    names = {name: getattr(aaiclick.data, name) for name in aaiclick.data.__all__}
    names["obj"] = await (await create_object_from_value({"k": ["a"], "s": ["x"], "i": [1]}))
    problems = []
    for call in ASYNC_CALLS:
        for source in vary_arguments(call):
            for label, wrong in WRONG.items():
                try:
                    await eval(source, {**names, "wrong": wrong})
                except AaiclickError:
                    pass
                except Exception as error:  # noqa: BLE001
                    problems.append(f"{source} of {label}: {type(error).__name__}: {error}")
    assert not problems, "\n".join(problems)
