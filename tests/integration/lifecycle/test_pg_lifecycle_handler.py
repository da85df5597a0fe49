"""PgLifecycleHandler: operations from any thread are written in order, also after a lost connection."""

import asyncio
import threading

import pytest

from aaiclick.data import DataContext, create_object_from_value, delete_object, open_reference
from aaiclick.data.errors import ObjectNotFoundError
from aaiclick.errors import LeaseLost
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.pg_lifecycle import PgLifecycleHandler
from aaiclick.store.tables import table_references
from tests.integration.lifecycle.conftest import new_table, until


@pytest.fixture
async def handler(servers):
    handler = PgLifecycleHandler(servers.postgres)
    await handler.start()
    yield handler
    await handler.stop()


async def test_counts_are_written_and_drained_on_stop(servers):
    handler = PgLifecycleHandler(servers.postgres)
    await handler.start()
    for _ in range(3):
        handler.incref("t5")
    handler.decref("t5")
    handler.incref("t6")
    handler.decref("t6")
    await handler.stop()
    assert await servers.counts() == {"t5": 2, "t6": 0}


async def test_counting_is_thread_safe(servers, handler):
    def count() -> None:
        for _ in range(200):
            handler.incref("t5")
            handler.decref("t5")
        handler.incref("t5")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await handler.stop()
    assert await servers.counts() == {"t5": 8}


async def test_lost_connection_loses_no_count(servers, handler):
    await handler.reserve("t5")
    await servers.db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                             "AND datname = current_database()")  # fmt: skip
    await handler.reserve("t5")
    await handler.reserve("t6")
    assert await servers.counts() == {"t5": 2, "t6": 1}


async def test_closed_context_leaves_no_references(servers, handler):
    async with DataContext(servers.clickhouse, lifecycle=handler):
        first = await create_object_from_value([1, 2, 3])
        second = await (first + 1)
        assert set(await servers.counts()) == await servers.tables() == {first.table_id, second.table_id}
    await handler.stop()
    assert set((await servers.counts()).values()) == {0}
    assert await PgCleanupWorker().run_once() == 2
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_attempt_writes_only_the_first_and_last_reference(servers, handler):
    attempt = handler.for_attempt(await servers.attempt())
    table = new_table()
    await attempt.reserve(table)
    attempt.incref(table)
    attempt.decref(table)
    assert await servers.counts() == {table: 1}
    attempt.decref(table)
    await until(lambda: _is(servers, {table: 0}))


async def _is(servers, expected) -> bool:
    return await servers.counts() == expected


async def test_ended_attempt_writes_nothing_and_a_lost_one_is_refused(servers, handler):
    lease = await servers.attempt()
    attempt = handler.for_attempt(lease)
    table = new_table()
    await attempt.reserve(table)
    attempt.seal()
    attempt.decref(table)
    await servers.acknowledge(releases=[lease])
    with pytest.raises(LeaseLost, match=f"Attempt 1 of task {lease.task_id} has lost its lease"):
        await handler.for_attempt(lease).reserve(new_table())
    assert await servers.counts() == {table: 0}


async def test_opening_a_dropped_table_raises_an_error(servers, handler):
    lease = await servers.attempt()
    async with DataContext(servers.clickhouse, lifecycle=handler):
        form = (await create_object_from_value([1])).to_dict()
        async with DataContext(servers.clickhouse, lifecycle=handler.for_attempt(lease)) as reader:
            assert await (await open_reference(form)).data() == [1]
            reader.lifecycle.seal()  # type: ignore[attr-defined]
        await servers.acknowledge(releases=[lease])
    await until(lambda: _is(servers, {form["table_id"]: 0}))
    assert list(await table_references.mark_tables_dropping(servers.db)) == [form["table_id"]]
    (claim,) = await servers.claim()
    async with DataContext(servers.clickhouse, lifecycle=handler.for_attempt(claim.lease)):
        with pytest.raises(ObjectNotFoundError, match="was released and is dropped"):
            await open_reference(form)


async def test_a_name_holds_its_table_until_it_is_deleted(servers, handler):
    async with DataContext(servers.clickhouse, lifecycle=handler):
        await create_object_from_value([1], name="sales")
        assert await servers.owners("named_sales") == {"NAME"}
        await create_object_from_value([2], name="sales", replace=True)
    await handler.stop()
    await PgCleanupWorker().run_once()
    assert await servers.tables() == {"named_sales"}
    await handler.start()
    async with DataContext(servers.clickhouse, lifecycle=handler):
        await delete_object("sales")
    assert (await servers.tables(), await servers.counts()) == (set(), {})


async def test_plain_context_does_not_drop_tables_of_other_owners(servers, handler):
    async with DataContext(servers.clickhouse, lifecycle=handler):
        numbers = await create_object_from_value([1, 2])
        async with DataContext(servers.clickhouse):
            assert await (await open_reference(numbers.to_dict())).data() == [1, 2]
        assert await numbers.data() == [1, 2]
