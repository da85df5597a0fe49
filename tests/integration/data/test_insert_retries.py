"""Inserts with a connection to ClickHouse that breaks before the acknowledgement."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.data.runtime.clickhouse_client import connect
from aaiclick.errors import UnreachableError

ROWS = 1000


@pytest.fixture
async def proxy(aaiclick_clickhouse):
    tcp_proxy = TcpProxy((aaiclick_clickhouse.host, aaiclick_clickhouse.port))
    await tcp_proxy.start()
    yield tcp_proxy
    await tcp_proxy.stop()


async def test_unacknowledged_rows_are_not_sent_twice(aaiclick_clickhouse, proxy):
    near = await connect(aaiclick_clickhouse)
    far = await connect(replace(aaiclick_clickhouse, port=proxy.port))
    await near.run("CREATE TABLE kept (x UInt64) ENGINE = MergeTree ORDER BY x")
    sink = pa.BufferOutputStream()
    rows = pa.table({"x": pa.array(range(ROWS), pa.uint64())})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body = sink.getvalue().to_pybytes()
    await far.insert_arrow("kept", ["x"], body)

    silence = asyncio.create_task(proxy.inject("half-open", 60))
    inserting = asyncio.create_task(far.insert_arrow("kept", ["x"], body))
    async with asyncio.timeout(100):
        while (await near.read_text("SELECT count() AS n FROM kept")).to_pylist()[0]["n"] < 2 * ROWS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    silence.cancel()  # the proxy now closes the connection
    with pytest.raises(UnreachableError):
        await inserting
    assert (await near.read_text("SELECT count() AS n FROM kept")).to_pylist()[0]["n"] == 2 * ROWS
