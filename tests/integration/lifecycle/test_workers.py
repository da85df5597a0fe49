"""Real workers, kill -9: what an attempt made goes with it, what a task returned stays for as long as it is needed.

The four scenarios of the plan for lifecycles are here and in `test_cleanup` (a cleanup that crashes).
"""

import asyncio
import contextlib
import gc
import json
import os
import signal
import textwrap

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaiclick.data import DataContext, create_object_from_value, open_reference
from aaiclick.operators import map  # noqa: A004
from aaiclick.orchestration import JobStatus, create_job, create_task, run_job_test
from aaiclick.orchestration.loops import reaper
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper
from aaiclick.orchestration.worker.executor import Executor
from aaiclick.store import tables
from aaiclick.store.doctor import check_invariants
from tests.integration.lifecycle.conftest import new_table, until
from tests.integration.worker.conftest import Bench

TASKS = """
import asyncio, os, signal
from aaiclick.data import create_object_from_value

async def die_after_create(path):
    made = await create_object_from_value([1, 2, 3])
    scratch = await (made + 1)
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return made

async def make_and_wait(path):
    made = await create_object_from_value([1, 2, 3])
    open(path, "w").close()
    await asyncio.sleep(600)

async def fail_after_create():
    made = await create_object_from_value([1, 2, 3])
    raise ValueError("no luck")
"""


@pytest.fixture
def bench(servers, way, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    made = Bench(servers.postgres, tmp_path, way.environment)
    yield made
    for worker in made.workers:
        if worker.process.poll() is None:
            for child in psutil.Process(worker.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            worker.process.kill()
            worker.process.wait()
        worker.process.stderr.close()


@pytest.fixture(autouse=True)
async def _invariants(servers):
    yield
    assert [each for each in await check_invariants(servers.db) if each.invariant == "I7"] == []


async def result_of(row) -> str:
    return json.loads(row["result"])["table_id"]


async def test_a_process_killed_between_create_and_publish_leaves_nothing(servers, bench, tmp_path):
    """Also: a crash with references that were never given back."""
    task = await bench.enqueue("die_after_create", json.dumps({"path": str(tmp_path / "died")}))
    fails = await bench.enqueue("fail_after_create", max_attempts=1)
    bench.start()
    row = await bench.until(task, lambda row: row["status"] == "COMPLETED", 60)
    await bench.until(fails, lambda row: row["status"] == "DEAD_LETTER", 60)
    assert row["attempt"] == 2
    table = await result_of(row)
    counts = await servers.counts()
    assert counts.pop(table) == 1
    assert set(counts.values()) <= {0}  # both tables of the first attempt, and the failed one's
    await PgCleanupWorker().run_once()
    assert (await servers.tables(), await servers.counts()) == ({table}, {table: 1})


async def test_a_worker_that_vanishes_loses_its_tables_to_the_reaper(servers, bench, tmp_path):
    """Supervisor and process killed at once: nobody is left to say anything."""
    path = tmp_path / "made"
    await bench.enqueue("make_and_wait", json.dumps({"path": str(path)}))
    worker = bench.start()
    await until(lambda: asyncio.to_thread(path.exists))
    children = worker.children()
    os.kill(worker.process.pid, signal.SIGSTOP)
    for child in children:
        child.kill()
    worker.process.kill()
    worker.wait()
    (lost,) = await servers.tables()
    assert await PgCleanupWorker().run_once() == 0  # the lease still holds
    later = await servers.db.fetchval("SELECT now() + interval '1 hour'")
    assert (await reaper.run_once(servers.db, now=later))["tasks"] == 1
    assert await servers.counts() == {lost: 0}
    assert await PgCleanupWorker().run_once() == 1
    assert (await servers.tables(), await servers.counts()) == (set(), {})


CREATES_ALONE = """
    import asyncio, os, signal
    from aaiclick.data import DataContext, create_object_from_value

    async def main():
        async with DataContext():
            await create_object_from_value([1, 2, 3])
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


async def killed(servers, text: str) -> None:
    process = servers.script(text)
    assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
    process.stdout.close()


async def test_scenario_1_a_table_whose_count_was_never_written_is_swept(servers, monkeypatch):
    await killed(servers, CREATES_ALONE)
    assert len(await servers.tables()) == 1
    assert await servers.counts() == {}
    assert await TableSweeper().run_once() == 0  # it is young
    monkeypatch.setattr("aaiclick.orchestration.loops.sweeper.SILENT_SECONDS", 0)
    await until(lambda: TableSweeper(max_age_seconds=0).run_once())
    assert await servers.tables() == set()


LOSES_DECREFS = """
    import asyncio, os, signal
    from aaiclick.data import DataContext, create_object_from_value
    from aaiclick.orchestration.lifecycle import PgLifecycleHandler

    async def main():
        handler = PgLifecycleHandler()
        await handler.start()
        async with DataContext(lifecycle=handler):
            made = await create_object_from_value([1, 2, 3])
            del made
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


async def test_scenario_2_a_lost_decref_delays_the_drop(servers):
    await killed(servers, LOSES_DECREFS)
    (table,) = await servers.tables()
    assert await servers.counts() == {table: 1}
    assert await PgCleanupWorker().run_once() == 0
    await servers.db.execute("UPDATE table_sessions SET seen_at = now() - interval '61 minutes'")
    assert await PgCleanupWorker().run_once() == 1
    assert await servers.tables() == set()


FLUSHES_HALF = """
    import asyncio, os, signal, sys
    from uuid import UUID
    from aaiclick.local import find_postgres
    from aaiclick.orchestration.lifecycle import PgLifecycleHandler
    from aaiclick.store import tables
    from aaiclick.store.leases import Lease

    lease = Lease({task_id}, {attempt}, UUID("{token}"))

    async def main():
        handler = PgLifecycleHandler(find_postgres())
        await handler.start()
        attempt = handler.for_attempt(lease)
        await attempt.hold("{first}")
        hold = tables.hold
        async def die(connection, wishes):
            await hold(connection, wishes[:1])
            os.kill(os.getpid(), signal.SIGKILL)
        tables.hold = die
        attempt.decref("{first}")
        attempt.incref("{second}")
        attempt.incref("{third}")
        await asyncio.sleep(60)

    asyncio.run(main())
"""


async def test_scenario_4_a_half_written_batch_costs_nobody_else_a_table(servers):
    await servers.submit("mine", "theirs")
    mine, theirs = [claim.lease for claim in await servers.claim()]
    names = [await servers.create(new_table()) for _ in range(3)]
    await tables.reserve(servers.db, [(name, mine) for name in names])
    fields = dict(zip(("first", "second", "third"), names, strict=True))
    lease = {"task_id": theirs.task_id, "attempt": theirs.attempt, "token": theirs.token}
    await killed(servers, FLUSHES_HALF.format(**fields, **lease))
    assert await servers.counts() == {names[0]: 1, names[1]: 2, names[2]: 1}
    for _ in range(3):  # however often the dead attempt is released
        await tables.release_attempts(servers.db, [theirs])
    assert await servers.counts() == dict.fromkeys(names, 1)
    assert await PgCleanupWorker().run_once() == 0
    assert await servers.tables() == set(names)


async def make(number: int):
    await (await create_object_from_value([number]) + 1)  # a table between
    return await create_object_from_value([number])


async def test_a_job_of_100_tasks_with_an_object_each_leaves_nothing_once_released(servers):
    made = await create_job("many", [create_task(make, {"number": n}) for n in range(100)])
    assert run_job_test(made).status is JobStatus.COMPLETED
    await PgCleanupWorker().run_once()
    rows = await servers.db.fetch("SELECT result FROM tasks")
    assert await servers.tables() == {json.loads(row["result"])["table_id"] for row in rows}
    async with DataContext(servers.clickhouse):
        values = [await (await open_reference(json.loads(row["result"]))).data() for row in rows[:3]]
    assert len(values) == 3
    assert await tables.release_jobs(servers.db, [made.id]) == 100
    assert await PgCleanupWorker().run_once() == 100
    assert (await servers.tables(), await servers.counts()) == (set(), {})


def numbers() -> list[int]:
    return [1, 2, 3]


async def nested() -> dict[str, object]:
    return {"made": (await create_object_from_value([1, 2, 3])) + 1}


@pytest.mark.parametrize("function", [numbers, nested])
async def test_what_a_task_returns_is_not_dropped_before_its_completion_holds_it(servers, monkeypatch, function):
    """However long it takes from the end of the function to that: nothing but the result refers to the table then."""
    publish = Executor._publish

    async def slowly(self, value):
        published = await publish(self, value)
        gc.collect()
        await create_object_from_value(0)  # PostgreSQL has heard of all that was before
        await PgCleanupWorker().run_once()
        return published

    monkeypatch.setattr(Executor, "_publish", slowly)
    made = await create_job("returned", create_task(function))
    assert run_job_test(made).status is JobStatus.COMPLETED
    await PgCleanupWorker().run_once()
    kept = await servers.tables()
    assert len(kept) == 1
    assert {row["table_name"] for row in await servers.db.fetch("SELECT table_name FROM table_references")} == kept


async def test_a_task_without_objects_says_nothing_about_tables(servers):
    made = await create_job("plain", create_task("tests.integration.lifecycle.test_workers.nothing"))
    before = await servers.db.fetchval("SELECT n_tup_ins FROM pg_stat_all_tables WHERE relname = 'table_references'")
    assert run_job_test(made).status is JobStatus.COMPLETED
    assert seen_handlers
    assert all(handler._writer._line is None for handler in seen_handlers)
    assert before == await servers.db.fetchval(
        "SELECT n_tup_ins FROM pg_stat_all_tables WHERE relname = 'table_references'"
    )


seen_handlers: list[object] = []


async def nothing() -> None:
    from aaiclick.data.context import get_data_context

    seen_handlers.append(get_data_context().lifecycle)


def double(rows: pa.Table) -> pa.Table:
    return pa.table({"value": pc.multiply(rows["value"], 2)})


async def spread():
    return map(double, await create_object_from_value(list(range(1_000))), chunk_rows=100)


async def total(rows) -> int:
    return await rows["value"].sum().data()


async def test_what_a_task_returns_by_another_is_held_by_both_and_the_rest_of_a_map_goes(servers):
    """The result of `spread` is made by the last task of a map: its table is held although it is not its own."""
    handed_on = create_task(spread)
    made = await create_job("map", [handed_on, create_task(total, {"rows": handed_on})])
    assert run_job_test(made).status is JobStatus.COMPLETED
    result = json.loads(await servers.db.fetchval("SELECT result FROM tasks WHERE id = $1", handed_on.id))
    assert "RESULT" in await servers.owners(result["table_id"])
    assert len(await servers.tables()) > 2
    await PgCleanupWorker().run_once()
    assert len(await servers.tables()) == 1  # the total: nothing follows it
    last = create_task(spread)
    alone = await create_job("map alone", last)
    assert run_job_test(alone).status is JobStatus.COMPLETED
    await PgCleanupWorker().run_once()
    kept = json.loads(await servers.db.fetchval("SELECT result FROM tasks WHERE id = $1", last.id))
    assert len(await servers.tables()) == 2
    async with DataContext(servers.clickhouse):
        rows = await (await open_reference(kept)).data()
    assert list(rows["value"]) == [2 * n for n in range(1_000)]
