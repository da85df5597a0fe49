"""Objects of a script as arguments: referenced by the job and by the script's session."""

import pytest

from aaiclick.data import DataContext, View, create_object_from_value
from aaiclick.errors import SubmitError
from aaiclick.orchestration import JobStatus, create_job, create_task, enqueue, run_job_test
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.store.tables.table_references import release_jobs

received: list[object] = []


async def read(values, more=None) -> None:
    received.append(await values.data())


@pytest.fixture(autouse=True)
def _empty():
    received.clear()


async def test_a_job_outlives_the_context_of_its_arguments(servers):
    async with DataContext(servers.clickhouse):
        values = await create_object_from_value([1, 2, 3])
        job = await create_job("reads", create_task(read, {"values": View(values, 1), "more": {"in": [values]}}))
    assert await PgCleanupWorker().run_once() == 0
    assert run_job_test(job).status is JobStatus.COMPLETED
    assert received == [[2, 3]]
    assert await PgCleanupWorker().run_once() == 1
    assert await servers.tables() == set()


async def test_the_context_outlives_the_job(servers):
    async with DataContext(servers.clickhouse):
        values = await create_object_from_value([1, 2, 3])
        job = await create_job("reads", create_task(read, {"values": values}))
        run_job_test(job)
        await release_jobs(servers.db, [job.id])
        assert await PgCleanupWorker().run_once() == 0
        assert await values.data() == [1, 2, 3]
        assert await servers.owners(values.table_id) == {"SESSION"}
    assert await PgCleanupWorker().run_once() == 1
    assert await servers.tables() == set()


async def test_failed_submit_leaves_the_object_to_its_context(servers):
    async with DataContext(servers.clickhouse):
        values = await create_object_from_value([1])
        task = create_task(read, {"values": values, "more": {"object_type": "object", "table_id": "t7"}})
        with pytest.raises(SubmitError, match="table t7 as argument, which is released or unknown"):
            await create_job("reads", task)
    assert await servers.tables() == set()
    assert await servers.counts() == {}


async def test_repeated_submit_adds_one_reference(servers):
    for _ in range(2):
        async with DataContext(servers.clickhouse):
            values = await create_object_from_value([1])
            await create_job("reads", create_task(read, {"values": values}), idempotency_key="k")
    await PgCleanupWorker().run_once()
    assert len(await servers.tables()) == 1
    assert list((await servers.counts()).values()) == [1]


async def test_an_item_holds_its_arguments(servers):
    async with DataContext(servers.clickhouse):
        values = await create_object_from_value([1])
        await enqueue("reads", {"values": values})
    await PgCleanupWorker().run_once()
    assert await servers.owners(values.table_id) == {"TASK"}
    with pytest.raises(SubmitError, match="item of type 'reads' has an Object of table t7 as argument"):
        await enqueue("reads", {"values": {"object_type": "object", "table_id": "t7"}})
