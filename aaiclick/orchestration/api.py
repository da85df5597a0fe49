"""Functions to create and query tasks, jobs and workers; they use the current OrchContext or a temporary one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack, cast

from aaiclick.errors import NotFoundError, SubmitError
from aaiclick.orchestration.argument_serialisation import await_jobs, check_argument
from aaiclick.orchestration.argument_tables import share_argument_tables
from aaiclick.orchestration.context import current_or_new_context, job_limits, mark_submitted
from aaiclick.orchestration.decorator_checks import check_keyword_arguments
from aaiclick.orchestration.failure_paths import Handler, has_compensation, make_job_handlers
from aaiclick.orchestration.graph import Group, Job, Node, Task
from aaiclick.orchestration.handler_registry import entrypoint_of
from aaiclick.orchestration.job_labels import check_labels, dump_labels
from aaiclick.orchestration.models import JobStatus, Worker, WorkerStatus
from aaiclick.orchestration.retry_policy import RetryPolicy
from aaiclick.orchestration.submit_plan import collect_unsubmitted, digest_plan, iter_slices, make_plan, table_arguments
from aaiclick.orchestration.task_context import current_scope, refuse_repeated
from aaiclick.orchestration.tracing import get_tracing
from aaiclick.orchestration.typed_arguments import to_plain_arguments
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queries, queue, user_actions
from aaiclick.store.engine.submission_plan import Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.engine.submit_stream import submit_slices
from aaiclick.store.engine.workers import renew_worker, unknown_worker
from aaiclick.store.enums import Cancellation
from aaiclick.store.job_policy import DEFAULT_POLICY, JobPolicy
from aaiclick.store.name_and_key_limits import check_key
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskKeywords, check_timeout

if TYPE_CHECKING:
    pass


def create_task(
    callback: str | Callable[..., object],
    kwargs: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    group: Group | None = None,
    **options: Unpack[TaskKeywords],
) -> Task:
    """Create a task that calls `callback`: a function, or its import path such as "myapp.steps.load".

    ```python
    first, second = create_task(load, {"day": "2026-11-16"}), create_task("shop.load")
    await create_job("two days", first >> second)
    ```
    """
    entrypoint = callback if isinstance(callback, str) else entrypoint_of(callback)
    arguments: dict[str, object] = await_jobs(dict(kwargs or {}))
    if arguments and not isinstance(callback, str):
        check_keyword_arguments(callback, arguments)
        arguments = to_plain_arguments(callback, arguments)
    for argument, value in arguments.items() if isinstance(callback, str) else ():
        check_argument(value, f"{entrypoint}(): argument {argument!r}")
    return Task(entrypoint, arguments, name=name, group=group, options=DEFAULT_OPTIONS.change(options))


async def create_job(
    name: str,
    entry: Node | str | Callable[..., object] | Sequence[Node] | Iterator[Node],
    *,
    timeout_seconds: float | None = None,
    idempotency_key: str | None = None,
    finally_: Handler | None = None,
    on_failure: Handler | None = None,
    tags: Mapping[str, str] | None = None,
    owner: str | None = None,
) -> Job:
    """Submit a job: its entry (a task, several, a group, a function or its path) with all predecessors.

    An iterator of tasks may be larger than memory: it is read in slices within one transaction. Tasks may depend on
    earlier ones, and groups may grow across slices. `finally_` runs when all tasks have ended in any way, `on_failure`
    if one of them has failed. `tags` and `owner` are filters of job lists.

    ```python
    await create_job("nightly", load.task("2026-11-16"), tags={"team": "sales"}, owner="ada")
    ```
    """
    return await submit_entry(
        name, entry, finally_, on_failure, labels=check_labels(f"The job {name!r:.80}", tags, owner),
        timeout_seconds=timeout_seconds, idempotency_key=idempotency_key,
    )  # fmt: skip


async def submit_entry(
    name: str,
    entry: Node | str | Callable[..., object] | Sequence[Node] | Iterator[Node],
    finally_: Handler | None = None,
    on_failure: Handler | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
    idempotency_key: str | None = None,
    trigger: str | None = None,
    policy: JobPolicy = DEFAULT_POLICY,
    pinned_version: str | None = None,
) -> Job:
    """`create_job`, with the JSON text of what has started the job, and the version of the code that must run it."""
    _check_name(name)
    refuse_repeated(f"submit the job {name!r}")
    check_timeout(f"The job {name!r}", timeout_seconds)
    if idempotency_key is not None:
        check_key(f"The idempotency key of the job {name!r:.80}", idempotency_key)
    new_job = NewJob(
        get_snowflake_id(), name, timeout_seconds=timeout_seconds or get_settings().job_default_timeout_seconds,
        idempotency_key=idempotency_key, tags=dump_labels(labels or {}), trigger=trigger,
        policy=policy, pinned_version=pinned_version,
    )  # fmt: skip
    has_handlers = finally_ is not None or on_failure is not None
    if isinstance(entry, Iterator):
        if has_handlers:
            raise SubmitError(
                f"The job {name!r} is read from an iterator and has finally_ or on_failure.",
                remedy="Give its tasks as a list: the handlers depend on all of them.",
            )
        return await _create_by_slices(_make_child(new_job, None), cast("Iterator[Node]", entry))
    nodes = _entry_nodes(entry)
    submitted = next((node for node in nodes if node.submitted), None)
    if submitted is not None:
        return await _find_submitted_job(submitted, name, idempotency_key)
    if has_handlers or has_compensation(nodes):
        nodes = [*nodes, *make_job_handlers(nodes, finally_, on_failure)]
    collected = collect_unsubmitted(nodes)
    plan, names = make_plan(collected)
    new_job = _make_child(new_job, plan)
    async with (
        share_argument_tables(table_arguments(plan, collected)) as shared,
        current_or_new_context() as context,
        context.connection(keeps_session=True) as connection,
    ):
        plan.tables, plan.session_tables = shared.tables, shared.adopted
        job_id = await submit_job(connection, new_job, plan, names, limits=job_limits())
        if job_id == new_job.id:
            mark_submitted(collected, job_id)
            _trace_submission(new_job, len(plan.tasks))
        else:
            shared.unshare_tables()
        row = await queries.get_job(connection, job_id)
    assert row is not None  # noqa: S101
    if (scope := current_scope()) is not None:
        scope.child_ids.add(job_id)
    return Job.from_row(row)


def _make_child(job: NewJob, plan: Plan | None) -> NewJob:
    """The new job; in a task, as a child of that task.

    A retried attempt finds its children again by the key: the name, the arguments, and the number of equal calls.
    """
    scope = current_scope()
    if scope is None:
        return job
    key = job.idempotency_key
    if key is None and plan is not None:
        digest = digest_plan(plan)
        number = scope.child_calls[job.name, digest] = scope.child_calls.get((job.name, digest), 0) + 1
        key = f"child {scope.lease.task_id} {digest} {number}"
    return replace(job, org_id=scope.org_id, idempotency_key=key, parent=scope.lease)


def _trace_submission(job: NewJob, tasks: int | None = None) -> None:
    if (tracing := get_tracing()) is not None:
        tracing.record_submission(job.id, job.org_id, job.name, tasks)


async def _find_submitted_job(node: Node, name: str, idempotency_key: str | None) -> Job:
    """The job of a submitted node if this call repeats its submission; else raises SubmitError."""
    assert node.job_id is not None  # noqa: S101
    if idempotency_key is not None:
        async with current_or_new_context() as context, context.connection() as connection:
            row = await queries.get_job(connection, node.job_id)
        if row is not None and (row["name"], row["idempotency_key"]) == (name, idempotency_key):
            return Job.from_row(row)
    raise SubmitError(f"{node!r} belongs to job {node.job_id} already.", remedy="Create a new task for each job.")


def _entry_nodes(entry: object) -> Sequence[Node]:
    if isinstance(entry, Node):
        return [entry]
    if isinstance(entry, str) or callable(entry):
        return [create_task(entry)]
    if isinstance(entry, Sequence) and all(isinstance(item, Node) for item in cast("Sequence[object]", entry)):
        return cast("Sequence[Node]", entry)
    raise SubmitError(
        f"A job cannot be made of {entry!r:.80}.",
        remedy="Give a task, a group, several of them, a function or its import path.",
    )


def _check_name(name: object) -> None:
    check_key("The name of a job", name)
    if not str(name).strip() or not str(name).isprintable():
        raise SubmitError(
            f"A job cannot be called {str(name)[:50]!a}.",
            remedy="A name has printable characters, not only spaces.",
        )


async def _create_by_slices(new_job: NewJob, nodes: Iterator[Node]) -> Job:
    async with (
        AsyncExitStack() as shared_stack,
        current_or_new_context() as context,
        context.connection(keeps_session=True) as connection,
    ):

        async def plans() -> AsyncGenerator[tuple[Plan, Mapping[int, str]]]:
            for slice_nodes, plan, names in iter_slices(nodes, new_job.id):
                if arguments := table_arguments(plan, slice_nodes):
                    shared = await shared_stack.enter_async_context(share_argument_tables(arguments))
                    plan.tables, plan.session_tables = shared.tables, shared.adopted
                yield plan, names

        async with aclosing(plans()) as parts:
            job_id = await submit_slices(connection, new_job, parts, limits=job_limits())
        if job_id == new_job.id:
            _trace_submission(new_job)
        row = await queries.get_job(connection, job_id)
    assert row is not None  # noqa: S101
    return Job.from_row(row)


async def add_task_to_job(
    job_id: int,
    entrypoint: str | Callable[..., object],
    kwargs: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    group: Group | None = None,
    **options: Unpack[TaskKeywords],
) -> Task:
    """Add one task to a job that has not ended.

    ```python
    submitted = await nightly()
    await add_task_to_job(submitted.id, load, {"day": "2026-11-17"})
    ```
    """
    task = create_task(entrypoint, kwargs, name=name, group=group, **options)
    async with current_or_new_context() as context:
        return await context.apply(task, job_id)


async def get_job(job_id: int) -> Job:
    """A job as it is now; raises NotFoundError.

    ```python
    (await get_job((await nightly()).id)).name  # 'nightly'
    ```
    """
    async with current_or_new_context() as context, context.connection() as connection:
        row = await queries.get_job(connection, job_id) if _is_id(job_id) else None
    if row is None:
        raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
    return Job.from_row(row)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 63


async def list_jobs(
    status: JobStatus | str | None = None,
    *,
    tags: Mapping[str, str] | None = None,
    owner: str | None = None,
    limit: int = 100,
    before: int | None = None,
) -> list[Job]:
    """Jobs, newest first, with all of the `tags` and this owner; `before` (an id) continues where a page ended.

    ```python
    failed = await list_jobs("FAILED", tags={"team": "sales"}, limit=10)
    ```
    """
    async with current_or_new_context() as context, context.connection() as connection:
        rows = await queries.list_jobs(
            connection,
            status=None if status is None else JobStatus(status).value,
            labels=check_labels("The filter", tags, owner),
            before=queries.LAST_ID if before is None else before,
            limit=limit,
        )
    return [Job.from_row(row) for row in rows]


async def cancel_job(job_id: int) -> bool:
    """Cancel a job: waiting tasks end at once, running ones are requested to stop. False if it had ended before.

    After True the job can no longer become COMPLETED.

    ```python
    await cancel_job((await nightly()).id)  # True
    ```
    """
    refuse_repeated(f"cancel job {job_id}")
    async with current_or_new_context() as context, context.connection() as connection:
        return _is_id(job_id) and await user_actions.cancel_job(connection, job_id) is not Cancellation.OVER


async def get_task(task_id: int) -> Task:
    """A task as it is now; raises NotFoundError.

    ```python
    first = load.task()
    await create_job("one task", first)
    (await get_task(first.id)).attempt  # 0
    ```
    """
    async with current_or_new_context() as context, context.connection() as connection:
        row = await queries.get_task(connection, task_id) if _is_id(task_id) else None
    if row is None:
        raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls' lists the tasks of a job.")
    return Task.from_row(row)


async def retry_failed_tasks(job_id: int) -> list[int]:
    """Retry the failed tasks of a job; returns the ids of all tasks that run again, in order.

    ```python
    for failed in await list_jobs("FAILED"):
        await retry_failed_tasks(failed.id)
    ```
    """
    refuse_repeated(f"retry job {job_id}")
    async with current_or_new_context() as context, context.connection() as connection:
        return sorted(await user_actions.retry_failed_tasks(connection, job_id))


async def set_retry_policy(type: str, policy: RetryPolicy | None) -> None:  # noqa: A002  (the column's name)
    """Set the retry policy of a task type, for tasks without their own; None restores the default.

    The type of a task is its entrypoint; that of a queue item is the first argument of `enqueue`. The policy applies
    from the next failure on, also to tasks that were submitted before.

    ```python
    await set_retry_policy("email:send", RetryPolicy(base_seconds=5, cap_seconds=600))
    ```
    """
    check_key("The type of a retry policy", type)
    refuse_repeated(f"set the retry policy of {type!r}")
    async with current_or_new_context() as context, context.connection() as connection:
        await user_actions.set_retry_policy(connection, type, None if policy is None else policy.to_json())


async def register_worker(
    hostname: str, pid: int, *, pool_size: int = 1, version: str | None = None, queues: Sequence[str] = ()
) -> Worker:
    """Register a new, ACTIVE worker.

    ```python
    registered = await register_worker("machine-1", 4711, queues=["default"])
    ```
    """
    async with current_or_new_context() as context, context.connection() as connection:
        return await queue.register_worker(
            connection, hostname=hostname, pid=pid, pool_size=pool_size, version=version, queues=queues
        )


async def worker_heartbeat(worker_id: int) -> None:
    """Renew the heartbeat of a worker; raises NotFoundError for an unknown id, ConflictError for a stopped worker.

    ```python
    registered = await register_worker("machine-1", 4711)
    await worker_heartbeat(registered.id)
    ```
    """
    if not _is_id(worker_id):
        raise unknown_worker(worker_id)
    async with current_or_new_context() as context, context.connection() as connection:
        await renew_worker(connection, worker_id)


async def deregister_worker(worker_id: int) -> bool:
    """Stop a worker and release its tasks.

    ```python
    registered = await register_worker("machine-1", 4711)
    await deregister_worker(registered.id)  # True
    ```
    """
    refuse_repeated(f"stop worker {worker_id}")
    async with current_or_new_context() as context, context.connection() as connection:
        return await queue.deregister_worker(connection, worker_id)


async def list_workers(status: WorkerStatus | str | None = None) -> list[Worker]:
    """All workers, or those of one status.

    ```python
    hosts = [worker.hostname for worker in await list_workers("ACTIVE")]
    ```
    """
    async with current_or_new_context() as context, context.connection() as connection:
        return await queue.list_workers(connection, None if status is None else WorkerStatus(status))
