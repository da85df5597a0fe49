"""What is special about a cluster: where rows lie, what is told to every node, and what happens when one is away."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaiclick.data import DataContext, View, create_object_from_value, delete_object, open_object, open_reference
from aaiclick.data.client import Client, connect
from aaiclick.data.cluster import local_to_drop
from aaiclick.data.errors import DataError
from aaiclick.data.inspect import list_objects as seen_objects
from aaiclick.errors import SettingsError, UnreachableError
from aaiclick.operators import map  # noqa: A004
from aaiclick.orchestration import JobStatus, create_job, get_task, run_job_test
from aaiclick.orchestration.inventory import inventory
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper
from aaiclick.orchestration.tenants import Tenants
from aaiclick.snowflake import TIMESTAMP_SHIFT, get_snowflake_id
from aaiclick.store.engine import connect as connect_postgres
from aaiclick.store.tables import release_jobs


def doubled(rows: pa.Table) -> pa.Table:
    return pa.table({"y": pc.multiply(rows["x"], 2)})


@pytest.fixture
def asked(monkeypatch):
    """The port of the node that each read went to."""
    ports = []
    read = Client.read

    async def noted(self, query, query_id=""):
        ports.append(self.target.port)
        return await read(self, query, query_id)

    monkeypatch.setattr(Client, "read", noted)
    return ports


# --- where rows lie ---------------------------------------------------------------------------------------------------


async def test_rows_lie_in_ranges_one_shard_after_the_other(data, admins, clickhouse_target):
    obj = await create_object_from_value(list(range(19)))
    text = f"SELECT aai_id FROM {clickhouse_target.database}.{obj.table_id}_local ORDER BY aai_id"
    first, second = ([row[0] for row in admin.query(text).result_rows] for admin in admins)
    assert first == [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18]
    assert second == [4, 5, 6, 7, 12, 13, 14, 15]


async def test_an_organisation_has_a_database_on_every_node(small_ranges, admins, clickhouse_target):
    target = await Tenants(clickhouse_target).ready(UUID(int=1))
    assert target.database.startswith(f"{clickhouse_target.database}_")
    try:
        async with DataContext(target):
            obj = await create_object_from_value(list(range(16)), name="ours")
            assert await (obj + 1).sum().data() == 136
            assert [each.name for each in await seen_objects(target)] == ["ours"]
        text = f"SELECT total_rows FROM system.tables WHERE database = '{target.database}' AND name LIKE '%_local'"
        assert [admin.query(text).result_rows for admin in admins] == [[(8,)], [(8,)]]
    finally:
        for admin in admins:
            admin.command(f"DROP DATABASE {target.database} SYNC")


async def test_a_chunk_is_read_from_the_node_that_has_it(data, pair, asked):
    obj = await create_object_from_value({"x": list(range(16))}, name="kept")
    other = await create_object_from_value({"y": list(range(16))})
    assert await View(obj, 4, 4).data() == {"x": [4, 5, 6, 7]}
    assert await View(obj, 9, 2).data() == {"x": [9, 10]}
    assert await (View(obj, 12, 4)["x"] + View(other, 12, 4)["y"]).data() == [24, 26, 28, 30]
    assert asked == [pair[1].http, pair[0].http, pair[1].http]
    assert await View(obj, 2, 4).data() == {"x": [2, 3, 4, 5]}
    assert await (View(obj, 4, 4)["x"] + other["y"].max()).data() == [19, 20, 21, 22]
    assert asked[3:] == [pair[0].http] * 2, "what is spread goes through the first node"


async def test_rows_of_other_keys_are_brought_together(data):
    a = await create_object_from_value(list(range(30)))
    b = await create_object_from_value(list(range(100, 140)))
    assert await (a + b[3:33]).data() == [x + 103 + x for x in range(30)]
    assert await (a[3:23] + b[:20] + b[20:40]).data() == [3 + x + 100 + x + 120 + x for x in range(20)]
    shifted = await View(a, 3, 20).materialize()
    assert await View(shifted, 4, 4).data() == [7, 8, 9, 10], "rows lie where their new keys belong"


# --- appends ----------------------------------------------------------------------------------------------------------


async def test_writers_append_over_both_shards(data, clickhouse_target):
    obj = await create_object_from_value({"w": [], "n": []}, schema={"w": "Int64", "n": "Int64"}, name="log")

    async def write(number):
        async with DataContext(clickhouse_target):
            mine = await open_object("log")
            for n in range(3):
                await mine.insert({"w": [number] * 3, "n": [3 * n, 3 * n + 1, 3 * n + 2]})

    await asyncio.gather(*(write(number) for number in range(2)))
    rows = await obj.data()
    assert [[n for w, n in zip(rows["w"], rows["n"], strict=True) if w == i] for i in range(2)] == [list(range(9))] * 2
    assert all(rows["n"][i] % 3 == i % 3 for i in range(18)), "rows of one append stay together"


async def test_an_append_that_ends_on_the_way_leaves_its_first_ranges_and_no_gap(data, monkeypatch):
    obj = await create_object_from_value(list(range(6)))
    run, told = Client.run, []

    async def breaking(self, text, *args, **kwargs):
        if text.startswith("INSERT INTO") and "_local" in text:
            told.append(text)
            if len(told) == 3:
                raise UnreachableError("The node went away.")
        await run(self, text, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "run", breaking)
        with pytest.raises(DataError, match="ended after 2 of 5 ranges of 4 rows: The node went away"):
            await obj.insert(list(range(6, 24)))
    assert await obj.data() == list(range(12))
    assert await obj.insert([12, 13]) == 14
    assert await obj.data() == list(range(14))


# --- life -------------------------------------------------------------------------------------------------------------


async def test_a_map_over_both_shards_and_nothing_left(
    aaiclick_env, aaiclick_postgres, clickhouse_target, small_ranges, pair, asked, tables
):
    async with DataContext(clickhouse_target) as data:
        source = await create_object_from_value({"x": list(range(30))})
        handle = map(doubled, source, chunk_rows=4)
        job = await create_job("spread", handle)
        asked.clear()
        assert run_job_test(job).status is JobStatus.COMPLETED
        assert asked.count(pair[1].http) == 4, "every second chunk"
        made = await open_reference((await get_task(handle.id)).result)
        assert await made.data() == {"y": [2 * x for x in range(30)]}
        assert tables()[1], "there are rows on the second node"
        db = await connect_postgres(aaiclick_postgres)
        try:
            entry = next(each for each in await inventory(db, data.client) if each.table == made.table_id)
            assert (entry.rows, entry.state) == (30, "live")
            del made, source, handle
            await release_jobs(db, [job.id])
        finally:
            await db.close()
    await PgCleanupWorker().run_once()
    assert tables() == [[], []]


def test_local_tables_go_with_what_leads_to_them():
    referring = [("t1", "t9_local"), ("named_x", "t3_local")]
    assert local_to_drop("t1", referring) == "t9_local"
    assert local_to_drop("named_x", referring) == "t3_local"
    assert local_to_drop("t3", referring) is None, "it has a name now"
    assert local_to_drop("t4", referring) == "t4_local", "nothing leads to what a crash left"


async def test_what_a_crash_left_on_one_node_is_swept(
    aaiclick_env, aaiclick_postgres, clickhouse_target, admins, tables
):
    database, day = clickhouse_target.database, 86_400_000 << TIMESTAMP_SHIFT
    half, young = f"t{get_snowflake_id() - day}_local", f"t{get_snowflake_id()}_local"
    for name in (half, young):
        admins[1].command(f"CREATE TABLE {database}.{name} (aai_id UInt64) ENGINE = MergeTree ORDER BY aai_id")
    async with DataContext(clickhouse_target):
        await create_object_from_value([1], name="kept")
        await create_object_from_value([2], name="kept", replace=True)
    assert await TableSweeper().run_once() == 1
    assert [name for name in tables()[1] if name in (half, young)] == [young]
    assert await TableSweeper(max_age_seconds=-10).run_once() == 1
    first, second = tables()
    assert len(first) == 2
    assert first[0] == "named_kept"
    assert second == first[1:]
    assert [(each.name, each.rows) for each in await seen_objects(clickhouse_target)] == [("kept", 1)]
    async with DataContext(clickhouse_target):
        assert await (await open_object("kept")).data() == [2]
        await delete_object("kept")
    assert tables() == [[], []]


async def test_a_node_that_is_away_is_named_and_comes_back(pair, clickhouse_target, small_ranges, tables, caplog):
    caplog.set_level(logging.CRITICAL, logger="aaiclick.data.lifecycle")
    async with DataContext(clickhouse_target):
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
            assert await View(obj, 0, 4).data() == {"x": [0, 1, 2, 3]}, "what lies on the first is there"
            del dropped
        finally:
            pair[1].start()
        assert await obj.data() == {"x": list(range(12))}
        assert await obj.insert({"x": [12]}) == 13
    assert tables() == [[], []]


async def test_a_cluster_that_does_not_fit_is_refused(clickhouse_target):
    first, second = replace(clickhouse_target, cluster="", others=()), clickhouse_target.others[0]
    for wrong, words in (
        (replace(clickhouse_target, cluster="nowhere"), "does not know it"),
        (replace(clickhouse_target, others=(first,)), "lead to the same shard"),
        (replace(clickhouse_target, others=(first, second)), "counts 2 shards, and there are 3 URLs"),
    ):
        with pytest.raises(SettingsError, match=words):
            await connect(wrong)
