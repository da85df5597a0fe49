"""Concurrent appends to one Object: dense row numbers, atomic appends, dead writers."""

from __future__ import annotations

import asyncio
import json
import os
from subprocess import PIPE

import pytest

from aaiclick.data import DataContext, col, create_object_from_value, open_object, row_index
from aaiclick.data.errors import ConversionError, QueryError
from aaiclick.data.runtime import append
from tests.fork_server import FORK_SERVER

WRITER = """
import asyncio, json, sys
from aaiclick.data import DataContext, open_object
from aaiclick.data.runtime import append
from aaiclick.server_addresses import parse_clickhouse_url

async def main():
    order = json.loads(sys.stdin.readline())
    async with DataContext(parse_clickhouse_url(order["url"])):
        obj = await open_object("log")
        if order["stops"]:
            async def stop(*_):
                print("holds the lock", flush=True)
                await asyncio.Event().wait()
            append._publish = stop
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(order["times"]):
            rows = {"writer": [order["writer"]] * 3, "n": [n * 3, n * 3 + 1, n * 3 + 2]}
            await obj.insert(rows)

asyncio.run(main())
"""


async def writer(endpoint, number, *, times=10, stops=False):
    """Start a process that appends after a line on its standard input."""
    process = FORK_SERVER.start([WRITER], dict(os.environ), stdin=PIPE, stdout=PIPE, program="-c")
    order = {"url": endpoint.url, "writer": number, "times": times, "stops": stops}
    process.stdin.write(json.dumps(order) + "\n")
    assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
    return process


async def is_dense(obj):
    numbers = await obj.select(last=(row_index().max() + 1).fill_null(0), rows=row_index().count()).data()
    return numbers["last"] == numbers["rows"] == [await obj.count()]


async def test_four_processes_append_concurrently(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint):
        obj = await create_object_from_value(
            {"writer": [], "n": []}, schema={"writer": "Int64", "n": "Int64"}, name="log"
        )
        processes = await asyncio.gather(*(writer(clickhouse_endpoint, i) for i in range(4)))
        for process in processes:
            process.stdin.write("go\n")
        for process in processes:
            await asyncio.to_thread(process.communicate)
        assert [process.returncode for process in processes] == [0] * 4
        rows = await obj.data()
        assert len(rows["n"]) == 4 * 10 * 3
        rows_by_writer = [[n for w, n in zip(rows["writer"], rows["n"], strict=True) if w == i] for i in range(4)]
        assert rows_by_writer == [list(range(30))] * 4, "every row is there, in the order of its writer"
        assert all(rows["n"][i] % 3 == i % 3 for i in range(120)), "rows of one append stay together"
        assert await is_dense(obj)


async def test_lock_of_a_killed_writer_is_taken_over(clickhouse_endpoint, monkeypatch):
    monkeypatch.setattr(append, "IDLE_SECONDS", 1)
    async with DataContext(clickhouse_endpoint):
        obj = await create_object_from_value({"writer": [9], "n": [9]}, name="log")
        process = await writer(clickhouse_endpoint, 1, stops=True)
        process.stdin.write("go\n")
        assert await asyncio.to_thread(process.stdout.readline) == "holds the lock\n"
        process.kill()
        process.communicate()
        assert await obj.insert({"writer": [2], "n": [2]}) == 2
        assert await obj.data() == {"writer": [9, 2], "n": [9, 2]}
        assert await is_dense(obj)


async def test_a_slow_writer_that_lost_its_lock_retries(clickhouse_endpoint, monkeypatch):
    """Its rows are neither lost nor duplicated."""
    monkeypatch.setattr(append, "IDLE_SECONDS", 1)
    publish, holds, stolen = append._publish, asyncio.Event(), asyncio.Event()

    async def slow(context, table, staging):
        if not holds.is_set():
            holds.set()
            await stolen.wait()
        await publish(context, table, staging)

    monkeypatch.setattr(append, "_publish", slow)
    async with DataContext(clickhouse_endpoint):
        mine = await create_object_from_value([0], name="log")
        slow_one = asyncio.create_task(mine.insert([1]))
        await holds.wait()
        async with DataContext(clickhouse_endpoint):
            assert await (await open_object("log")).insert([2]) == 2
        stolen.set()
        assert await slow_one == 3
        assert await mine.data() == [0, 2, 1]
        assert await is_dense(mine)


async def test_a_failed_append_changes_nothing(data):
    obj = await create_object_from_value([1, 2])
    bad = (await create_object_from_value(["3", "x"])).cast("Int64")
    with pytest.raises(QueryError):
        await obj.insert(bad)
    with pytest.raises(ConversionError):
        await obj.insert(["text"])
    assert await obj.data() == [1, 2]
    assert await obj.insert([3]) == 3, "the lock was released"


async def test_a_cancelled_append_changes_nothing(data, admin, clickhouse_endpoint):
    obj = await create_object_from_value([1])
    many = await create_object_from_value(list(range(2_000_000)))
    endless = many.join(many.rename("other"), how="cross").select(value=col("value") * col("other"))
    work = asyncio.create_task(obj.insert(endless))
    here = f"current_database = '{clickhouse_endpoint.database}'"
    running = f"SELECT count() FROM system.processes WHERE {here} AND query LIKE 'INSERT%CROSS%'"
    while not admin.query(running).result_rows[0][0]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert admin.query(running).result_rows[0][0] == 0
    assert await obj.data() == [1]
    assert await obj.insert([2]) == 2


async def test_a_column_named_like_a_lock_is_ignored(data):
    evil = "x) CONSTRAINT aai_append_t1 ASSUME 1"
    obj = await create_object_from_value({evil: [1], "`" + evil: [2]})
    assert await append._find_holder(data, obj.table_id) is None
    async with append.append_lock(data, obj.table_id, "t5"):
        assert await append._find_holder(data, obj.table_id) == "t5"
    assert await obj.insert({evil: [3], "`" + evil: [4]}) == 2


async def test_replacing_a_named_object_waits_for_appends(data, clickhouse_endpoint):
    await create_object_from_value([1], name="log")
    async with append.append_lock(data, (await open_object("log")).table_id, "t7"):
        replaced = asyncio.create_task(create_object_from_value([5], name="log", replace=True))
        done, _ = await asyncio.wait([replaced], timeout=0.3)
        assert not done
    await replaced
    assert await (await open_object("log")).insert([6]) == 2


async def test_append_works_on_engines_without_locks(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint, engine="Memory"):
        obj = await create_object_from_value([1])
        assert await obj.insert([2, 3]) == 3
        assert await obj.data() == [1, 2, 3]
