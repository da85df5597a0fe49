"""Public names of the source documents, called as documented."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from aaiclick.errors import ConflictError, NotFoundError, SubmitError
from aaiclick.orchestration import (
    Context,
    Dependency,
    Group,
    Job,
    JobStatus,
    OrchContext,
    Task,
    TaskStatus,
    Worker,
    add_task_to_job,
    cancel_job,
    create_job,
    create_task,
    deregister_worker,
    get_job,
    get_orch_context_session,
    get_task,
    register_worker,
    run_job_test,
    worker_heartbeat,
)


def succeed() -> int:
    return 7


def fail() -> None:
    raise ValueError("broken")


@pytest.fixture(autouse=True)
def environment(aaiclick_env) -> None:
    """Empty databases of both servers."""


async def test_select_reads_jobs_tasks_groups_dependencies_and_workers():
    first, second = create_task("m.first", priority=2), create_task("m.second")
    group = Group("both", [second])
    first >> group
    async with OrchContext():
        job = await create_job("nightly", [first, group, second])
        worker = await register_worker("host", 1)
        async with get_orch_context_session() as session:
            jobs = (await session.execute(select(Job))).scalars().all()
            assert [(row.id, row.name, row.status) for row in jobs] == [(job.id, "nightly", JobStatus.PENDING)]
            tasks = (await session.scalars(select(Task).where(Task.priority > 1))).all()
            assert [(row.id, row.entrypoint, row.status) for row in tasks] == [(first.id, "m.first", "PENDING")]
            names = select(Task.id, Job.name).join(Job, Task.job_id == Job.id).order_by(Task.id)
            assert (await session.execute(names)).all() == [(first.id, "nightly"), (second.id, "nightly")]
            assert (await session.scalars(select(Group.name).where(Group.job_id == job.id))).all() == ["both"]
            edges = (await session.scalars(select(Dependency))).all()
            assert [(edge.previous_id, edge.previous_type, edge.next_id, edge.next_type) for edge in edges] == [
                (first.id, "task", group.id, "group")
            ]
            assert (await session.scalars(select(Worker).where(Worker.hostname == "host"))).one().id == worker.id
            counted = select(Job.status, func.count()).group_by(Job.status).having(func.count() > 0)
            assert (await session.execute(counted)).all() == [(JobStatus.PENDING, 1)]


async def test_select_filters_by_a_column_that_the_class_lacks():
    async with OrchContext():
        await create_job("nightly", "m.f")
        async with get_orch_context_session() as session:
            assert (await session.scalars(select(Task.id).where(Task.dedupe_key.is_not(None)))).all() == []
            with pytest.raises(AttributeError, match="colour"):
                select(Task.colour)


async def test_context_that_is_not_entered_applies_tasks():
    job = await create_job("grows", "m.f")
    context = Context(job_id=job.id)
    extract, transform, load = (
        Task(entrypoint=f"myapp.{name}", kwargs={}) for name in ("extract", "transform", "load")
    )
    extract >> transform >> load
    assert await context.apply([extract, transform, load]) == [extract, transform, load]
    assert (await get_job(job.id)).total_tasks == 4
    one, other = create_task("m.a"), create_task("m.b")
    one >> other >> one
    with pytest.raises(SubmitError, match=r"m\.a.*m\.b|m\.b.*m\.a"):
        await context.apply([one, other])
    assert (await get_job(job.id)).total_tasks == 4


def test_context_is_the_orchestration_context():
    assert Context is OrchContext


@pytest.mark.parametrize(("callback", "status"), [(succeed, JobStatus.COMPLETED), (fail, JobStatus.FAILED)])
async def test_run_job_test_updates_the_given_job(callback, status):
    job = await create_job("my_job", create_task(callback, max_attempts=1))
    assert job.status is JobStatus.PENDING
    ended = run_job_test(job)
    assert (job.status, job.open_tasks) == (status, 0)
    assert job.completed_at is not None
    assert ended == job == await get_job(job.id)


async def test_task_has_claimed_at():
    task = create_task(succeed)
    assert task.claimed_at is None
    run_job_test(await create_job("claimed", task))
    done = await get_task(task.id)
    assert done.status is TaskStatus.COMPLETED
    assert done.created_at <= done.claimed_at <= done.started_at <= done.completed_at


async def test_a_heartbeat_of_an_unknown_worker_is_an_error():
    with pytest.raises(NotFoundError, match="There is no worker 12345"):
        await worker_heartbeat(12345)


async def test_a_heartbeat_of_a_stopped_worker_is_an_error():
    worker = await register_worker(hostname="worker-01", pid=12345)
    await worker_heartbeat(worker.id)
    await deregister_worker(worker.id)
    with pytest.raises(ConflictError, match=f"Worker {worker.id} has stopped"):
        await worker_heartbeat(worker.id)


async def test_task_is_added_with_documented_keywords():
    job = await create_job("grows", "m.f")
    task = await add_task_to_job(job_id=job.id, entrypoint="myapp.process", kwargs={"data": "tbl_xyz"})
    assert (await get_task(task.id)).kwargs == {"data": "tbl_xyz"}
    assert await cancel_job(job.id)
