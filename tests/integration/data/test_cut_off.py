"""The connection to ClickHouse breaks after the rows have arrived and before that is said."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from aaiclick.chaos.proxy import Proxy
from aaiclick.data.client import connect
from aaiclick.errors import UnreachableError

ROWS = 1000


@pytest.fixture
async def proxy(aaiclick_clickhouse):
    made = Proxy((aaiclick_clickhouse.host, aaiclick_clickhouse.port))
    await made.start()
    yield made
    await made.stop()


async def test_rows_that_nobody_acknowledged_are_not_sent_twice(aaiclick_clickhouse, proxy):
    near = await connect(aaiclick_clickhouse)
    far = await connect(replace(aaiclick_clickhouse, port=proxy.port))
    await near.run("CREATE TABLE kept (x UInt64) ENGINE = MergeTree ORDER BY x")
    sink = pa.BufferOutputStream()
    rows = pa.table({"x": pa.array(range(ROWS), pa.uint64())})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body = sink.getvalue().to_pybytes()
    await far.insert("kept", ["x"], body)

    silence = asyncio.create_task(proxy.strike("half-open", 60))
    inserting = asyncio.create_task(far.insert("kept", ["x"], body))
    async with asyncio.timeout(100):
        while (await near.read_text("SELECT count() AS n FROM kept")).to_pylist()[0]["n"] < 2 * ROWS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    silence.cancel()  # the network comes to its senses, and cuts
    with pytest.raises(UnreachableError):
        await inserting
    assert (await near.read_text("SELECT count() AS n FROM kept")).to_pylist()[0]["n"] == 2 * ROWS
