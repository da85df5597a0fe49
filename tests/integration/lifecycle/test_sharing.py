"""Objects of a script given to tasks: held by the job and by the script, dropped when neither needs them."""

import pytest

from aaiclick.data import DataContext, View, create_object_from_value
from aaiclick.errors import SubmitError
from aaiclick.orchestration import JobStatus, create_job, create_task, enqueue, run_job_test
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.store.tables import release_jobs

seen: list[object] = []


async def read(values, more=None) -> None:
    seen.append(await values.data())


@pytest.fixture(autouse=True)
def _empty():
    seen.clear()


async def test_a_job_outlives_the_context_of_its_arguments(servers):
    async with DataContext(servers.clickhouse):
        values = await create_object_from_value([1, 2, 3])
        job = await create_job("reads", create_task(read, {"values": View(values, 1), "more": {"in": [values]}}))
    assert await PgCleanupWorker().run_once() == 0
    assert run_job_test(job).status is JobStatus.COMPLETED
    assert seen == [[2, 3]]
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


async def test_a_submit_that_fails_leaves_the_object_to_its_context(servers):
    async with DataContext(servers.clickhouse):
        values = await create_object_from_value([1])
        task = create_task(read, {"values": values, "more": {"object_type": "object", "table_id": "t7"}})
        with pytest.raises(SubmitError, match="t7, which is released or unknown"):
            await create_job("reads", task)
    assert await servers.tables() == set()
    assert await servers.counts() == {}


async def test_the_same_submit_twice_takes_one_reference(servers):
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
    with pytest.raises(SubmitError, match="item of type 'reads' is given the Object in table t7"):
        await enqueue("reads", {"values": {"object_type": "object", "table_id": "t7"}})
