"""Sweeper: drops only orphans, independent of the local clock and of concurrent sweepers."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data.runtime import lifecycle as data_lifecycle
from aaiclick.orchestration.loops import data_session_expiry, table_sweeper
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper, old_tables
from aaiclick.snowflake import EPOCH_MS, TIMESTAMP_SHIFT
from tests.integration.lifecycle.conftest import new_table, until

NOT_OURS = [
    "t", "table", "t1", "t12x", "t20240131", "T{0}", "tt{0}", "t{0}_backup", "t0{0}", "t-1", "named_t{0}", "{0}",
    "t99999999999999999999", "t9223372036854775808", "t20240131123456",
]  # fmt: skip


async def test_only_old_unknown_tables_are_dropped(servers):
    old, young, registered = new_table(3700), new_table(3500), new_table(3700)
    for name in (old, young, registered):
        await servers.create(name)
    await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", registered)
    assert await TableSweeper().run_once() == 1
    assert await servers.tables() == {young, registered}
    assert await servers.counts() == {registered: 0}


async def test_other_table_names_are_never_dropped(servers):
    names = {name.format(new_table(10 * 86_400)[1:]) for name in NOT_OURS}
    for name in names:
        await servers.create(name)
    assert await TableSweeper(max_age_seconds=0).run_once() == 0
    assert await servers.tables() == names


@pytest.mark.parametrize("shift_seconds", [-86_400, 86_400])
async def test_local_clock_is_ignored(servers, monkeypatch, shift_seconds):
    old, young = await servers.create(new_table(3700)), await servers.create(new_table(3500))
    true_time, true_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: true_time() + shift_seconds)
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + shift_seconds * 1_000_000_000)
    assert await TableSweeper().run_once() == 1
    assert await servers.tables() == {young}
    assert old not in await servers.counts()


@pytest.mark.parametrize(("age", "drops"), [(3599.9, False), (3600.1, True)])
def test_the_epoch_of_ids_is_added_back(age, drops):
    now = datetime(2026, 5, 1, tzinfo=UTC)
    created_ms = int((now - timedelta(seconds=age)).timestamp() * 1000)
    name = f"t{(created_ms - EPOCH_MS) << TIMESTAMP_SHIFT}"
    assert old_tables([name], now, 3600) == ([name] if drops else [])


async def test_concurrent_sweepers_drop_each_table_once(servers):
    for _ in range(20):
        await servers.create(new_table(4000))
    assert sum(await asyncio.gather(TableSweeper().run_once(), TableSweeper().run_once())) == 20
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_cleanup_finishes_after_a_sweeper_died(servers, monkeypatch):
    name = await servers.create(new_table(4000))

    async def dies(*_):
        raise RuntimeError("killed")

    monkeypatch.setattr(table_sweeper, "drop_marked", dies)
    with pytest.raises(RuntimeError, match="killed"):
        await TableSweeper().run_once()
    assert await servers.tables() == {name}
    assert await PgCleanupWorker(reclaim_seconds=0).run_once() == 1
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_tables_of_a_new_context_are_kept(servers):
    async with DataContext(servers.clickhouse):
        numbers = await create_object_from_value([1, 2, 3])
        assert await TableSweeper(max_age_seconds=0).run_once() == 0
        assert await numbers.data() == [1, 2, 3]


SCRIPT = """
    import asyncio
    from aaiclick.data import DataContext, create_object_from_value
    from aaiclick.data.runtime import lifecycle
    lifecycle.HEARTBEAT_SECONDS = 0.1

    async def main():
        async with DataContext():
            numbers = await create_object_from_value([1, 2, 3])
            print(numbers.table_id, flush=True)
            await asyncio.sleep(600)

    asyncio.run(main())
"""


async def test_long_running_script_keeps_its_tables(servers, monkeypatch):
    """With short intervals: the marker of a live script stays fresh, that of a killed one expires."""
    monkeypatch.setattr(data_session_expiry, "SILENT_SECONDS", 4)
    monkeypatch.setattr(table_sweeper, "SILENT_SECONDS", 0)
    process = servers.script(SCRIPT)
    try:
        table = (await asyncio.to_thread(process.stdout.readline)).strip()

        async def has_marker() -> bool:
            return len(await servers.tables()) == 2

        await until(has_marker)
        assert await TableSweeper(max_age_seconds=0).run_once() == 0
        assert table in await servers.tables()
        process.kill()

        async def swept() -> bool:
            await TableSweeper(max_age_seconds=0).run_once()
            return await servers.tables() == set()

        await until(swept)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_marker_is_dropped_with_its_context(servers, monkeypatch):
    monkeypatch.setattr(data_lifecycle, "HEARTBEAT_SECONDS", 0.05)
    async with DataContext(servers.clickhouse) as context:
        numbers = await create_object_from_value([1])
        marker = f"t{context.lifecycle.session}"

        async def marked() -> bool:
            return await servers.tables() == {numbers.table_id, marker}

        await until(marked)
        rows = await servers.client.read_text("SELECT name, comment FROM system.tables WHERE name = {n:String}",
                                              {"n": numbers.table_id})  # fmt: skip
        assert json.loads(rows.to_pylist()[0]["comment"])["session"] == str(context.lifecycle.session)
    assert await servers.tables() == set()
