"""Killed workers: tables of an attempt are dropped with it, results stay as long as they are needed.

The four scenarios of the plan for lifecycles are here and in `test_table_cleanup` (a cleanup that crashes).
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
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper
from aaiclick.orchestration.worker.result_publishing import ResultPublisher
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.tables import table_references
from tests.integration.lifecycle.conftest import new_table, until
from tests.integration.worker.conftest import WorkerEnvironment

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
def worker_env(aaiclick_stack, servers, gateway, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    variables = gateway.environment | {"AAICLICK_MAX_LITERAL_BYTES": "-1"}
    env = WorkerEnvironment(servers.postgres, tmp_path, variables, aaiclick_stack)
    yield env
    for worker in env.workers:
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
    assert [violation for violation in await check_invariants(servers.db) if violation.invariant == "I7"] == []


async def result_of(row) -> str:
    return json.loads(row["result"])["table_id"]


async def test_process_killed_before_publish_leaves_no_table(servers, worker_env, tmp_path):
    """Includes a crash with references that were not released."""
    task = await worker_env.enqueue("die_after_create", json.dumps({"path": str(tmp_path / "died")}))
    fails = await worker_env.enqueue("fail_after_create", max_attempts=1)
    worker_env.start()
    row = await worker_env.wait_until(task, lambda row: row["status"] == "COMPLETED", 60)
    await worker_env.wait_until(fails, lambda row: row["status"] == "DEAD_LETTER", 60)
    assert row["attempt"] == 2
    table = await result_of(row)
    counts = await servers.counts()
    assert counts.pop(table) == 1
    assert set(counts.values()) <= {0}  # both tables of the first attempt, and that of the failed task
    await PgCleanupWorker().run_once()
    assert (await servers.tables(), await servers.counts()) == ({table}, {table: 1})


async def test_tables_of_a_dead_worker_are_released_by_the_reaper(servers, worker_env, tmp_path):
    """Supervisor and process are killed at once, so nothing is released."""
    path = tmp_path / "made"
    await worker_env.enqueue("make_and_wait", json.dumps({"path": str(path)}))
    worker = worker_env.start()
    await until(lambda: asyncio.to_thread(path.exists))
    children = worker.children()
    os.kill(worker.process.pid, signal.SIGSTOP)
    for child in children:
        child.kill()
    worker.process.kill()
    worker.wait()
    (lost,) = await servers.tables()
    assert await PgCleanupWorker().run_once() == 0  # the lease is still valid
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


async def test_scenario_1_table_without_a_reference_is_swept(servers, monkeypatch):
    await killed(servers, CREATES_ALONE)
    assert len(await servers.tables()) == 1
    assert await servers.counts() == {}
    assert await TableSweeper().run_once() == 0  # it is too new
    monkeypatch.setattr("aaiclick.orchestration.loops.table_sweeper.SILENT_SECONDS", 0)
    await until(lambda: TableSweeper(max_age_seconds=0).run_once())
    assert await servers.tables() == set()


LOSES_DECREFS = """
    import asyncio, os, signal
    from aaiclick.data import DataContext, create_object_from_value
    from aaiclick.orchestration.pg_lifecycle import PgLifecycleHandler

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
    from aaiclick.orchestration.pg_lifecycle import PgLifecycleHandler
    from aaiclick.store.engine.leases_and_outcomes import Lease
    from aaiclick.store.tables import table_references

    lease = Lease({task_id}, {attempt}, UUID("{token}"))

    async def main():
        handler = PgLifecycleHandler(find_postgres())
        await handler.start()
        attempt = handler.for_attempt(lease)
        await attempt.hold("{first}")
        hold_tables = table_references.hold_tables
        async def die(connection, requests):
            await hold_tables(connection, requests[:1])
            os.kill(os.getpid(), signal.SIGKILL)
        table_references.hold_tables = die
        attempt.decref("{first}")
        attempt.incref("{second}")
        attempt.incref("{third}")
        await asyncio.sleep(60)

    asyncio.run(main())
"""


async def test_scenario_4_partial_batch_drops_no_other_table(servers):
    await servers.submit("mine", "theirs")
    kept_lease, released_lease = [claim.lease for claim in await servers.claim()]
    names = [await servers.create(new_table()) for _ in range(3)]
    await table_references.reserve_tables(servers.db, [(name, kept_lease) for name in names])
    fields = dict(zip(("first", "second", "third"), names, strict=True))
    lease = {"task_id": released_lease.task_id, "attempt": released_lease.attempt, "token": released_lease.token}
    await killed(servers, FLUSHES_HALF.format(**fields, **lease))
    assert await servers.counts() == {names[0]: 1, names[1]: 2, names[2]: 1}
    for _ in range(3):  # releasing the dead attempt is idempotent
        await table_references.release_attempts(servers.db, [released_lease])
    assert await servers.counts() == dict.fromkeys(names, 1)
    assert await PgCleanupWorker().run_once() == 0
    assert await servers.tables() == set(names)


async def make(number: int):
    await (await create_object_from_value([number]) + 1)  # a table between
    return await create_object_from_value([number])


async def test_released_job_of_100_tasks_leaves_no_tables(servers):
    job = await create_job("many", [create_task(make, {"number": n}) for n in range(100)])
    assert run_job_test(job).status is JobStatus.COMPLETED
    await PgCleanupWorker().run_once()
    rows = await servers.db.fetch("SELECT result FROM tasks")
    assert await servers.tables() == {json.loads(row["result"])["table_id"] for row in rows}
    async with DataContext(servers.clickhouse):
        values = [await (await open_reference(json.loads(row["result"]))).data() for row in rows[:3]]
    assert len(values) == 3
    assert await table_references.release_jobs(servers.db, [job.id]) == 100
    assert await PgCleanupWorker().run_once() == 100
    assert (await servers.tables(), await servers.counts()) == (set(), {})


def numbers() -> list[int]:
    return [1, 2, 3]


async def nested() -> dict[str, object]:
    return {"made": (await create_object_from_value([1, 2, 3])) + 1}


@pytest.mark.parametrize("function", [numbers, nested])
async def test_returned_table_is_kept_until_the_completion_holds_it(servers, monkeypatch, function):
    """Also if publishing takes long: only the result refers to the table then."""
    publish = ResultPublisher._publish_result

    async def slowly(self, value, data):
        published = await publish(self, value, data)
        gc.collect()
        await create_object_from_value(0)  # earlier operations have been written
        await PgCleanupWorker().run_once()
        return published

    monkeypatch.setattr(ResultPublisher, "_publish_result", slowly)
    job = await create_job("returned", create_task(function))
    assert run_job_test(job).status is JobStatus.COMPLETED
    await PgCleanupWorker().run_once()
    tables = await servers.tables()
    assert len(tables) == 1
    assert {row["table_name"] for row in await servers.db.fetch("SELECT table_name FROM table_references")} == tables


async def test_task_without_objects_writes_no_references(servers):
    job = await create_job("plain", create_task("tests.integration.lifecycle.test_worker_crashes.nothing"))
    before = await servers.db.fetchval("SELECT n_tup_ins FROM pg_stat_all_tables WHERE relname = 'table_references'")
    assert run_job_test(job).status is JobStatus.COMPLETED
    assert seen_handlers
    assert all(handler._writer._connection is None for handler in seen_handlers)
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


async def test_result_of_a_returned_task_is_held_by_both_tasks(servers):
    """The result of `spread` is the table of the last task of a map, which it must hold as well."""
    handed_on = create_task(spread)
    job = await create_job("map", [handed_on, create_task(total, {"rows": handed_on})])
    assert run_job_test(job).status is JobStatus.COMPLETED
    result = json.loads(await servers.db.fetchval("SELECT result FROM tasks WHERE id = $1", handed_on.id))
    assert "RESULT" in await servers.owners(result["table_id"])
    assert len(await servers.tables()) > 2
    await PgCleanupWorker().run_once()
    assert len(await servers.tables()) == 1  # the total has no dependents
    last = create_task(spread)
    alone = await create_job("map alone", last)
    assert run_job_test(alone).status is JobStatus.COMPLETED
    await PgCleanupWorker().run_once()
    result = json.loads(await servers.db.fetchval("SELECT result FROM tasks WHERE id = $1", last.id))
    assert len(await servers.tables()) == 2
    async with DataContext(servers.clickhouse):
        rows = await (await open_reference(result)).data()
    assert list(rows["value"]) == [2 * n for n in range(1_000)]
