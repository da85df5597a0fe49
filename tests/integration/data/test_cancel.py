"""Cancellation of asyncio tasks: no query, table or file is left."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from aiohttp import web

from aaiclick.data import (
    DataContext,
    col,
    create_object_from_file,
    create_object_from_query,
    create_object_from_value,
)
from aaiclick.data.progress import iter_progress

SLOW = "SELECT sleepEachRow(0.1) AS n FROM numbers(6000) SETTINGS max_block_size = 1"


@pytest.fixture
async def stalling():
    """A server that sends a part of a file and then stalls."""
    end = asyncio.Event()

    async def rows(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"n\n" + b"1\n" * 4_000_000)
        if "whole" not in request.query:
            await end.wait()
        return answer

    application = web.Application()
    application.router.add_get("/rows.csv", rows)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/rows.csv"
    end.set()
    await runner.cleanup()


async def endless_batches():
    while True:
        yield pa.table({"n": list(range(300_000))})


async def read_all(obj):
    async for _ in obj.iter_batches():
        pass


OPERATIONS = {
    "query": lambda endless, path, url: create_object_from_query(SLOW),
    "named query": lambda endless, path, url: create_object_from_query(SLOW, name="kept"),
    "materialize": lambda endless, path, url: endless.materialize(),
    "sorted": lambda endless, path, url: endless.sort("n").materialize(),
    "read": lambda endless, path, url: endless.sum().data(),
    "count": lambda endless, path, url: endless.filter(col("n") % 7 == 3).count(),
    "batches": lambda endless, path, url: read_all(endless),
    "export": lambda endless, path, url: endless.export(path / "n.csv"),
    "compressed export": lambda endless, path, url: endless.export(path / "n.parquet"),
    "values": lambda endless, path, url: create_object_from_value(endless_batches()),
    "file": lambda endless, path, url: create_object_from_file([f"{url}?whole", url], allow_private=True),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_cancellation_leaves_no_query_table_or_file(admin, clickhouse_endpoint, tmp_path, stalling, operation):
    database = clickhouse_endpoint.database

    def running(mark):
        text = f"SELECT query FROM system.processes WHERE startsWith(query_id, '{mark}')"
        queries = [query for (query,) in admin.query(text).result_rows]
        return [query for query in queries if not query.startswith("DROP")]  # finished, but still in the list

    def tables():
        return {n for (n,) in admin.query(f"SELECT name FROM system.tables WHERE database = '{database}'").result_rows}

    async with DataContext(clickhouse_endpoint):
        many = await create_object_from_query("SELECT toInt64(number) AS n FROM numbers(300000) ORDER BY n")
        endless = many.join(many.rename("m"), how="cross").select(n=col("n") * col("m"))
        before = tables()
        async with DataContext(clickhouse_endpoint, query_prefix=f"cancelled {operation}"):
            work = asyncio.create_task(OPERATIONS[operation](endless, tmp_path, stalling))
            while not any(map(is_long, running(f"cancelled {operation}"))):
                assert not work.done()
                await asyncio.sleep(0.01)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert running(f"cancelled {operation}") == []
            assert tables() == before
    assert list(tmp_path.iterdir()) == []


def is_long(query):
    """Whether the query is not one of the short statements that prepare the long one."""
    return not query.startswith(("CREATE", "DESCRIBE"))


async def test_progress_of_running_queries(data):
    query = "SELECT sum(cityHash64(number)) AS x FROM numbers(1000000000000)"
    endless = asyncio.create_task(data.client.run(query, query_id=data.query_id()))
    # The DESCRIBE of the expression, a query of its own, reads one row.
    progress = await anext(row async for row in iter_progress(data) if row.rows and row.total > 1)
    assert progress.total >= progress.rows > 0
    assert f"{progress.rows:,} of 1,000,000,000,000 rows" in str(progress)
    endless.cancel()
    with pytest.raises(asyncio.CancelledError):
        await endless
