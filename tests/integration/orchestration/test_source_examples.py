"""Examples of the source documents, rewritten."""

from __future__ import annotations

import asyncio

import pytest

from aaiclick.data import DataContext, Object, View, create_object_from_value, open_reference
from aaiclick.operators import map as map_rows
from aaiclick.orchestration import (
    Group,
    OrchContext,
    Task,
    TaskStatus,
    create_job,
    create_task,
    get_current_context,
    get_job,
    get_task,
    run_job_test,
)
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper
from aaiclick.orchestration.pg_lifecycle import PgLifecycleHandler

HERE = "tests.integration.orchestration.test_source_examples"


async def compute_sum(data: Object):
    values = await data.data()
    return sum(values)


async def process_data(data: Object):
    return [x * 2 for x in await data.data()]


async def log_summary(data: Object):
    count = await data.count()
    print(f"Processed {count} rows")


async def same(data: Object) -> Object:
    return data


def nothing() -> None:
    """A step."""


async def double(chunk: View):
    return {"value": [row * 2 for row in (await chunk.data())["value"]]}


async def load_numbers():
    return {"value": list(range(25))}


async def spread(data: Object):
    """A running task adds tasks for chunks to its own job, and returns the handle to their results."""
    return await map_rows(f"{HERE}.double", data, chunk_rows=10)


async def add_follow_up():
    await get_current_context().apply([create_task(f"{HERE}.nothing"), create_task(f"{HERE}.nothing")])


@pytest.fixture(autouse=True)
def environment(aaiclick_env, tmp_path, monkeypatch):
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))


async def result_of(task: Task):
    done = await get_task(task.id)
    assert done.status is TaskStatus.COMPLETED, done.error
    if done.result is None:
        return None
    async with DataContext():
        return await (await open_reference(done.result)).data()


async def test_returned_values_become_objects():
    async with DataContext():
        numbers = await create_object_from_value([1, 2, 3])
        kwargs = {"data": {"object_type": "object", "table_id": numbers.table_id}}
        tasks = [
            create_task(f"{HERE}.{name}", kwargs) for name in ("compute_sum", "process_data", "log_summary", "same")
        ]
        job = await create_job("returns", tasks)
        run_job_test(job)
    assert [await result_of(task) for task in tasks] == [6, [2, 4, 6], None, [1, 2, 3]]
    passed = await get_task(tasks[3].id)
    assert passed.result == kwargs["data"]  # an Object is stored by reference
    assert set((await get_task(tasks[0].id)).result) == {"object_type", "table_id"}


async def test_serialised_view_is_an_argument():
    async with DataContext():
        numbers = await create_object_from_value(list(range(100)))
        view = {"object_type": "view", "table_id": numbers.table_id, "offset": 10, "limit": 5}
        task = create_task(f"{HERE}.compute_sum", {"data": view})
        filtered = create_task(
            f"{HERE}.compute_sum", {"data": {**view, "offset": 0, "limit": 50, "where": "value > 45"}}
        )
        run_job_test(await create_job("views", [task, filtered]))
        assert isinstance(await open_reference(view), View)
    assert await result_of(task) == 10 + 11 + 12 + 13 + 14
    assert await result_of(filtered) == sum(range(46, 96))


async def test_both_contexts_work_together_and_alone():
    async with DataContext() as data:
        assert await (await create_object_from_value([1])).count() == 1
        async with OrchContext() as orch:
            job = await create_job("both", f"{HERE}.nothing")
            assert get_current_context() is orch
        assert data.is_open
    async with OrchContext():
        assert (await get_job(job.id)).name == "both"


async def test_apply_accepts_items_and_lists_and_is_idempotent():
    async with OrchContext() as context:
        job = await create_job("grows", f"{HERE}.nothing")
        task1, task2, group1 = create_task(f"{HERE}.nothing"), create_task(f"{HERE}.nothing"), Group(name="processing")
        assert await context.apply(task1, job_id=job.id) is task1
        assert await context.apply([task1, task2, group1], job_id=job.id) == [task1, task2, group1]
        assert (await get_job(job.id)).total_tasks == 3
        assert task1.job_id == task2.job_id == group1.job_id == job.id


async def test_a_complex_graph_runs_in_order():
    names = ["source", "transform1", "transform2", "final"]
    source, transform1, transform2, final = (Task(entrypoint=f"{HERE}.nothing", name=name) for name in names)
    extract = Group("extract", [Task(f"{HERE}.nothing"), Task(f"{HERE}.nothing")])
    load = Group("load", [Task(f"{HERE}.nothing")])
    source >> extract >> [transform1, transform2]
    [transform1, transform2] >> load >> final
    job = await create_job("graph", [source, extract, transform1, transform2, load, final])
    assert run_job_test(job).status == "COMPLETED"
    ended = {
        name: await get_task(task.id) for name, task in zip(names, (source, transform1, transform2, final), strict=True)
    }
    inside = [await get_task(member.id) for member in (*extract.members, *load.members)]
    assert ended["source"].completed_at <= min(task.started_at for task in inside)
    assert max(task.completed_at for task in inside[:2]) <= ended["transform1"].started_at
    assert max(ended["transform1"].completed_at, ended["transform2"].completed_at) <= inside[2].started_at
    assert inside[2].completed_at <= ended["final"].started_at


async def test_a_running_task_maps_over_an_object():
    numbers = create_task(f"{HERE}.load_numbers")
    spreading = create_task(f"{HERE}.spread", {"data": numbers})
    job = run_job_test(await create_job("map", spreading))
    assert job.status == "COMPLETED", job.error
    assert await result_of(spreading) == {"value": [n * 2 for n in range(25)]}


async def test_a_running_task_adds_tasks_to_its_job():
    job = run_job_test(await create_job("adds", create_task(f"{HERE}.add_follow_up")))
    assert (job.status, job.total_tasks) == ("COMPLETED", 3)


async def test_lifecycle_handlers_start_and_stop_as_documented():
    handler, cleanup = PgLifecycleHandler(), PgCleanupWorker(poll_interval=0.05)
    sweeper = TableSweeper(max_age_seconds=3600.0, poll_interval=300.0)
    for part in (handler, cleanup, sweeper):
        await part.start()
    try:
        async with DataContext(lifecycle=handler) as data:
            numbers = await create_object_from_value([1, 2])
            name = numbers.table_id
            assert await numbers.data() == [1, 2]
            assert data.lifecycle is handler
        del numbers
        async with DataContext() as data, asyncio.timeout(100):
            gone = "SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = {t:String}"
            while True:
                if not (await data.client.read_text(gone, {"t": name})).column(0)[0].as_py():
                    break
                await asyncio.sleep(0.02)
    finally:
        for part in (sweeper, cleanup, handler):
            await part.stop()
