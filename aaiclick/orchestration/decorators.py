"""`@task` and `@job`: functions as steps and workflows.

    @task(retries=5, timeout_seconds=60)
    async def load(path: str) -> Object: ...

    @task
    async def clean(rows: Object) -> Object: ...

    @job
    def pipeline(path: str) -> None:
        clean(load(path))

    job = await pipeline("data.csv")

Calling a task function runs nothing: it makes a Task, and a Task given as an argument stands for its result, so
arguments wire dependencies. A type checker sees the value that the function will return, and with that checks
arguments; `load.task(...)` is the same call for those who want to write `>>`. The function itself is `load.function`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from aaiclick.errors import SubmitError
from aaiclick.orchestration.arguments import found_in
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.factories import create_job, entrypoint_of
from aaiclick.orchestration.graph import Group, Job, Node, Task
from aaiclick.orchestration.planning import closure

P = ParamSpec("P")
R = TypeVar("R")

MOST_RESULTS = 100
"""Results of a job that a task answers for."""

_building: ContextVar[list[Node] | None] = ContextVar("aaiclick_building", default=None)


def note_built(node: Node) -> None:
    """A node made while a @job is put together belongs to it."""
    nodes = _building.get()
    if nodes is not None:
        nodes.append(node)


class TaskFunction(Generic[P, R]):
    """A function whose calls are tasks."""

    def __init__(self, function: Callable[P, Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._options = dict(options)
        self._signature = inspect.signature(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """A Task of this call (what a checker sees is the value it will return)."""
        return cast("R", self.task(*args, **kwargs))

    def task(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """A Task of this call."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise SubmitError(f"{self.function.__qualname__}() cannot be called so: {error}.") from None
        made = Task(entrypoint_of(self.function), self._by_name(bound), name=self.function.__name__, **self._options)
        note_built(made)
        return made

    def options(self, **changes: Any) -> TaskFunction[P, R]:
        """The same function with other options, for some calls."""
        return TaskFunction(self.function, {**self._options, **_options(**changes)})

    def _by_name(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        arguments = dict(bound.arguments)
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(name, {}))
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) and arguments.get(name):
                raise SubmitError(
                    f"{self.function.__qualname__}() takes {name!r} by position.",
                    remedy="A task's arguments have names.",
                )
        return arguments


def _options(
    *,
    retries: int | None = None,
    retry_policy: Mapping[str, Any] | None = None,
    timeout_seconds: float | None = None,
    priority: int = 0,
    queue: str = "default",
    concurrency_key: str | None = None,
    concurrency_limit: int | None = None,
    run_at: datetime | None = None,
    critical: bool = True,
) -> dict[str, Any]:
    return {
        "max_attempts": None if retries is None else retries + 1,
        "retry_policy": retry_policy,
        "timeout_seconds": timeout_seconds,
        "priority": priority,
        "queue": queue,
        "concurrency_key": concurrency_key,
        "concurrency_limit": concurrency_limit,
        "run_at": run_at,
        "critical": critical,
    }


@overload
def task(function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R]: ...
@overload
def task(
    *,
    retries: int | None = None,
    retry_policy: Mapping[str, Any] | None = None,
    timeout_seconds: float | None = None,
    priority: int = 0,
    queue: str = "default",
    concurrency_key: str | None = None,
    concurrency_limit: int | None = None,
    run_at: datetime | None = None,
    critical: bool = True,
) -> _Decorator: ...
def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function's calls tasks, with these options."""
    if function is not None:
        return TaskFunction[Any, Any](function, {})
    return _Decorator(_options(**options))


class _Decorator:
    """`@task(...)` before it meets its function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return TaskFunction[Any, Any](function, self._options)


class JobFunction(Generic[P]):
    """A function that puts tasks together; calling it submits them as a job."""

    def __init__(self, function: Callable[P, Any], name: str | None, timeout_seconds: float | None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self._timeout_seconds = timeout_seconds

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Put the tasks together and submit them."""
        return await create_job(self.name, self.build(*args, **kwargs), timeout_seconds=self._timeout_seconds)

    def build(self, *args: P.args, **kwargs: P.kwargs) -> list[Node]:
        """The tasks and groups, not submitted."""
        nodes: list[Node] = []
        token = _building.set(nodes)
        try:
            returned = self.function(*args, **kwargs)
        finally:
            _building.reset(token)
        extra: list[Any] = cast("list[Any]", returned) if isinstance(returned, list) else [returned]
        return [*nodes, *(node for node in extra if isinstance(node, Task | Group))]

    def as_task(self) -> Callable[P, Coroutine[Any, Any, Any]]:
        """For a job that was made by this function's name: puts the tasks together and adds them to that job."""

        @functools.wraps(self.function)
        def work(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Any]:
            return _added(self.build(*args, **kwargs))

        return work


async def _added(nodes: Sequence[Node]) -> Any:
    """Add nodes to the running job; what they come to is what the tasks do that nothing waits for."""
    everything = closure(nodes)
    needed = {upstream.id for node in everything for upstream in node.previous}
    tasks = [node for node in everything if isinstance(node, Task)]
    needed |= {upstream.id for each in tasks for upstream in found_in(each.kwargs, Task)}
    last = [each for each in tasks if each.id not in needed and (each.group is None or each.group.id not in needed)]
    await get_current_context().apply(nodes)
    return last[0] if len(last) == 1 else last[:MOST_RESULTS] or None


@overload
def job(function: Callable[P, Any], /) -> JobFunction[P]: ...
@overload
def job(
    *, name: str | None = None, timeout_seconds: float | None = None
) -> Callable[[Callable[P, Any]], JobFunction[P]]: ...
def job(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, timeout_seconds: float | None = None
) -> Any:
    """Make a function that calls task functions a job."""
    if function is not None:
        return JobFunction[Any](function, name, timeout_seconds)

    def decorate(function: Callable[..., Any]) -> JobFunction[Any]:
        return JobFunction[Any](function, name, timeout_seconds)

    return decorate
