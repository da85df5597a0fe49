"""`@task` and `@job`: functions as steps and workflows.

    @task(retries=5, timeout_seconds=60)
    async def load(path: str) -> Object: ...

    @task
    async def clean(rows: Object) -> Object: ...

    @job
    def pipeline(path: str) -> None:
        clean(load(path))

    job = await pipeline("data.csv")

Calling a task function returns a Task without running it. A Task passed as an argument represents its result and
becomes a predecessor. Type checkers see the return type of the function, and so check arguments; `load.task(...)` is
the same call with the type Task, for use with `>>`. The function itself is `load.function`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast, get_args, overload

from aaiclick.cron import parse_interval
from aaiclick.data.compile.data_test_queries import DataTest
from aaiclick.errors import CycleError, ScheduleError, SubmitError
from aaiclick.orchestration.api import submit_entry
from aaiclick.orchestration.argument_serialisation import await_jobs, iter_instances
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.decorator_checks import (
    check_function,
    check_keywords,
    count_items,
    describe_call_error,
    describe_function,
)
from aaiclick.orchestration.failure_argument import TaskFailure
from aaiclick.orchestration.failure_paths import (
    Handler,
    add_handler,
    check_handler,
    has_compensation,
    is_handler,
    make_failure_tasks,
    make_job_handlers,
)
from aaiclick.orchestration.graph import Group, Job, Node, ResultTask, Task
from aaiclick.orchestration.handler_registry import entrypoint_of
from aaiclick.orchestration.job_labels import check_labels, make_call_trigger
from aaiclick.orchestration.parameters import JobParameters
from aaiclick.orchestration.pending_job import PendingJob, check_no_import
from aaiclick.orchestration.process_code_version import current_code_version
from aaiclick.orchestration.result_cache import CacheKey, register_cache
from aaiclick.orchestration.result_data_tests import add_tests
from aaiclick.orchestration.schedule_spec import ScheduleKeywords, ScheduleSpec
from aaiclick.orchestration.submit_plan import collect_unsubmitted
from aaiclick.orchestration.task_context import current_scope
from aaiclick.orchestration.typed_arguments import to_plain_arguments
from aaiclick.store.enums import WhenBusy
from aaiclick.store.job_policy import MAX_CONCURRENCY, JobPolicy
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskKeywords, TaskOptions, check_timeout

P = ParamSpec("P")
R = TypeVar("R")

_built_nodes: ContextVar[list[Node] | None] = ContextVar("aaiclick_building", default=None)


def add_to_built_job(node: Node) -> None:
    """Add a node to the @job that is being built, if any."""
    nodes = _built_nodes.get()
    if nodes is not None:
        nodes.append(node)


class TaskFunction(Generic[P, R]):
    """Function decorated with @task: its calls return Tasks."""

    decorator = "@task"

    def __init__(
        self,
        function: Callable[P, object],
        options: TaskOptions,
        on_failure: Handler | None = None,
        compensate: Callable[..., object] | None = None,
    ) -> None:
        check_function(function, "@task")
        options.check(f"The task {function.__name__}")
        check_handler(on_failure, "on_failure")
        functools.update_wrapper(self, function)
        self.function = function
        self.task_options = options
        self._on_failure = on_failure
        self._compensate = compensate
        self._signature = inspect.signature(function)
        self._item_count = count_items(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Task of this call, typed as the value that the function returns."""
        return cast("R", self._make_task(ResultTask, args, kwargs))

    def task(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Task of this call."""
        return self._make_task(Task, args, kwargs)

    def _make_task(self, task_class: type[Task], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Task:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise describe_call_error(self.function, error) from None
        arguments = to_plain_arguments(self.function, await_jobs(self._named_arguments(bound)))
        task = task_class(
            entrypoint_of(self.function), arguments, name=self.function.__name__, options=self.task_options
        )
        task.item_count = self._item_count
        task.compensate = self._compensate
        if self._on_failure is not None:
            add_handler(task, self._on_failure, "failed")
        add_to_built_job(task)
        return task

    def options(self, **changes: Unpack[TaskKeywords]) -> TaskFunction[P, R]:
        """The same function with some other options, for some calls."""
        check_keywords(changes, TaskKeywords.__annotations__, f"{self.function.__name__}.options()")
        return TaskFunction(self.function, self.task_options.change(changes), self._on_failure, self._compensate)

    def _named_arguments(self, bound: inspect.BoundArguments) -> dict[str, object]:
        arguments = dict(bound.arguments)
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(name, {}))
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) and arguments.get(name):
                raise SubmitError(
                    f"{self.function.__qualname__}() takes {name!r} by position only.",
                    remedy="Use named parameters: arguments of tasks are passed by name.",
                )
        return arguments


@overload
def task(function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(
    *,
    on_failure: Handler | None = None,
    compensate: Callable[..., object] | None = None,
    tests: Sequence[DataTest] = (),
    cache: str | None = None,
    cache_key: CacheKey | None = None,
    **options: Unpack[TaskKeywords],
) -> _Decorator: ...
def task(
    function: Callable[..., object] | None = None,
    /,
    *,
    on_failure: Handler | None = None,
    compensate: Callable[..., object] | None = None,
    tests: Sequence[DataTest] = (),
    cache: str | None = None,
    cache_key: CacheKey | None = None,
    **options: Unpack[TaskKeywords],
) -> Any:
    """Decorator: calls of the function return Tasks with these options.

    `on_failure` runs when the task has finally failed; its first parameter is the TaskFailure. `compensate` undoes the
    completed task if its job fails: its parameters are named like those of the task, or `result`.
    `tests` are data tests of the returned rows (`aaiclick.data.expectations`): if one fails, so does the task,
    without retries. With `cache` ("input", or a time such as "1d"), the result of a task with the same code version and
    inputs is reused; `cache_key` (text, or a function of the arguments) replaces the inputs.

    ```python
    @task(retries=5, timeout_seconds=60)
    def parse(text: str) -> int:
        return int(text)
    ```
    """
    if function is not None:
        return TaskFunction[Any, Any](function, DEFAULT_OPTIONS)
    check_keywords(options, TaskKeywords.__annotations__, "@task")
    if cache is None and cache_key is not None:
        raise SubmitError("@task has 'cache_key', but no 'cache'.", remedy='Add cache="input", or a time: cache="1d".')
    if cache is not None and compensate is not None:
        raise SubmitError(
            "@task has 'cache' and 'compensate'.", remedy="Remove one of them: a step that can be undone has an effect."
        )
    return _Decorator(DEFAULT_OPTIONS.change(options), on_failure, compensate, tests, cache, cache_key)


class _Decorator:
    """Decorator returned by `@task(...)`."""

    def __init__(
        self,
        options: TaskOptions,
        on_failure: Handler | None,
        compensate: Callable[..., object] | None,
        tests: Sequence[DataTest],
        cache: str | None,
        cache_key: CacheKey | None,
    ) -> None:
        self._options = options
        self._on_failure = on_failure
        self._compensate = compensate
        self._tests = tuple(tests)
        self._cache, self._cache_key = cache, cache_key

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...
    def __call__(self, function: Callable[..., object], /) -> Any:
        tested = add_tests(function, self._tests) if self._tests else function
        if self._cache is not None:
            register_cache(tested, self._cache, self._cache_key)
        return TaskFunction[Any, Any](tested, self._options, self._on_failure, self._compensate)


class JobKeywords(ScheduleKeywords, total=False):
    """Options of `@job`; `schedule` is a cron expression and `every` an interval."""

    name: str | None
    timeout_seconds: float | None
    finally_: Handler | None
    on_failure: Handler | None
    schedule: str | None
    every: str | None
    tags: Mapping[str, str] | None
    owner: str | None
    concurrency: int | None
    when_busy: WhenBusy
    deadline: str | None
    pin_version: bool | str


def _parse_schedule(name: str, options: JobKeywords) -> ScheduleSpec | None:
    """The schedule of a @job, if it has one; raises ScheduleError."""
    policies: dict[str, Any] = {key: value for key, value in options.items() if key in ScheduleKeywords.__annotations__}
    schedule, every = options.get("schedule"), options.get("every")
    if schedule is None and every is None:
        if policies:
            raise ScheduleError(
                f"The job {name!r} has {min(policies)!r}, but no schedule.",
                remedy='Add a cron expression (schedule="0 3 * * *") or an interval (every="5m").',
            )
        return None
    return ScheduleSpec.parse(schedule, every, **policies)


def _make_policy(name: str, options: JobKeywords) -> JobPolicy:
    """The policy of a @job; raises SubmitError and ScheduleError."""
    limit, when_busy, deadline = options.get("concurrency"), options.get("when_busy"), options.get("deadline")
    if limit is None and when_busy is not None:
        raise SubmitError(f"The job {name!r} has 'when_busy', but no limit.", remedy="Add concurrency=1.")
    if limit is not None and (
        not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_CONCURRENCY  # pyright: ignore[reportUnnecessaryIsInstance]
    ):
        remedy = f"It lies between 1 and {MAX_CONCURRENCY}."
        raise SubmitError(f"The job {name!r} has concurrency {limit!r:.50}.", remedy=remedy)
    if when_busy not in (None, *get_args(WhenBusy)):
        choices = ", ".join(get_args(WhenBusy))
        raise SubmitError(f"The job {name!r} has when_busy={when_busy!r:.50}.", remedy=f"It is one of {choices}.")
    if not isinstance(pin_version := options.get("pin_version", False), bool | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        remedy = "It is True, False or the name of a version."
        raise SubmitError(f"The job {name!r} has pin_version {pin_version!r:.50}.", remedy=remedy)
    seconds = None if deadline is None else parse_interval(deadline).total_seconds()
    has_finally, has_on_failure = options.get("finally_") is not None, options.get("on_failure") is not None
    handlers = "ended" if has_finally else "failed" if has_on_failure else None
    return JobPolicy(limit, when_busy or "queue", seconds, pin_version, handlers)


class JobFunction(Generic[P]):
    """Function decorated with @job: it creates tasks, and its calls submit them as a job."""

    decorator = "@job"

    def __init__(self, function: Callable[P, object], options: JobKeywords) -> None:
        check_function(function, "@job", is_local_allowed=True)
        functools.update_wrapper(self, function)
        self.function = function
        self.name = options.get("name") or function.__name__
        self.timeout_seconds = options.get("timeout_seconds")
        check_timeout(f"The job {self.name!r:.80}", self.timeout_seconds)
        self.parameters = JobParameters(function)
        self.schedule = _parse_schedule(self.name, options)
        self.policy = _make_policy(self.name, options)
        self.labels = check_labels(f"The job {self.name!r}", options.get("tags"), options.get("owner"))
        self._finally, self._on_failure = options.get("finally_"), options.get("on_failure")
        check_handler(self._finally, "finally_")
        check_handler(self._on_failure, "on_failure")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Job]:
        """Validate the arguments, build and submit the job, when it is awaited."""
        return PendingJob(self._submit_call(*args, **kwargs), self.function.__name__)

    async def _submit_call(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        check_no_import(self.name)
        nodes = await self.build_async(*args, **kwargs)
        return await self.submit(nodes, self.parameters.signature.bind(*args, **kwargs).arguments)

    async def submit(self, nodes: Sequence[Node], arguments: Mapping[str, object], *, name: str | None = None) -> Job:
        """Submit the nodes that `build` has created from these arguments."""
        try:
            return await submit_entry(
                name or self.name, nodes, timeout_seconds=self.timeout_seconds, labels=self.labels,
                policy=self.policy, pinned_version=await self.find_pinned_version(),
                trigger=make_call_trigger(self.function, arguments),
            )  # fmt: skip
        except CycleError as error:
            error.what = f"{error.what}\n\n{describe_function(self.function)}\n"
            raise

    async def find_pinned_version(self) -> str | None:
        """The version of the code that must run the tasks of jobs that this process submits."""
        is_own = self.policy.pin_version is True
        return self.policy.find_pinned_version(await asyncio.to_thread(current_code_version) if is_own else None)

    def build(self, *args: P.args, **kwargs: P.kwargs) -> list[Node]:
        """Tasks and groups of the job, without submitting them; an `async` function runs on a new event loop."""
        if inspect.iscoroutinefunction(self.function):
            return asyncio.run(self.build_async(*args, **kwargs))
        with _collect_nodes() as nodes:
            returned = self._call_function(*args, **kwargs)
        return self._add_handlers(self._combine_nodes(nodes, returned), *args, **kwargs)

    async def build_async(self, *args: P.args, **kwargs: P.kwargs) -> list[Node]:
        """Tasks and groups of the job, without submitting them."""
        with _collect_nodes() as nodes:
            returned = self._call_function(*args, **kwargs)
            if inspect.isawaitable(returned) and not isinstance(returned, Task):
                returned = await returned
        return self._add_handlers(self._combine_nodes(nodes, returned), *args, **kwargs)

    def as_task(self) -> Callable[P, Coroutine[None, None, object]]:
        """Function for a job that has this function as its entrypoint: builds the tasks and adds them to that job."""
        if inspect.iscoroutinefunction(self.function):

            @functools.wraps(self.function)
            async def build_and_add(*args: P.args, **kwargs: P.kwargs) -> object:
                return await _add_to_running_job(await self.build_async(*args, **kwargs))

            cast("Any", build_and_add).job_function = self
            return build_and_add

        @functools.wraps(self.function)
        def build_then_add(*args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, object]:
            return _add_to_running_job(self.build(*args, **kwargs))

        cast("Any", build_then_add).job_function = self
        return build_then_add

    def make_handlers_of_failed_call(self, arguments: dict[str, Any], failure: TaskFailure | None) -> list[Task]:
        """Handlers of a job that has no other tasks, because a call with these JSON arguments did not end well.

        Without a failure the call was cancelled.
        """
        try:
            bound = self.parameters.bind(**arguments)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
        except SubmitError:  # perhaps the failure itself
            pass
        return make_failure_tasks(self._on_failure, self._finally, arguments, failure)

    def _call_function(self, *args: P.args, **kwargs: P.kwargs) -> object:
        bound = self.parameters.bind(*args, **kwargs)
        return self.function(*bound.args, **bound.kwargs)

    def _add_handlers(self, nodes: list[Node], *args: P.args, **kwargs: P.kwargs) -> list[Node]:
        if self._finally is None and self._on_failure is None and not has_compensation(nodes):
            return nodes
        bound = self.parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        return [*nodes, *make_job_handlers(nodes, self._finally, self._on_failure, bound.arguments)]

    def _combine_nodes(self, nodes: list[Node], returned: object) -> list[Node]:
        items = cast("Sequence[object]", returned) if isinstance(returned, list | tuple) else [returned]
        combined = [*nodes, *(item for item in items if isinstance(item, Task | Group))]
        is_empty = isinstance(returned, list) and not returned
        if combined or is_empty or (returned is None and current_scope() is not None):
            return combined
        what = "" if returned is None else f"returned a value of type {type(cast('object', returned)).__name__} and "
        raise SubmitError(
            f"@job {self.name}() {what}created no task.\n\n{describe_function(self.function)}\n",
            remedy="A @job calls @task functions, which compute the values; its own code only connects them. "
            "It returns the tasks of create_task(…), and 'return []' if there is nothing to do.",
        )


@contextmanager
def _collect_nodes() -> Generator[list[Node]]:
    """Collect the tasks that are created inside the block."""
    nodes: list[Node] = []
    token = _built_nodes.set(nodes)
    try:
        yield nodes
    finally:
        _built_nodes.reset(token)
    for node in nodes:
        if isinstance(node, ResultTask):  # tests inspect the tasks of a built job
            cast("Any", node).__class__ = Task


async def _add_to_running_job(nodes: Sequence[Node]) -> Task | list[Task] | None:
    """Add nodes to the running job; returns the tasks without dependents: their results are its result."""
    collected = collect_unsubmitted(nodes)
    tasks = [node for node in collected if isinstance(node, Task)]
    dependents = [node for node in collected if not isinstance(node, Task) or not is_handler(node)]
    required_ids = {upstream.id for node in dependents for upstream in node.predecessors}
    required_ids |= {upstream.id for task in tasks for upstream in iter_instances(task.kwargs, Task)}
    last_tasks = [
        task
        for task in tasks
        if task.id not in required_ids
        and (task.group is None or task.group.id not in required_ids)
        and not is_handler(task)
    ]
    await get_current_context().apply(nodes)
    return last_tasks[0] if len(last_tasks) == 1 else last_tasks or None


@overload
def job(function: Callable[P, object], /) -> JobFunction[P]: ...
@overload
def job(**options: Unpack[JobKeywords]) -> Callable[[Callable[P, object]], JobFunction[P]]: ...
def job(function: Callable[..., object] | None = None, /, **options: Unpack[JobKeywords]) -> Any:
    """Decorator: calls of the function submit the tasks that it creates as a job.

    `finally_` runs when all tasks have ended in any way, `on_failure` if one of them has failed: functions with
    parameters that are named like those of the job, and one for the TaskFailure. With `pin_version`, only workers with
    the code version of the caller, or with the one named, run the tasks.

    ```python
    @job(schedule="0 3 * * *", tags={"team": "sales"})
    def nightly_total(day: NominalDate) -> None:
        total(load(str(day)))
    ```
    """
    for option in options:
        elsewhere = f"{option!r} is an option of @task." if option in TaskKeywords.__annotations__ else ""
        check_keywords({option: None}, JobKeywords.__annotations__, "@job", elsewhere)

    def decorate(function: Callable[..., object]) -> JobFunction[Any]:
        return JobFunction[Any](function, options)

    return decorate if function is None else decorate(function)
