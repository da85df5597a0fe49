"""The sweeper: orphans go, and nothing else, whatever a local clock says and however many sweep."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.data import DataContext, create_object_from_value
from aaiclick.data import lifecycle as data_lifecycle
from aaiclick.orchestration.loops import sessions, sweeper
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper, old_tables
from aaiclick.snowflake import EPOCH_MS, TIMESTAMP_SHIFT
from tests.integration.lifecycle.conftest import new_table, until

NOT_OURS = [
    "t", "table", "t1", "t12x", "t20240131", "T{0}", "tt{0}", "t{0}_backup", "t0{0}", "t-1", "named_t{0}", "{0}",
    "t99999999999999999999", "t9223372036854775808", "t20240131123456",
]  # fmt: skip


async def test_only_old_tables_that_nobody_knows_go(servers):
    old, young, known = new_table(3700), new_table(3500), new_table(3700)
    for name in (old, young, known):
        await servers.create(name)
    await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ($1)", known)
    assert await TableSweeper().run_once() == 1
    assert await servers.tables() == {young, known}
    assert await servers.counts() == {known: 0}


async def test_names_that_are_not_ours_are_never_touched(servers):
    names = {name.format(new_table(10 * 86_400)[1:]) for name in NOT_OURS}
    for name in names:
        await servers.create(name)
    assert await TableSweeper(max_age_seconds=0).run_once() == 0
    assert await servers.tables() == names


@pytest.mark.parametrize("shift_seconds", [-86_400, 86_400])
async def test_the_local_clock_has_no_say(servers, monkeypatch, shift_seconds):
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
    made = int((now - timedelta(seconds=age)).timestamp() * 1000)
    name = f"t{(made - EPOCH_MS) << TIMESTAMP_SHIFT}"
    assert old_tables([name], now, 3600) == ([name] if drops else [])


async def test_two_at_once_drop_each_table_once(servers):
    for _ in range(20):
        await servers.create(new_table(4000))
    assert sum(await asyncio.gather(TableSweeper().run_once(), TableSweeper().run_once())) == 20
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_a_sweeper_that_dies_leaves_the_rest_to_the_cleanup(servers, monkeypatch):
    name = await servers.create(new_table(4000))

    async def dies(*_):
        raise RuntimeError("killed")

    monkeypatch.setattr(sweeper, "drop_marked", dies)
    with pytest.raises(RuntimeError, match="killed"):
        await TableSweeper().run_once()
    assert await servers.tables() == {name}
    assert await PgCleanupWorker(reclaim_seconds=0).run_once() == 1
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_the_tables_of_a_young_context_are_spared(servers):
    async with DataContext(servers.clickhouse):
        made = await create_object_from_value([1, 2, 3])
        assert await TableSweeper(max_age_seconds=0).run_once() == 0
        assert await made.data() == [1, 2, 3]


SCRIPT = """
    import asyncio
    from aaiclick.data import DataContext, create_object_from_value, lifecycle
    lifecycle.BEAT_SECONDS = 0.1

    async def main():
        async with DataContext():
            made = await create_object_from_value([1, 2, 3])
            print(made.table_id, flush=True)
            await asyncio.sleep(600)

    asyncio.run(main())
"""


async def test_a_script_that_runs_for_hours_keeps_its_tables_until_it_dies(servers, monkeypatch):
    """Hours are seconds here: the marker of a living script is fresh, that of a killed one grows old."""
    monkeypatch.setattr(sessions, "SILENT_SECONDS", 4)
    monkeypatch.setattr(sweeper, "SILENT_SECONDS", 0)
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


async def test_a_marker_goes_with_its_context(servers, monkeypatch):
    monkeypatch.setattr(data_lifecycle, "BEAT_SECONDS", 0.05)
    async with DataContext(servers.clickhouse) as context:
        made = await create_object_from_value([1])
        marker = f"t{context.lifecycle.session}"

        async def marked() -> bool:
            return await servers.tables() == {made.table_id, marker}

        await until(marked)
        rows = await servers.client.read_text("SELECT name, comment FROM system.tables WHERE name = {n:String}",
                                              {"n": made.table_id})  # fmt: skip
        assert json.loads(rows.to_pylist()[0]["comment"])["session"] == str(context.lifecycle.session)
    assert await servers.tables() == set()
