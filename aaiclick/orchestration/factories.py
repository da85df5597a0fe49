"""Making tasks and jobs, and asking after them: functions that use the current OrchContext, or one for the moment."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.orchestration.arguments import serialise
from aaiclick.orchestration.context import any_context, job_limits, mark_submitted
from aaiclick.orchestration.graph import Job, Node, Task
from aaiclick.orchestration.handlers import register_local_function
from aaiclick.orchestration.models import JobStatus, Worker, WorkerStatus
from aaiclick.orchestration.planning import arguments_of, check_options, check_timeout, closure, make_plan, slices
from aaiclick.orchestration.retry import RetryPolicy
from aaiclick.orchestration.sharing import MARK, sharing
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store import control, queue, reads
from aaiclick.store.enqueue import enqueue_tasks, enqueue_with_tables
from aaiclick.store.plan import NewTask, Plan
from aaiclick.store.streaming import submit_slices
from aaiclick.store.submit import NewJob, submit_job
from aaiclick.store.words import DEFAULT_QUEUE, Cancellation
from aaiclick.store.workers import renew_worker, unknown_worker

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from aaiclick.store.engine import Connection


NAME_CHARACTERS = 1_000


def create_task(callback: str | Callable[..., Any], kwargs: Mapping[str, Any] | None = None, **options: Any) -> Task:
    """A task that calls `callback`: a function, or its import path such as "myapp.steps.load"."""
    return Task(callback if isinstance(callback, str) else entrypoint_of(callback), kwargs, **options)


def entrypoint_of(function: Callable[..., Any]) -> str:
    """The import path of a function; refuses one that another process could not import."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<" in name:
        raise SubmitError(
            f"{function!r} cannot be run by another process.",
            remedy="Use a function defined at the top of a module, or its import path.",
        )
    entrypoint = f"{_module_name(module)}.{name}"
    register_local_function(entrypoint, function)
    return entrypoint


def _module_name(module: str) -> str:
    """The name by which another process imports a module: a script's is that of its file.

    Where there is none (a notebook, a file that is no module's name), `__main__` stays: only `run_job_test` of this
    process runs such a function.
    """
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return main.__spec__.name  # python -m
    stem = Path(getattr(main, "__file__", None) or "").stem
    return stem if stem.isidentifier() else module


async def create_job(
    name: str,
    entry: Node | str | Callable[..., Any] | Sequence[Node] | Iterator[Node],
    *,
    timeout_seconds: float | None = None,
    idempotency_key: str | None = None,
) -> Job:
    """Submit a job: its entry (a task, several, a group, a function or its path) with everything it waits for.

    An iterator of tasks may be longer than memory is large: it is read as it is written, in one transaction, and tasks
    are let go of on the way. Each may wait for what came before it, and groups may go on growing.
    """
    _check_name(name)
    check_timeout(f"The job {name!r}", timeout_seconds)
    if isinstance(entry, Iterator):
        return await _create_by_slices(name, cast("Iterator[Node]", entry), timeout_seconds, idempotency_key)
    nodes = _nodes(entry)
    taken = next((node for node in nodes if node.submitted), None)
    if taken is not None:
        return await _said_again(taken, name, idempotency_key)
    found = closure(nodes)
    plan, names = make_plan(found)
    timeout = timeout_seconds or get_settings().job_default_timeout_seconds
    new = NewJob(get_snowflake_id(), name, timeout_seconds=timeout, idempotency_key=idempotency_key)
    async with (
        sharing(arguments_of(plan, found)) as shared,
        any_context() as context,
        context.connection() as connection,
    ):
        plan.tables, plan.adopted = shared.tables, shared.adopted
        job_id = await submit_job(connection, new, plan, names, limits=job_limits())
        if job_id == new.id:
            mark_submitted(found, job_id)
            _trace(new, len(plan.tasks))
        else:
            shared.undo()
        row = await reads.get_job(connection, job_id)
    assert row is not None  # noqa: S101
    return Job.from_row(row)


def _trace(job: NewJob, tasks: int | None = None) -> None:
    if (tracing := get_tracing()) is not None:
        tracing.submitted(job.id, job.org_id, job.name, tasks)


async def _said_again(node: Node, name: str, idempotency_key: str | None) -> Job:
    """The job that these nodes became, if this is the same call: its first answer may have been lost on the way."""
    assert node.job_id is not None  # noqa: S101
    if idempotency_key is not None:
        async with any_context() as context, context.connection() as connection:
            row = await reads.get_job(connection, node.job_id)
        if row is not None and (row["name"], row["idempotency_key"]) == (name, idempotency_key):
            return Job.from_row(row)
    raise SubmitError(
        f"{node} belongs to job {node.job_id} already.", remedy="A job is made of new tasks: make another."
    )


def _nodes(entry: object) -> Sequence[Node]:
    if isinstance(entry, Node):
        return [entry]
    if isinstance(entry, str) or callable(entry):
        return [create_task(entry)]
    if isinstance(entry, Sequence) and all(isinstance(each, Node) for each in cast("Sequence[object]", entry)):
        return cast("Sequence[Node]", entry)
    raise SubmitError(
        f"A job cannot be made of {entry!r:.80}.",
        remedy="Give a task, a group, several of them, a function or its import path.",
    )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > NAME_CHARACTERS:
        raise SubmitError(
            f"A job cannot be called {str(name)[:50]!a}.",
            remedy=f"A name has 1 to {NAME_CHARACTERS} printable characters, not only spaces.",
        )


async def _create_by_slices(
    name: str, nodes: Iterator[Node], timeout_seconds: float | None, idempotency_key: str | None
) -> Job:
    timeout = timeout_seconds or get_settings().job_default_timeout_seconds
    new = NewJob(get_snowflake_id(), name, timeout_seconds=timeout, idempotency_key=idempotency_key)
    async with AsyncExitStack() as lent, any_context() as context, context.connection() as connection:

        async def plans() -> AsyncGenerator[tuple[Plan, Mapping[int, str]]]:
            for made, plan, names in slices(nodes, new.id):
                if arguments := arguments_of(plan, made):
                    shared = await lent.enter_async_context(sharing(arguments))
                    plan.tables, plan.adopted = shared.tables, shared.adopted
                yield plan, names

        async with aclosing(plans()) as parts:
            job_id = await submit_slices(connection, new, parts, limits=job_limits())
        if job_id == new.id:
            _trace(new)
        row = await reads.get_job(connection, job_id)
    assert row is not None  # noqa: S101
    return Job.from_row(row)


async def add_task_to_job(
    job_id: int, entrypoint: str | Callable[..., Any], kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Task:
    """Add one task to a job that has not ended."""
    task = create_task(entrypoint, kwargs, **options)
    async with any_context() as context:
        return await context.apply(task, job_id)


async def get_job(job_id: int) -> Job:
    """A job as it is now; raises NotFoundError."""
    async with any_context() as context, context.connection() as connection:
        row = await reads.get_job(connection, job_id) if _is_id(job_id) else None
    if row is None:
        raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
    return Job.from_row(row)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 63


async def list_jobs(status: JobStatus | str | None = None, *, limit: int = 100, before: int | None = None) -> list[Job]:
    """Jobs, newest first; `before` (an id) continues where a page ended."""
    async with any_context() as context, context.connection() as connection:
        rows = await reads.list_jobs(
            connection,
            status=None if status is None else JobStatus(status).value,
            before=reads.LAST_ID if before is None else before,
            limit=limit,
        )
    return [Job.from_row(row) for row in rows]


async def cancel_job(job_id: int) -> bool:
    """Cancel a job: waiting tasks end at once, running ones are told to stop. False if it had ended before.

    After True the job can no longer become COMPLETED.
    """
    async with any_context() as context, context.connection() as connection:
        return _is_id(job_id) and await control.cancel_job(connection, job_id) is not Cancellation.OVER


async def get_task(task_id: int) -> Task:
    """A task as it is now; raises NotFoundError."""
    async with any_context() as context, context.connection() as connection:
        row = await reads.get_task(connection, task_id) if _is_id(task_id) else None
    if row is None:
        raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls' lists the tasks of a job.")
    return Task.from_row(row)


async def retry_failed_tasks(job_id: int) -> list[int]:
    """Start over what failed in a job; returns the ids of all tasks that came back, in order."""
    async with any_context() as context, context.connection() as connection:
        return sorted(await control.retry_failed_tasks(connection, job_id))


async def set_retry_policy(type: str, policy: RetryPolicy | None) -> None:  # noqa: A002  (the column's name)
    """How long tasks of a type wait before they are tried again, unless they say so themselves; None: the default.

    The type of a task is the name of its entrypoint; that of a queue item is what `enqueue` was given. It holds from
    the next failure on, also for tasks that were submitted before.
    """
    async with any_context() as context, context.connection() as connection:
        await control.set_retry_policy(connection, type, None if policy is None else policy.to_json())


async def register_worker(
    hostname: str, pid: int, *, pool_size: int = 1, version: str | None = None, queues: Sequence[str] = ()
) -> Worker:
    """A new worker, ACTIVE from now on."""
    async with any_context() as context, context.connection() as connection:
        return await queue.register_worker(
            connection, hostname=hostname, pid=pid, pool_size=pool_size, version=version, queues=queues
        )


async def worker_heartbeat(worker_id: int) -> None:
    """Renew the heartbeat of a worker; raises NotFoundError for an unknown id, ConflictError for a stopped worker."""
    if not _is_id(worker_id):
        raise unknown_worker(worker_id)
    async with any_context() as context, context.connection() as connection:
        await renew_worker(connection, worker_id)


async def deregister_worker(worker_id: int) -> bool:
    """The worker stops; what it held is ready for others."""
    async with any_context() as context, context.connection() as connection:
        return await queue.deregister_worker(connection, worker_id)


async def list_workers(status: WorkerStatus | str | None = None) -> list[Worker]:
    """All workers, or those of one status."""
    async with any_context() as context, context.connection() as connection:
        return await queue.list_workers(connection, None if status is None else WorkerStatus(status))


async def enqueue(
    type: str,  # noqa: A002  (the column's name)
    payload: Mapping[str, Any] | None = None,
    *,
    priority: int = 0,
    idempotency_key: str | None = None,
    run_at: datetime | None = None,
    max_attempts: int | None = None,
    queue: str = DEFAULT_QUEUE,
    concurrency_key: str | None = None,
    connection: Connection | AsyncConnection | AsyncSession | None = None,
) -> int:
    """Put one item into a queue; returns its id, or that of the item that has its idempotency key.

    With `connection` (asyncpg's, or a SQLAlchemy connection or session) it is part of the caller's transaction.
    """
    item = make_item(
        type, payload, priority=priority, idempotency_key=idempotency_key, run_at=run_at, max_attempts=max_attempts,
        queue=queue, concurrency_key=concurrency_key,
    )  # fmt: skip
    return (await _enqueue([item], [payload or {}], connection))[0]


async def enqueue_many(
    type: str,  # noqa: A002  (the column's name)
    payloads: Sequence[Mapping[str, Any]],
    *,
    priority: int = 0,
    idempotency_keys: Sequence[str | None] | None = None,
    run_at: datetime | None = None,
    max_attempts: int | None = None,
    queue: str = DEFAULT_QUEUE,
    connection: Connection | AsyncConnection | AsyncSession | None = None,
) -> list[int]:
    """Put many items of a type into a queue at once; returns their ids in order."""
    check_options(f"An item of type {type!r}", priority, max_attempts)
    keys = idempotency_keys or [None] * len(payloads)
    attempts = max_attempts or get_settings().worker_max_retries + 1
    items = [
        NewTask(
            task_id, type, kwargs=serialise(payload, f"item of type {type!r}")[0], queue=queue, priority=priority,
            max_attempts=attempts, available_at=run_at, idempotency_key=key,
        )
        for task_id, payload, key in zip(get_snowflake_ids(len(payloads)), payloads, keys, strict=True)
    ]  # fmt: skip
    return await _enqueue(items, payloads, connection)


def make_item(
    type: str,  # noqa: A002  (the column's name)
    payload: Mapping[str, Any] | None,
    *,
    priority: int,
    idempotency_key: str | None,
    run_at: datetime | None,
    max_attempts: int | None,
    queue: str,
    concurrency_key: str | None,
) -> NewTask:
    check_options(f"An item of type {type!r}", priority, max_attempts)
    kwargs, needed = serialise(payload or {}, f"item of type {type!r}")
    if needed:
        raise SubmitError(
            f"An item of type {type!r} needs the result of {needed[0]}.", remedy="Results pass within a job only."
        )
    return NewTask(
        get_snowflake_id(), type, kwargs=kwargs, queue=queue, priority=priority,
        max_attempts=max_attempts or get_settings().worker_max_retries + 1, available_at=run_at,
        idempotency_key=idempotency_key, concurrency_key=concurrency_key,
    )  # fmt: skip


async def _enqueue(
    items: Sequence[NewTask],
    payloads: Sequence[Mapping[str, Any]],
    connection: Connection | AsyncConnection | AsyncSession | None,
) -> list[int]:
    if connection is None:
        async with any_context() as context, context.connection() as own:
            return await _insert(items, payloads, own)
    return await _insert(items, payloads, await _driver_connection(connection))


async def _driver_connection(connection: Connection | AsyncConnection | AsyncSession) -> Connection:
    """asyncpg's own connection, in the transaction of the caller's."""
    if "sqlalchemy.ext.asyncio" not in sys.modules:  # then it is none of SQLAlchemy's, which need not be loaded
        return cast("Connection", connection)
    from sqlalchemy import select
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    if isinstance(connection, AsyncSession):
        connection = await connection.connection()
    if not isinstance(connection, AsyncConnection):
        return connection
    await connection.execute(select(1))  # SQLAlchemy begins its transaction with its first statement
    raw = await connection.get_raw_connection()
    return cast("Connection", raw.driver_connection)


async def _insert(items: Sequence[NewTask], payloads: Sequence[Mapping[str, Any]], connection: Connection) -> list[int]:
    given = [(item.id, payload) for item, payload in zip(items, payloads, strict=True) if MARK in item.kwargs]
    if not given:
        return await enqueue_tasks(connection, items)
    async with sharing(given) as shared:
        return await enqueue_with_tables(connection, items, shared.tables, shared.adopted)
