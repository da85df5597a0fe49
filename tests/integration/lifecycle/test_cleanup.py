"""Dropping: never while somebody refers to the table, always in the end, whoever dies on the way."""

import asyncio
import os
import random
import signal

import pytest

from aaiclick.errors import AaiclickError
from aaiclick.local.home import Home
from aaiclick.local.lease import Lease, ask
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.store import tables
from aaiclick.store.engine import connect
from aaiclick.store.migrate import ensure_current
from tests.integration.lifecycle.conftest import new_table, until

ROUNDS = 1_000


async def unused(servers, count: int = 1) -> list[str]:
    """Tables that exist, are known, and that nothing refers to."""
    names = [await servers.create() for _ in range(count)]
    await servers.db.executemany("INSERT INTO table_refcounts (table_name) VALUES ($1)", [(name,) for name in names])
    return names


async def test_what_nothing_refers_to_is_dropped_and_the_rest_stays(servers):
    lease = await servers.attempt()
    (gone,), kept = await unused(servers), await servers.create()
    await tables.reserve(servers.db, [(kept, lease)])
    assert await PgCleanupWorker().run_once() == 1
    assert await servers.tables() == {kept}
    assert gone not in await servers.counts()


async def test_a_table_that_never_came_to_be_is_forgotten(servers):
    await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ('t5')")
    assert await PgCleanupWorker().run_once() == 1
    assert await servers.counts() == {}


async def test_several_at_once_drop_each_table_once(servers):
    await unused(servers, 40)
    dropped = await asyncio.gather(*(PgCleanupWorker().run_once() for _ in range(5)))
    assert sum(dropped) == 40
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_a_new_reference_keeps_the_table_or_is_refused(servers):
    """A reference races with the mark and the drop, in every order: no table that is held is ever dropped."""
    lease = await servers.attempt()
    others = [await connect(servers.postgres) for _ in range(2)]
    kept = refused = 0
    try:
        for number in range(ROUNDS // 50):
            names = [new_table() for _ in range(50)]
            await servers.db.executemany("INSERT INTO table_refcounts (table_name) VALUES ($1)", [(n,) for n in names])

            async def refer(names=names) -> dict[str, bool]:
                got: dict[str, bool] = {}
                for name in random.sample(names, len(names)):
                    (held,) = await tables.hold(others[0], [(name, lease)])
                    got[name] = not held.gone
                return got

            async def drop(number=number) -> set[str]:
                gone: set[str] = set()
                while marked := await tables.mark_dropping(others[1], limit=random.Random(number).randint(1, 9)):
                    await tables.forget_tables(others[1], marked)
                    gone.update(marked)
                return gone

            got, gone = await asyncio.gather(refer(), drop())
            gone |= await drop()
            assert gone == {name for name, held in got.items() if not held}
            assert set(await servers.counts()) == {name for name, held in got.items() if held}
            kept += sum(got.values())
            refused += len(gone)
            await servers.db.execute("DELETE FROM table_refcounts")
    finally:
        for other in others:
            await other.close()
    assert kept + refused == ROUNDS
    assert kept
    assert refused


HELD_UP = """
    CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.table_name = 't1' THEN PERFORM pg_advisory_xact_lock(1); END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER held_up BEFORE UPDATE ON table_refcounts FOR EACH ROW EXECUTE FUNCTION hold_up();
    SELECT pg_advisory_lock(1)
"""


async def test_a_reference_to_what_is_being_marked_waits_and_is_refused(servers):
    """The mark is held up at the first of two tables; meanwhile somebody wants the second."""
    lease = await servers.attempt()
    marker, reader = [await connect(servers.postgres) for _ in range(2)]
    try:
        await servers.db.execute("INSERT INTO table_refcounts (table_name) VALUES ('t1'), ('t2')")
        await servers.db.execute(HELD_UP)

        async def wait(count: int) -> bool:
            return await servers.db.fetchval("SELECT count(*) >= $1 FROM pg_locks WHERE NOT granted", count)

        marking = asyncio.create_task(tables.mark_dropping(marker))
        await until(lambda: wait(1))
        holding = asyncio.create_task(tables.hold(reader, [("t2", lease)]))
        await until(lambda: wait(2))
        await servers.db.execute("SELECT pg_advisory_unlock(1)")
        assert set(await marking) == {"t1", "t2"}
        assert [held.gone for held in await holding] == [True]
    finally:
        for each in (marker, reader):
            each.terminate()


DIES = """
    import asyncio, os, signal
    from aaiclick.local import find_both
    from aaiclick.orchestration.loops import cleanup
    from aaiclick.store import tables

    async def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    {patch}
    asyncio.run(cleanup.PgCleanupWorker().run_once())
"""


@pytest.mark.parametrize(
    ("patch", "left"), [("cleanup.drop_marked = die", 3), ("tables.forget_tables = die", 0)], ids=["marked", "dropped"]
)
async def test_a_cleanup_that_is_killed_is_finished_by_the_next(servers, patch, left):
    names = await unused(servers, 3)
    process = servers.script(DIES.format(patch=patch))
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
    process.stdout.close()
    assert len(await servers.tables()) == left
    assert set(await servers.counts()) == set(names)
    assert await PgCleanupWorker().run_once() == 0  # somebody may be at it
    assert await PgCleanupWorker(reclaim_seconds=0).run_once() == 3
    assert (await servers.tables(), await servers.counts()) == (set(), {})


@pytest.fixture
def own_stack(tmp_path):
    lease = Lease(Home(tmp_path / "home"), 20)
    lease.require("postgres", "clickhouse")
    yield lease
    lease.close()
    ask(Home(tmp_path / "home"), {"op": "stop"})


async def test_clickhouse_killed_during_a_cleanup_delays_it(own_stack, tmp_path):
    postgres, clickhouse = own_stack.postgres(), own_stack.clickhouse()
    await ensure_current(postgres)
    db = await connect(postgres)
    try:
        await db.execute("INSERT INTO table_refcounts (table_name) SELECT 't' || n FROM generate_series(1, 400) AS n")
        worker = PgCleanupWorker(postgres=postgres, clickhouse=clickhouse, reclaim_seconds=0)
        await worker.run_once()
        await db.execute("INSERT INTO table_refcounts (table_name) SELECT 't' || n FROM generate_series(1, 400) AS n")
        status = ask(Home(tmp_path / "home"), {"op": "status"})["status"]
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
