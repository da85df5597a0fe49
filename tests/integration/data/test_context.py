"""DataContext and the lifecycle of tables."""

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
from aaiclick.data.errors import DataError, LengthError, NoContextError, ObjectNotFoundError, StaleObjectError
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient, connect
from aaiclick.errors import SettingsError, UnauthorisedError, UnreachableError, UnsupportedServerError


class Counting(LifecycleHandler):
    """A shared handler that only records its calls."""

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


def tables(admin, endpoint):
    rows = admin.query(f"SELECT name FROM system.tables WHERE database = '{endpoint.database}'").result_rows
    return sorted(name for (name,) in rows)


def running(admin, endpoint, mark):
    query = (
        f"SELECT count() FROM system.processes WHERE current_database = '{endpoint.database}' AND query LIKE '%{mark}%'"
    )
    return admin.query(query).result_rows[0][0]


async def test_exit_drops_every_table(admin, clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint):
        objects = [await create_object_from_value([i]) for i in range(3)]
        assert tables(admin, clickhouse_endpoint) == sorted(obj.table_id for obj in objects)
    assert tables(admin, clickhouse_endpoint) == []


async def test_unreferenced_table_is_dropped_at_once(admin, clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint) as context:
        obj = await create_object_from_value([1])
        derived = obj + 1
        table = obj.table_id
        del obj
        gc.collect()
        assert await derived.data() == [2], "an expression keeps its table alive"
        del derived
        gc.collect()
        await context.lifecycle.stop()
        assert table not in tables(admin, clickhouse_endpoint)


async def test_an_object_is_stale_after_its_context(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint, name="yesterday's context"):
        obj = await create_object_from_value([1])
    for use in (obj.data, obj.count, (obj + 1).data, obj.materialize):
        with pytest.raises(StaleObjectError, match="yesterday's context"):
            await use()
    async with DataContext(clickhouse_endpoint):
        with pytest.raises(StaleObjectError, match="yesterday's context"):
            await (obj + 1).data()


async def test_contexts_nest(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint) as outer:
        a = await create_object_from_value([1, 2])
        async with DataContext(clickhouse_endpoint) as inner:
            assert get_data_context() is inner
            b = await create_object_from_value([10, 20])
            assert await (a + b).data() == [11, 22]
        assert get_data_context() is outer
        assert await a.data() == [1, 2]
        with pytest.raises(StaleObjectError):
            await (a + b).data()


async def test_contexts_run_concurrently(clickhouse_endpoint):
    async def work(number):
        async with DataContext(clickhouse_endpoint) as context:
            obj = await create_object_from_value([number])
            await asyncio.sleep(0)
            assert get_data_context() is context
            return await (obj + 1).data()

    assert await asyncio.gather(*(work(i) for i in range(8))) == [[i + 1] for i in range(8)]


async def test_operations_without_a_context_raise():
    with pytest.raises(NoContextError, match="async with DataContext"):
        await create_object_from_value([1])


async def test_a_context_is_entered_once(clickhouse_endpoint):
    context = DataContext(clickhouse_endpoint)
    async with context:
        with pytest.raises(DataError, match="entered twice"):
            await context.__aenter__()


async def test_an_injected_handler_is_shared_and_never_stopped(admin, clickhouse_endpoint):
    handler = Counting()
    async with DataContext(clickhouse_endpoint, lifecycle=handler):
        obj = await create_object_from_value([1])
        table = obj.table_id
        assert handler.events == [("+", table)]
    assert handler.events == [("+", table), ("-", table)]
    del obj
    gc.collect()
    assert handler.events == [("+", table), ("-", table)], "a reference is given back once"
    assert tables(admin, clickhouse_endpoint) == [table], "who counts does not drop"


async def test_the_first_reference_is_counted_before_the_table_is_made(clickhouse_endpoint, monkeypatch):
    handler = Counting()
    statements = []
    run = ClickHouseClient.run

    async def spy(self, text, *args, **kwargs):
        statements.append((text.split(" (")[0], list(handler.events)))
        return await run(self, text, *args, **kwargs)

    monkeypatch.setattr(ClickHouseClient, "run", spy)
    async with DataContext(clickhouse_endpoint, lifecycle=handler):
        obj = await create_object_from_value([1])
        statement, events = statements[0]
        assert statement.startswith("CREATE TABLE")
        assert events == [("+", obj.table_id)]


async def test_the_local_handler_drops_at_zero(admin, clickhouse_endpoint):
    admin.command(f"CREATE TABLE {clickhouse_endpoint.database}.t1 (x Int8) ENGINE = Memory")
    admin.command(f"CREATE TABLE {clickhouse_endpoint.database}.t2 (x Int8) ENGINE = Memory")
    handler = LocalLifecycleHandler(clickhouse_endpoint)
    await handler.start()
    for name in ("t1", "t1", "t2"):
        handler.incref(name)
    handler.decref("t1")
    handler.decref("t2")
    handler.incref("never_made")
    await handler.stop()
    assert tables(admin, clickhouse_endpoint) == [], "what is left is dropped on stop"
    await handler.stop()


async def test_local_handler_drops_tables_while_it_runs(admin, clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint):
        objects = [await create_object_from_value([number]) for number in range(2)]
        tables_left = [objects[1].table_id]
        del objects[0]
        gc.collect()
        async with asyncio.timeout(30):
            while tables(admin, clickhouse_endpoint) != tables_left:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await objects[0].data() == [1]


async def test_handler_tolerates_an_unreachable_server(clickhouse_endpoint, caplog):
    handler = LocalLifecycleHandler(replace(clickhouse_endpoint, port=1))
    await handler.start()
    handler.incref("t1")
    await handler.stop()
    assert "was not dropped" in caplog.text


async def test_leaving_a_stream_early_kills_its_query(admin, clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint) as context:
        many = await create_object_from_query("SELECT number AS n FROM numbers(3000000)")
        stream = many.select(digest=col("n").cast("String").sha256()).iter_batches()
        first = await anext(stream)
        assert first.num_rows > 0
        await stream.aclose()
        assert running(admin, clickhouse_endpoint, "SHA256") == 0
        assert await context.client.read_text("SELECT 1") is not None


async def test_a_failed_insert_leaves_no_table(admin, clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint):
        with pytest.raises(DataError, match="refused"):
            await create_object_from_query("SELECT throwIf(number = 5) AS x FROM numbers(10)")
        assert tables(admin, clickhouse_endpoint) == []


async def test_one_client_per_loop_and_server(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint) as one, DataContext(clickhouse_endpoint) as two:
        assert one.client is two.client
    assert await connect(clickhouse_endpoint) is await connect(clickhouse_endpoint)


async def test_error_names_an_unreachable_server(clickhouse_endpoint):
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 "):
        async with DataContext(replace(clickhouse_endpoint, host="127.0.0.1", port=1)):
            pass


async def test_error_reports_a_wrong_password(clickhouse_endpoint):
    with pytest.raises(UnauthorisedError, match="refused the user or password") as caught:
        async with DataContext(replace(clickhouse_endpoint, password="wr0ng")):
            pass
    assert "wr0ng" not in str(caught.value)


async def test_an_old_server_is_refused(clickhouse_endpoint, monkeypatch):
    monkeypatch.setattr("aaiclick.data.runtime.clickhouse_client.OLDEST_MAJOR", 99)
    with pytest.raises(UnsupportedServerError, match="needs 99"):
        async with DataContext(
            replace(clickhouse_endpoint, user=clickhouse_endpoint.user, database=clickhouse_endpoint.database)
        ):
            await connect(replace(clickhouse_endpoint, database="default"))


async def test_externally_dropped_table_is_reported(admin, clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint):
        obj = await create_object_from_value([1])
        admin.command(f"DROP TABLE {clickhouse_endpoint.database}.{obj.table_id} SYNC")
        with pytest.raises(ObjectNotFoundError, match="does not exist"):
            await obj.data()


async def test_other_engines(clickhouse_endpoint):
    async with DataContext(clickhouse_endpoint, engine="Memory"):
        a = await create_object_from_value([3, 1, 2])
        assert await (a.sort("value") + a[0:3]).data() == [4, 3, 5]
    with pytest.raises(SettingsError, match="engine"):
        DataContext(clickhouse_endpoint, engine="URL('http://evil')")


async def test_every_query_carries_the_prefix(clickhouse_endpoint, monkeypatch, tmp_path):
    """The prefix is used to find and kill all queries of an attempt."""

    def without_prefix(prefix="aai"):
        raise AssertionError("a query without the prefix of its context")

    query_ids = []
    begun = ClickHouseClient._run_cancellable

    async def spy(self, work, query_id):
        query_ids.append(query_id)
        return await begun(self, work, query_id)

    monkeypatch.setattr("aaiclick.data.runtime.clickhouse_client.new_query_id", without_prefix)
    monkeypatch.setattr(ClickHouseClient, "_run_cancellable", spy)
    async with DataContext(clickhouse_endpoint, query_prefix="attempt-7"):
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
    assert len(query_ids) > 30
    assert all(sent_id.startswith("attempt-7-") for sent_id in query_ids)
