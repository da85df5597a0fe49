"""Contexts, and the life and death of tables."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest

from aaiclick.data import (
    DataContext,
    LifecycleHandler,
    LocalLifecycleHandler,
    View,
    col,
    create_object_from_file,
    create_object_from_query,
    create_object_from_value,
    delete_object,
    get_data_context,
    open_object,
)
from aaiclick.data.client import Client, connect
from aaiclick.data.errors import DataError, LengthError, NoContextError, ObjectNotFoundError, StaleObjectError
from aaiclick.errors import SettingsError, UnauthorisedError, UnreachableError, UnsupportedServerError


class Counting(LifecycleHandler):
    """A shared handler that only writes down what it hears."""

    def __init__(self):
        self.events = []

    async def start(self):
        self.events.append("start")

    async def stop(self):
        self.events.append("stop")

    def incref(self, table_name):
        self.events.append(("+", table_name))

    def decref(self, table_name):
        self.events.append(("-", table_name))


def tables(admin, target):
    rows = admin.query(f"SELECT name FROM system.tables WHERE database = '{target.database}'").result_rows
    return sorted(name for (name,) in rows)


def running(admin, target, mark):
    query = (
        f"SELECT count() FROM system.processes WHERE current_database = '{target.database}' AND query LIKE '%{mark}%'"
    )
    return admin.query(query).result_rows[0][0]


async def test_exit_drops_every_table(admin, clickhouse_target):
    async with DataContext(clickhouse_target):
        kept = [await create_object_from_value([i]) for i in range(3)]
        assert tables(admin, clickhouse_target) == sorted(each.table_id for each in kept)
    assert tables(admin, clickhouse_target) == []


async def test_a_table_nobody_refers_to_is_dropped_at_once(admin, clickhouse_target):
    async with DataContext(clickhouse_target) as context:
        obj = await create_object_from_value([1])
        derived = obj + 1
        table = obj.table_id
        del obj
        gc.collect()
        assert await derived.data() == [2], "an expression keeps its table alive"
        del derived
        gc.collect()
        await context.lifecycle.stop()
        assert table not in tables(admin, clickhouse_target)


async def test_an_object_is_stale_after_its_context(clickhouse_target):
    async with DataContext(clickhouse_target, name="yesterday's context"):
        obj = await create_object_from_value([1])
    for use in (obj.data, obj.count, (obj + 1).data, obj.materialize):
        with pytest.raises(StaleObjectError, match="yesterday's context"):
            await use()
    async with DataContext(clickhouse_target):
        with pytest.raises(StaleObjectError, match="yesterday's context"):
            await (obj + 1).data()


async def test_contexts_nest(clickhouse_target):
    async with DataContext(clickhouse_target) as outer:
        a = await create_object_from_value([1, 2])
        async with DataContext(clickhouse_target) as inner:
            assert get_data_context() is inner
            b = await create_object_from_value([10, 20])
            assert await (a + b).data() == [11, 22]
        assert get_data_context() is outer
        assert await a.data() == [1, 2]
        with pytest.raises(StaleObjectError):
            await (a + b).data()


async def test_contexts_run_concurrently(clickhouse_target):
    async def work(number):
        async with DataContext(clickhouse_target) as context:
            obj = await create_object_from_value([number])
            await asyncio.sleep(0)
            assert get_data_context() is context
            return await (obj + 1).data()

    assert await asyncio.gather(*(work(i) for i in range(8))) == [[i + 1] for i in range(8)]


async def test_without_a_context_there_is_an_error():
    with pytest.raises(NoContextError, match="async with DataContext"):
        await create_object_from_value([1])


async def test_a_context_is_entered_once(clickhouse_target):
    context = DataContext(clickhouse_target)
    async with context:
        with pytest.raises(DataError, match="entered twice"):
            await context.__aenter__()


async def test_an_injected_handler_is_shared_and_never_stopped(admin, clickhouse_target):
    handler = Counting()
    async with DataContext(clickhouse_target, lifecycle=handler):
        obj = await create_object_from_value([1])
        table = obj.table_id
        assert handler.events == [("+", table)]
    assert handler.events == [("+", table), ("-", table)]
    del obj
    gc.collect()
    assert handler.events == [("+", table), ("-", table)], "a reference is given back once"
    assert tables(admin, clickhouse_target) == [table], "who counts does not drop"


async def test_the_first_reference_is_counted_before_the_table_is_made(clickhouse_target, monkeypatch):
    handler = Counting()
    seen = []
    run = Client.run

    async def spy(self, text, *args, **kwargs):
        seen.append((text.split(" (")[0], list(handler.events)))
        return await run(self, text, *args, **kwargs)

    monkeypatch.setattr(Client, "run", spy)
    async with DataContext(clickhouse_target, lifecycle=handler):
        obj = await create_object_from_value([1])
        statement, events = seen[0]
        assert statement.startswith("CREATE TABLE")
        assert events == [("+", obj.table_id)]


async def test_the_local_handler_drops_at_zero(admin, clickhouse_target):
    admin.command(f"CREATE TABLE {clickhouse_target.database}.t1 (x Int8) ENGINE = Memory")
    admin.command(f"CREATE TABLE {clickhouse_target.database}.t2 (x Int8) ENGINE = Memory")
    handler = LocalLifecycleHandler(clickhouse_target)
    await handler.start()
    for name in ("t1", "t1", "t2"):
        handler.incref(name)
    handler.decref("t1")
    handler.decref("t2")
    handler.incref("never_made")
    await handler.stop()
    assert tables(admin, clickhouse_target) == [], "what is left is dropped on stop"
    await handler.stop()


async def test_the_handler_survives_a_server_that_is_gone(clickhouse_target, caplog):
    handler = LocalLifecycleHandler(replace(clickhouse_target, port=1))
    await handler.start()
    handler.incref("t1")
    await handler.stop()
    assert "was not dropped" in caplog.text


async def test_leaving_a_stream_early_ends_its_query(admin, clickhouse_target):
    async with DataContext(clickhouse_target) as context:
        many = await create_object_from_query("SELECT number AS n FROM numbers(3000000)")
        stream = many.select(digest=col("n").cast("String").sha256()).iter_batches()
        first = await anext(stream)
        assert first.num_rows > 0
        await stream.aclose()
        assert running(admin, clickhouse_target, "SHA256") == 0
        assert await context.client.read_text("SELECT 1") is not None


async def test_a_failed_insert_leaves_no_table(admin, clickhouse_target):
    async with DataContext(clickhouse_target):
        with pytest.raises(DataError, match="refused"):
            await create_object_from_query("SELECT throwIf(number = 5) AS x FROM numbers(10)")
        assert tables(admin, clickhouse_target) == []


async def test_one_client_per_loop_and_server(clickhouse_target):
    async with DataContext(clickhouse_target) as one, DataContext(clickhouse_target) as two:
        assert one.client is two.client
    assert await connect(clickhouse_target) is await connect(clickhouse_target)


async def test_an_unreachable_server_is_named(clickhouse_target):
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 "):
        async with DataContext(replace(clickhouse_target, host="127.0.0.1", port=1)):
            pass


async def test_a_wrong_password_is_named(clickhouse_target):
    with pytest.raises(UnauthorisedError, match="refused the user or password") as caught:
        async with DataContext(replace(clickhouse_target, password="wr0ng")):
            pass
    assert "wr0ng" not in str(caught.value)


async def test_an_old_server_is_refused(clickhouse_target, monkeypatch):
    monkeypatch.setattr("aaiclick.data.client.OLDEST_MAJOR", 99)
    with pytest.raises(UnsupportedServerError, match="needs 99"):
        async with DataContext(
            replace(clickhouse_target, user=clickhouse_target.user, database=clickhouse_target.database)
        ):
            await connect(replace(clickhouse_target, database="default"))


async def test_a_table_dropped_behind_our_back_is_reported(admin, clickhouse_target):
    async with DataContext(clickhouse_target):
        obj = await create_object_from_value([1])
        admin.command(f"DROP TABLE {clickhouse_target.database}.{obj.table_id} SYNC")
        with pytest.raises(ObjectNotFoundError, match="gone"):
            await obj.data()


async def test_other_engines(clickhouse_target):
    async with DataContext(clickhouse_target, engine="Memory"):
        a = await create_object_from_value([3, 1, 2])
        assert await (a.sort("value") + a[0:3]).data() == [4, 3, 5]
    with pytest.raises(SettingsError, match="engine"):
        DataContext(clickhouse_target, engine="URL('http://evil')")


async def test_every_query_carries_the_prefix(clickhouse_target, monkeypatch, tmp_path):
    """By it all queries of one piece of work are found, and killed."""

    def without_prefix(prefix="aai"):
        raise AssertionError("a query without the prefix of its context")

    seen = []
    begun = Client._guarded

    async def spy(self, work, query_id):
        seen.append(query_id)
        return await begun(self, work, query_id)

    monkeypatch.setattr("aaiclick.data.client.new_query_id", without_prefix)
    monkeypatch.setattr(Client, "_guarded", spy)
    async with DataContext(clickhouse_target, query_prefix="attempt-7"):
        obj = await create_object_from_value({"n": [1, 2, 3]}, name="kept")
        other = await create_object_from_query("SELECT number AS n FROM numbers(2)")
        assert await (await obj.sort("n")).count() == 3
        with pytest.raises(LengthError):
            await (obj["n"] + other["n"]).data()
        await obj.insert(obj)
        path = await obj.export(tmp_path / "n.csv")
        await create_object_from_file(path, name="kept", replace=True)
        assert [batch.num_rows async for batch in obj.iter_batches()] == [6]
        await obj.describe()
        await obj.explain()
        assert await View(obj, 70_000, 1, "n > 0").count() == 0
        await open_object("kept")
        await delete_object("kept")
    assert len(seen) > 30
    assert all(each.startswith("attempt-7-") for each in seen)
