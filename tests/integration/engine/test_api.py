"""The public Python API on a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from aaiclick import orchestration
from aaiclick.errors import AaiclickError, NotFoundError, SubmitError
from aaiclick.orchestration import (
    Group,
    JobStatus,
    OrchContext,
    Task,
    TaskStatus,
    WorkerStatus,
    add_task_to_job,
    cancel_job,
    create_job,
    create_task,
    deregister_worker,
    enqueue,
    enqueue_many,
    get_current_context,
    get_job,
    get_orch_context_session,
    get_task,
    list_jobs,
    list_workers,
    register_worker,
    retry_failed_tasks,
    worker_heartbeat,
)
from aaiclick.orchestration.gateway import PostgresGateway
from aaiclick.orchestration.task_context import TaskScope, current_scope, enter_scope
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.engine.explain_task import explain_task
from tests.integration.engine.conftest import Engine


@pytest.fixture
async def context(aaiclick_postgres: PostgresEndpoint) -> AsyncIterator[OrchContext]:
    async with OrchContext(endpoint=aaiclick_postgres) as entered:
        yield entered


def test_public_names_are_exported() -> None:
    assert all(hasattr(orchestration, name) for name in orchestration.__all__)


async def test_a_job_with_one_entry(context: OrchContext) -> None:
    job = await create_job("nightly", "myapp.steps.load")
    assert (job.name, job.status, job.total_tasks, job.open_tasks) == ("nightly", JobStatus.PENDING, 1, 1)
    assert await get_job(job.id) == job
    assert [listed.id for listed in await list_jobs(JobStatus.PENDING)] == [job.id]
    assert await list_jobs("RUNNING") == []


async def test_apply_adds_a_graph_and_returns_the_same_items(context: OrchContext, engine: Engine) -> None:
    job = await create_job("job", create_task("m.first"))
    a, b, group = create_task("m.a", {"n": [1, None]}), create_task("m.b"), Group("g")
    group.add(b)
    a >> group
    items = [a, group]
    assert await context.apply(items, job_id=job.id) is items
    assert (a.job_id, b.job_id, b.submitted) == (job.id, job.id, True)
    task = await get_task(b.id)
    assert (task.entrypoint, task.group_id, task.status) == ("m.b", group.id, TaskStatus.PENDING)
    assert (await get_task(a.id)).kwargs == {"n": [1, None]}
    assert await engine.run() == ["m.a m.first", "m.b"]
    assert (await get_job(job.id)).status is JobStatus.COMPLETED
    single = create_task("m.x")
    with pytest.raises(SubmitError, match="is finished"):
        await context.apply(single, job_id=job.id)
    assert not single.submitted


async def test_new_tasks_may_depend_on_submitted_tasks(context: OrchContext, engine: Engine) -> None:
    first = create_task("m.first")
    job = await create_job("job", first)
    second = create_task("m.second")
    first >> second
    await context.apply(second, job.id)
    assert await engine.run() == ["m.first", "m.second"]


async def test_a_result_as_an_argument_is_a_dependency(context: OrchContext, engine: Engine) -> None:
    load = create_task("m.load")
    await create_job("job", create_task("m.clean", {"rows": load}))
    assert await engine.run() == ["m.load", "m.clean"]


async def test_the_context_knows_its_job_and_is_gone_after_use(context: OrchContext) -> None:
    job = await create_job("job", "m.a")
    assert get_current_context() is context
    async with OrchContext(job.id, endpoint=context._endpoint) as inner:
        assert get_current_context() is inner
        task = await inner.apply(create_task("m.b"))
        assert task.job_id == job.id
    assert get_current_context() is context
    with pytest.raises(AaiclickError, match="not entered"):
        await inner.apply(create_task("m.c"))
    with pytest.raises(SubmitError, match="needs a job"):
        await context.apply(create_task("m.c"))


async def test_missing_context_raises_clear_error() -> None:
    with pytest.raises(AaiclickError, match="no OrchContext"):
        get_current_context()


async def test_task_adds_to_own_job_with_its_lease(aaiclick_postgres: PostgresEndpoint, engine: Engine) -> None:
    await engine.submit("a")
    (claim,) = await engine.claim()
    gateway = PostgresGateway(aaiclick_postgres, None).open_attempt(claim)
    scope = TaskScope(claim.lease, claim.org_id, claim.job_id, None, gateway)
    assert current_scope() is None
    enter_scope(scope)
    await get_current_context().apply([create_task("m.more") for _ in range(3)])
    await engine.complete(claim)
    with pytest.raises(AaiclickError, match="lost its lease"):
        await get_current_context().apply(create_task("m.late"))
    await get_current_context().engine.dispose()
    assert await engine.run() == ["m.more m.more m.more"]


async def test_sessions_read_and_write(context: OrchContext) -> None:
    job = await create_job("job", "m.a")
    async with get_orch_context_session() as session:
        assert (await session.execute(text("SELECT name FROM jobs WHERE id = :id"), {"id": job.id})).scalar() == "job"


async def test_cancel_and_retry(context: OrchContext, engine: Engine) -> None:
    job = await create_job("job", [create_task("m.a"), create_task("m.b")])
    claims = await engine.claim(1)
    await engine.fail(*claims, permanent=True)
    await engine.run()
    assert (await get_job(job.id)).status is JobStatus.FAILED
    assert await retry_failed_tasks(job.id) == [claims[0].lease.task_id]
    task = await add_task_to_job(job.id, "m.c", {"data": "x"}, priority=3)
    assert (task.options.priority, task.job_id) == (3, job.id)
    assert await cancel_job(job.id)
    assert (await get_job(job.id)).status is JobStatus.CANCELLED
    assert not await cancel_job(job.id)


@pytest.mark.parametrize("ask", [get_job, get_task, cancel_job, retry_failed_tasks])
async def test_missing_objects_raise_not_found(context: OrchContext, ask) -> None:
    with pytest.raises(NotFoundError, match="There is no"):
        await ask(12345)


async def test_workers_register_and_deregister(context: OrchContext) -> None:
    worker = await register_worker("worker-01", 12345, pool_size=4, version="1", queues=["a"])
    assert (worker.hostname, worker.pid, worker.pool_size, worker.queues) == ("worker-01", 12345, 4, ["a"])
    await worker_heartbeat(worker.id)
    assert [listed.id for listed in await list_workers(WorkerStatus.ACTIVE)] == [worker.id]
    assert await deregister_worker(worker.id)
    assert await list_workers(WorkerStatus.ACTIVE) == []


async def test_plain_items(context: OrchContext, engine: Engine) -> None:
    first = await enqueue("mail", {"to": "a"}, idempotency_key="k", priority=2)
    assert await enqueue("mail", {"to": "b"}, idempotency_key="k") == first
    later = await enqueue("mail", run_at=datetime.now(UTC) + timedelta(hours=1))
    many = await enqueue_many("mail", [{"n": n} for n in range(100)])
    assert len(set(many)) == 100
    again = await enqueue_many("mail", [{}, {}], idempotency_keys=["k", "l"])
    assert again[0] == first
    claims = await engine.claim(1000)
    assert (claims[0].lease.task_id, claims[0].kwargs) == (first, '{"to": "a"}')
    assert len(claims) == 102
    assert later not in {claim.lease.task_id for claim in claims}
    with pytest.raises(SubmitError, match="'x'"):
        await enqueue("mail", {"x": object()})


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("api", ["asyncpg", "session", "connection"])
async def test_items_belong_to_the_callers_transaction(
    context: OrchContext, engine: Engine, api: str, commits: bool
) -> None:
    async def end(transaction) -> None:
        await (transaction.commit() if commits else transaction.rollback())

    if api == "asyncpg":
        async with context.connection() as raw:
            transaction = raw.transaction()
            await transaction.start()
            await enqueue("x", connection=raw)
            await enqueue_many("x", [{}] * 60, connection=raw)
            await end(transaction)
    elif api == "session":
        async with AsyncSession(context.engine) as session:
            await enqueue("x", connection=session)
            await enqueue_many("x", [{}] * 60, connection=session)
            await end(session)
    else:
        async with context.engine.connect() as connection:
            await enqueue("x", connection=connection)
            await enqueue_many("x", [{}] * 60, connection=connection)
            await end(connection)
    assert await engine.db.fetchval("SELECT count(*) FROM tasks") == (61 if commits else 0)


async def test_explain_task_works_for_any_status(context: OrchContext, engine: Engine) -> None:
    first, group = create_task("m.first"), Group("later")
    last = create_task("m.last")
    group.add(last)
    first >> group
    await create_job("job", last)
    (reason,) = await explain_task(engine.db, last.id)
    assert reason.code == "dependency"
    assert reason.text == f"its group 'later' waits for task 'm.first' ({first.id}): PENDING"
    (reason,) = await explain_task(engine.db, first.id)
    assert reason.code == "ready"
    (claim,) = await engine.claim()
    assert [r.code for r in await explain_task(engine.db, first.id)] == ["running"]
    await engine.db.execute("UPDATE workers SET last_heartbeat = now() - interval '62 s'")
    assert [r.code for r in await explain_task(engine.db, first.id)] == ["running", "silent"]
    await engine.fail(claim, permanent=True)
    assert [r.code for r in await explain_task(engine.db, last.id)] == ["cancelled"]
    assert [r.code for r in await explain_task(engine.db, first.id)] == ["failed"]
    with pytest.raises(NotFoundError):
        await explain_task(engine.db, 1)


async def test_a_big_job_is_submitted_whole(context: OrchContext, engine: Engine) -> None:
    tasks = [Task("m.t", {"n": n}) for n in range(100_000)]
    last = Task("m.last")
    tasks >> last
    job = await create_job("big", last)
    assert job.total_tasks == 100_001
    assert await engine.db.fetchval("SELECT unmet FROM tasks WHERE type = 'm.last'") == 100_000


async def test_a_task_belongs_to_one_job(context: OrchContext) -> None:
    one = create_task("tasks.one")
    first = await create_job("first", one)
    with pytest.raises(SubmitError, match=f"belongs to job {first.id} already"):
        await create_job("second", one)


async def test_repeated_submission_with_key_returns_same_job(context: OrchContext) -> None:
    one = create_task("tasks.one")
    first = await create_job("nightly", one, idempotency_key="k")
    assert (await create_job("nightly", one, idempotency_key="k")).id == first.id
    for name, key in (("nightly", "other"), ("other", "k")):
        with pytest.raises(SubmitError, match=f"belongs to job {first.id} already"):
            await create_job(name, one, idempotency_key=key)


@pytest.mark.parametrize("name", ["", "  ", None, 5, "a\0b", "\ud800", "x" * 1001])
async def test_invalid_job_name_is_refused(context: OrchContext, name: object) -> None:
    with pytest.raises(SubmitError, match=r"cannot be called|The name of a job is"):
        await create_job(name, create_task("tasks.one"))  # pyright: ignore[reportArgumentType]
