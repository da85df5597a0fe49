"""ClickHouse clusters: distribution of rows, statements on every node, unreachable nodes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaiclick.data import DataContext, View, create_object_from_value, delete_object, open_object, open_reference
from aaiclick.data.errors import DataError
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient, connect
from aaiclick.data.runtime.cluster import find_local_table
from aaiclick.data.runtime.inspect import list_objects as list_stored_objects
from aaiclick.errors import SettingsError, UnreachableError
from aaiclick.operators import map  # noqa: A004
from aaiclick.orchestration import JobStatus, create_job, get_task, run_job_test
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper
from aaiclick.orchestration.table_audit import list_tables
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.snowflake import TIMESTAMP_SHIFT, get_snowflake_id
from aaiclick.store.postgres_connections import connect as connect_postgres
from aaiclick.store.tables.table_references import release_jobs


def doubled(rows: pa.Table) -> pa.Table:
    return pa.table({"y": pc.multiply(rows["x"], 2)})


@pytest.fixture
def queried_ports(monkeypatch):
    """The ports of the nodes that received the reads, in order."""
    ports = []
    read = ClickHouseClient.read_query

    async def noted(self, query, query_id=""):
        ports.append(self.endpoint.port)
        return await read(self, query, query_id)

    monkeypatch.setattr(ClickHouseClient, "read_query", noted)
    return ports


# --- distribution of rows ---------------------------------------------------------------------------------------------


async def test_ranges_of_rows_alternate_between_shards(data, admins, clickhouse_endpoint):
    obj = await create_object_from_value(list(range(19)))
    text = f"SELECT aai_id FROM {clickhouse_endpoint.database}.{obj.table_id}_local ORDER BY aai_id"
    first, second = ([row[0] for row in admin.query(text).result_rows] for admin in admins)
    assert first == [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18]
    assert second == [4, 5, 6, 7, 12, 13, 14, 15]


async def test_an_organisation_has_a_database_on_every_node(small_ranges, admins, clickhouse_endpoint):
    endpoint = await TenantDatabases(clickhouse_endpoint).ensure_database(UUID(int=1))
    assert endpoint.database.startswith(f"{clickhouse_endpoint.database}_")
    try:
        async with DataContext(endpoint):
            obj = await create_object_from_value(list(range(16)), name="ours")
            assert await (obj + 1).sum().data() == 136
            assert [info.name for info in await list_stored_objects(endpoint)] == ["ours"]
        text = f"SELECT total_rows FROM system.tables WHERE database = '{endpoint.database}' AND name LIKE '%_local'"
        assert [admin.query(text).result_rows for admin in admins] == [[(8,)], [(8,)]]
    finally:
        for admin in admins:
            admin.command(f"DROP DATABASE {endpoint.database} SYNC")


async def test_a_chunk_is_read_from_the_node_that_has_it(data, pair, queried_ports):
    obj = await create_object_from_value({"x": list(range(16))}, name="kept")
    other = await create_object_from_value({"y": list(range(16))})
    assert await View(obj, 4, 4).data() == {"x": [4, 5, 6, 7]}
    assert await View(obj, 9, 2).data() == {"x": [9, 10]}
    assert await (View(obj, 12, 4)["x"] + View(other, 12, 4)["y"]).data() == [24, 26, 28, 30]
    assert queried_ports == [pair[1].http, pair[0].http, pair[1].http]
    assert await View(obj, 2, 4).data() == {"x": [2, 3, 4, 5]}
    assert await (View(obj, 4, 4)["x"] + other["y"].max()).data() == [19, 20, 21, 22]
    assert queried_ports[3:] == [pair[0].http] * 2, "distributed rows are read through the first node"


async def test_rows_with_shifted_keys_are_combined(data):
    a = await create_object_from_value(list(range(30)))
    b = await create_object_from_value(list(range(100, 140)))
    assert await (a + b[3:33]).data() == [x + 103 + x for x in range(30)]
    assert await (a[3:23] + b[:20] + b[20:40]).data() == [3 + x + 100 + x + 120 + x for x in range(20)]
    shifted = await View(a, 3, 20).materialize()
    assert await View(shifted, 4, 4).data() == [7, 8, 9, 10], "rows are on the shards of their new keys"


# --- appends ----------------------------------------------------------------------------------------------------------


async def test_writers_append_over_both_shards(data, clickhouse_endpoint):
    obj = await create_object_from_value({"w": [], "n": []}, schema={"w": "Int64", "n": "Int64"}, name="log")

    async def write(number):
        async with DataContext(clickhouse_endpoint):
            mine = await open_object("log")
            for n in range(3):
                await mine.insert({"w": [number] * 3, "n": [3 * n, 3 * n + 1, 3 * n + 2]})

    await asyncio.gather(*(write(number) for number in range(2)))
    rows = await obj.data()
    assert [[n for w, n in zip(rows["w"], rows["n"], strict=True) if w == i] for i in range(2)] == [list(range(9))] * 2
    assert all(rows["n"][i] % 3 == i % 3 for i in range(18)), "rows of one append stay together"


async def test_interrupted_append_leaves_its_first_ranges_without_a_gap(data, monkeypatch):
    obj = await create_object_from_value(list(range(6)))
    run, statements = ClickHouseClient.run, []

    async def breaking(self, text, *args, **kwargs):
        if text.startswith("INSERT INTO") and "_local" in text:
            statements.append(text)
            if len(statements) == 3:
                raise UnreachableError("The node went away.")
        await run(self, text, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(ClickHouseClient, "run", breaking)
        with pytest.raises(DataError, match="failed after 2 of 5 ranges of 4 rows: The node went away"):
            await obj.insert(list(range(6, 24)))
    assert await obj.data() == list(range(12))
    assert await obj.insert([12, 13]) == 14
    assert await obj.data() == list(range(14))


# --- lifecycle --------------------------------------------------------------------------------------------------------


async def test_map_over_both_shards_leaves_no_tables(
    aaiclick_env, aaiclick_postgres, clickhouse_endpoint, small_ranges, pair, queried_ports, tables
):
    async with DataContext(clickhouse_endpoint) as data:
        source = await create_object_from_value({"x": list(range(30))})
        handle = map(doubled, source, chunk_rows=4)
        job = await create_job("spread", handle)
        queried_ports.clear()
        assert run_job_test(job).status is JobStatus.COMPLETED
        assert queried_ports.count(pair[1].http) == 4, "every second chunk"
        result = await open_reference((await get_task(handle.id)).result)
        assert await result.data() == {"y": [2 * x for x in range(30)]}
        assert tables()[1], "there are rows on the second node"
        db = await connect_postgres(aaiclick_postgres)
        try:
            entry = next(table for table in await list_tables(db, data.client) if table.table_id == result.table_id)
            assert (entry.rows, entry.state) == (30, "live")
            del result, source, handle
            await release_jobs(db, [job.id])
        finally:
            await db.close()
    await PgCleanupWorker().run_once()
    assert tables() == [[], []]


def test_local_tables_of_distributed_ones_are_found():
    referring = [("t1", "t9_local"), ("named_x", "t3_local")]
    assert find_local_table("t1", referring) == "t9_local"
    assert find_local_table("named_x", referring) == "t3_local"
    assert find_local_table("t3", referring) is None, "it has a name now"
    assert find_local_table("t4", referring) == "t4_local", "left by a crash: no Distributed table uses it"


async def test_leftover_local_tables_are_swept(aaiclick_env, aaiclick_postgres, clickhouse_endpoint, admins, tables):
    database, day = clickhouse_endpoint.database, 86_400_000 << TIMESTAMP_SHIFT
    half, young = f"t{get_snowflake_id() - day}_local", f"t{get_snowflake_id()}_local"
    for name in (half, young):
        admins[1].command(f"CREATE TABLE {database}.{name} (aai_id UInt64) ENGINE = MergeTree ORDER BY aai_id")
    async with DataContext(clickhouse_endpoint):
        await create_object_from_value([1], name="kept")
        await create_object_from_value([2], name="kept", replace=True)
    assert await TableSweeper().run_once() == 1
    assert [name for name in tables()[1] if name in (half, young)] == [young]
    assert await TableSweeper(max_age_seconds=-10).run_once() == 1
    first, second = tables()
    assert len(first) == 2
    assert first[0] == "named_kept"
    assert second == first[1:]
    assert [(info.name, info.rows) for info in await list_stored_objects(clickhouse_endpoint)] == [("kept", 1)]
    async with DataContext(clickhouse_endpoint):
        assert await (await open_object("kept")).data() == [2]
        await delete_object("kept")
    assert tables() == [[], []]


async def test_unreachable_node_is_named_and_reconnects(pair, clickhouse_endpoint, small_ranges, tables, caplog):
    caplog.set_level(logging.CRITICAL, logger="aaiclick.data.runtime.lifecycle")
    async with DataContext(clickhouse_endpoint):
        obj = await create_object_from_value({"x": list(range(12))})
        dropped = await create_object_from_value([1])
        pair[1].kill()
        try:
            with pytest.raises(UnreachableError, match=r"A node of the cluster 'pair' does not answer.*\n.*Start it"):
                await obj.data()
            with pytest.raises(UnreachableError, match=str(pair[1].http)):
                await create_object_from_value([1, 2, 3])
            with pytest.raises(UnreachableError, match=str(pair[1].http)):
                await View(obj, 4, 4).data()
            assert await View(obj, 0, 4).data() == {"x": [0, 1, 2, 3]}, "rows of the first node can be read"
            del dropped
        finally:
            pair[1].start()
        assert await obj.data() == {"x": list(range(12))}
        assert await obj.insert({"x": [12]}) == 13
    assert tables() == [[], []]


async def test_unsuitable_cluster_is_refused(clickhouse_endpoint):
    first, second = replace(clickhouse_endpoint, cluster="", others=()), clickhouse_endpoint.others[0]
    for wrong, message in (
        (replace(clickhouse_endpoint, cluster="nowhere"), "does not know it"),
        (replace(clickhouse_endpoint, others=(first,)), "are nodes of the same shard"),
        (replace(clickhouse_endpoint, others=(first, second)), "counts 2 shards, and there are 3 URLs"),
    ):
        with pytest.raises(SettingsError, match=message):
            await connect(wrong)
