"""Cleanup: drops only tables without references, and survives crashes."""

import asyncio
import os
import random
import signal

import pytest

from aaiclick.errors import AaiclickError
from aaiclick.local.home import Home
from aaiclick.local.stack_connection import StackConnection, ask_keeper
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.store.migrate import upgrade_if_needed
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tables import table_references
from tests.integration.lifecycle.conftest import new_table, until

ROUNDS = 1_000


async def unused(servers, count: int = 1) -> list[str]:
    """Create tables with a refcount of zero."""
    names = [await servers.create() for _ in range(count)]
    await servers.db.executemany("INSERT INTO table_refcounts (table_name) VALUES ($1)", [(name,) for name in names])
    return names


async def test_only_unreferenced_tables_are_dropped(servers):
    lease = await servers.attempt()
    (dropped,), referenced = await unused(servers), await servers.create()
    await table_references.reserve_tables(servers.db, [(referenced, lease)])
    assert await PgCleanupWorker().run_once() == 1
    assert await servers.tables() == {referenced}
    assert dropped not in await servers.counts()


async def test_reference_to_a_table_never_created_is_removed(servers):
    await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ('t5')")
    assert await PgCleanupWorker().run_once() == 1
    assert await servers.counts() == {}


async def test_concurrent_cleanups_drop_each_table_once(servers):
    await unused(servers, 40)
    dropped = await asyncio.gather(*(PgCleanupWorker().run_once() for _ in range(5)))
    assert sum(dropped) == 40
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_new_reference_keeps_the_table_or_is_refused(servers):
    """Races of a new reference with mark and drop: a referenced table is never dropped."""
    lease = await servers.attempt()
    connections = [await connect(servers.postgres) for _ in range(2)]
    successes = refused = 0
    try:
        for number in range(ROUNDS // 50):
            names = [new_table() for _ in range(50)]
            await servers.db.executemany("INSERT INTO table_refcounts (table_name) VALUES ($1)", [(n,) for n in names])

            async def refer(names=names) -> dict[str, bool]:
                got: dict[str, bool] = {}
                for name in random.sample(names, len(names)):
                    (held,) = await table_references.hold_tables(connections[0], [(name, lease)])
                    got[name] = not held.is_unknown
                return got

            async def drop(number=number) -> set[str]:
                gone: set[str] = set()
                while marked := await table_references.mark_tables_dropping(
                    connections[1], limit=random.Random(number).randint(1, 9)
                ):
                    await table_references.delete_tables(connections[1], marked)
                    gone.update(marked)
                return gone

            got, gone = await asyncio.gather(refer(), drop())
            gone |= await drop()
            assert gone == {name for name, held in got.items() if not held}
            assert set(await servers.counts()) == {name for name, held in got.items() if held}
            successes += sum(got.values())
            refused += len(gone)
            await servers.db.execute("DELETE FROM table_refcounts")
    finally:
        for other in connections:
            await other.close()
    assert successes + refused == ROUNDS
    assert successes
    assert refused


HELD_UP = """
    CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.table_name = 't1' THEN PERFORM pg_advisory_xact_lock(1); END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER held_up BEFORE UPDATE ON table_refcounts FOR EACH ROW EXECUTE FUNCTION hold_up();
    SELECT pg_advisory_lock(1)
"""


async def test_reference_to_a_table_being_marked_waits_and_is_refused(servers):
    """The mark waits for a lock on the first of two tables while a reference to the second is requested."""
    lease = await servers.attempt()
    marker, reader = [await connect(servers.postgres) for _ in range(2)]
    try:
        await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ('t1'), ('t2')")
        await servers.db.execute(HELD_UP)

        async def wait(count: int) -> bool:
            return await servers.db.fetchval("SELECT count(*) >= $1 FROM pg_locks WHERE NOT granted", count)

        marking = asyncio.create_task(table_references.mark_tables_dropping(marker))
        await until(lambda: wait(1))
        holding = asyncio.create_task(table_references.hold_tables(reader, [("t2", lease)]))
        await until(lambda: wait(2))
        await servers.db.execute("SELECT pg_advisory_unlock(1)")
        assert set(await marking) == {"t1", "t2"}
        assert [held.is_unknown for held in await holding] == [True]
    finally:
        for process in (marker, reader):
            process.terminate()


DIES = """
    import asyncio, os, signal
    from aaiclick.local import find_both
    from aaiclick.orchestration.loops import table_cleanup
    from aaiclick.store.tables import table_references

    async def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    {patch}
    asyncio.run(table_cleanup.PgCleanupWorker().run_once())
"""


@pytest.mark.parametrize(
    ("patch", "left"),
    [("table_cleanup.drop_marked = die", 3), ("table_references.delete_tables = die", 0)],
    ids=["marked", "dropped"],
)
async def test_killed_cleanup_is_finished_by_the_next(servers, patch, left):
    names = await unused(servers, 3)
    process = servers.script(DIES.format(patch=patch))
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
    process.stdout.close()
    assert len(await servers.tables()) == left
    assert set(await servers.counts()) == set(names)
    assert await PgCleanupWorker().run_once() == 0  # another cleanup may hold it
    assert await PgCleanupWorker(reclaim_seconds=0).run_once() == 3
    assert (await servers.tables(), await servers.counts()) == (set(), {})


@pytest.fixture
def own_stack(tmp_path):
    connection = StackConnection(Home(tmp_path / "home"), 20)
    connection.require_servers("postgres", "clickhouse")
    yield connection
    connection.close()
    ask_keeper(Home(tmp_path / "home"), {"op": "stop"})


async def test_clickhouse_outage_delays_the_cleanup(own_stack, tmp_path):
    postgres, clickhouse = own_stack.postgres_endpoint(), own_stack.clickhouse_endpoint()
    await upgrade_if_needed(postgres)
    db = await connect(postgres)
    try:
        await db.execute("INSERT INTO table_refcounts (table_name) SELECT 't' || n FROM generate_series(1, 400) AS n")
        worker = PgCleanupWorker(postgres=postgres, clickhouse=clickhouse, reclaim_seconds=0)
        await worker.run_once()
        await db.execute("INSERT INTO table_refcounts (table_name) SELECT 't' || n FROM generate_series(1, 400) AS n")
        status = ask_keeper(Home(tmp_path / "home"), {"op": "status"})["status"]
        under_way = asyncio.create_task(worker.run_once())
        while not await db.fetchval("SELECT count(*) FROM table_refcounts WHERE dropping_at IS NOT NULL"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        os.kill(status["servers"]["clickhouse"]["pid"], signal.SIGKILL)
        with pytest.raises(AaiclickError):
            await under_way
        assert await db.fetchval("SELECT count(*) FROM table_refcounts") > 0
        async with asyncio.timeout(60):
            while await db.fetchval("SELECT count(*) FROM table_refcounts"):
                try:
                    await worker.run_once()
                except AaiclickError:
                    await asyncio.sleep(0.05)
    finally:
        await db.close()
