"""Tasks that wait: for a time, an event, the end of a job, or a condition that is polled.

    paid = wait_for_event("order_paid", key="42", timeout_seconds=86_400)
    ship(paid)

A wait is a task. It runs for a moment to begin, and again to return its value; no worker is occupied in between.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.argument_serialisation import serialise_arguments
from aaiclick.orchestration.context import current_or_new_context
from aaiclick.orchestration.decorator_checks import check_keywords
from aaiclick.orchestration.decorators import TaskFunction, add_to_built_job
from aaiclick.orchestration.failure_paths import Handler
from aaiclick.orchestration.graph import Job, Task
from aaiclick.orchestration.retry_policy import PermanentError
from aaiclick.orchestration.task_context import JsonResult, current_scope, refuse_repeated
from aaiclick.store.engine import waits
from aaiclick.store.engine.leases_and_outcomes import MAX_WAIT_SECONDS, Wait
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskKeywords

P = ParamSpec("P")
R = TypeVar("R")

EVENT_KEEP_SECONDS = 86_400.0
"""How long an event ends waits that begin after it was sent."""


class _Required:
    """Marks a wait without a default: its timeout is a failure."""


_REQUIRED = _Required()


def sleep(seconds: float | Task) -> Any:
    """Task that completes after a time.

    ```python
    await create_job("in a minute", sleep(60) >> load.task())
    ```
    """
    if not isinstance(seconds, Task):
        check_seconds("sleep()", seconds)
    return _make_wait("run_sleep", {"seconds": seconds})


def until(moment: datetime) -> Any:
    """Task that completes at a time.

    ```python
    from datetime import UTC, datetime

    await create_job("at Christmas", until(datetime(2030, 12, 24, tzinfo=UTC)) >> load.task())
    ```
    """
    if not isinstance(moment, datetime) or moment.tzinfo is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SubmitError(f"until({moment!r:.60}) has no time zone.", remedy="Give an aware datetime.")
    return _make_wait("run_until", {"moment": moment.isoformat()})


def wait_for_event(
    name: str | Task,
    *,
    key: str | Task = "",
    timeout_seconds: float | None = None,
    default: Mapping[str, object] | _Required | None = _REQUIRED,
) -> Any:
    """Task that completes with the payload of an event: the first one of that name and key that has not expired.

    After `timeout_seconds` it returns `default`, or fails if there is none.

    ```python
    @job
    def ship(order: str) -> None:
        paid = wait_for_event("order_paid", key=order, timeout_seconds=86_400, default=None)
        load.task() << paid
    ```
    """
    arguments: dict[str, object] = {"name": name, "key": key}
    waits.check_event("-" if isinstance(name, Task) else name, "" if isinstance(key, Task) else key)
    return _make_wait("run_wait_for_event", _with_timeout(arguments, timeout_seconds, default))


def wait_for_job(job: Job | int | Task, *, timeout_seconds: float | None = None) -> Any:
    """Task that completes with the result of another job, and fails if that has failed or was cancelled.

    ```python
    await create_job("after the night", wait_for_job(await nightly()) >> load.task())
    ```
    """
    job_id = str(job.id) if isinstance(job, Job) else str(job) if isinstance(job, int) else job
    return _make_wait("run_wait_for_job", _with_timeout({"job_id": job_id}, timeout_seconds, _REQUIRED))


def sensor(
    *,
    poll_seconds: float,
    wait_seconds: float | None = None,
    on_failure: Handler | None = None,
    **options: Unpack[TaskKeywords],
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]:
    """Decorator: a task that is called every `poll_seconds` until it returns something other than None and False.

    After `wait_seconds` in total it fails. It holds no slot between polls. `on_failure` and the other options are those
    of `@task`.

    ```python
    @sensor(poll_seconds=30, wait_seconds=3600)
    def file_exists(path: str) -> bool:
        return Path(path).exists()
    ```
    """
    check_keywords(options, TaskKeywords.__annotations__, "@sensor")
    check_seconds("@sensor", poll_seconds)
    deadline_seconds = MAX_WAIT_SECONDS if wait_seconds is None else wait_seconds
    check_seconds("@sensor", deadline_seconds)
    again = Wait("poll", poll_seconds, deadline_seconds=deadline_seconds)

    def decorate(function: Callable[P, R]) -> TaskFunction[P, R]:
        @functools.wraps(function)
        async def poll_async(*args: P.args, **kwargs: P.kwargs) -> object:
            value: object = await cast("Awaitable[object]", function(*args, **kwargs))
            return again if value is None or value is False else value

        @functools.wraps(function)
        def poll(*args: P.args, **kwargs: P.kwargs) -> object:
            value = function(*args, **kwargs)
            return again if value is None or value is False else value

        poll_function = poll_async if inspect.iscoroutinefunction(function) else poll
        return TaskFunction(poll_function, DEFAULT_OPTIONS.change(options), on_failure)

    return decorate


async def send_event(
    name: str,
    payload: Mapping[str, object] | None = None,
    *,
    key: str = "",
    keep_seconds: float = EVENT_KEEP_SECONDS,
) -> int:
    """Send an event: tasks that wait for its name and key go on, and those that begin to within `keep_seconds`.

    Returns its id. `payload` is what they return: a JSON object.

    ```python
    await send_event("order_paid", {"euros": 20}, key="42")
    ```
    """
    refuse_repeated(f"send the event {name!r}")
    check_seconds("send_event()", keep_seconds)
    waits.check_event(name, key)
    where = f"The event {name!r:.80}"
    text, tasks = serialise_arguments(_check_payload(f"The payload of the event {name!r:.80}", payload or {}), where)
    if tasks:
        raise SubmitError(f"The event {name!r} contains a task.", remedy="Send plain JSON values.")
    scope = current_scope()
    org_id = DEFAULT_ORG_ID if scope is None else scope.org_id
    async with current_or_new_context() as context, context.connection() as connection:
        event_id, _ = await waits.send_event(connection, org_id, name, key, text, keep_seconds=keep_seconds)
    return event_id


def make_wait(entrypoint: str, kwargs: dict[str, object], name: str) -> Task:
    """Make the task of a wait, as part of the job that is being built."""
    task = Task(entrypoint, kwargs, name=name)
    add_to_built_job(task)
    return task


def _make_wait(function: str, kwargs: dict[str, object]) -> Task:
    return make_wait(f"{__name__}.{function}", kwargs, function.removeprefix("run_"))


def _with_timeout(
    arguments: dict[str, object], timeout_seconds: float | None, default: Mapping[str, object] | _Required | None
) -> dict[str, object]:
    if timeout_seconds is not None:
        check_seconds("A wait", timeout_seconds)
        arguments["timeout_seconds"] = timeout_seconds
    if not isinstance(default, _Required):
        arguments["default"] = None if default is None else dict(_check_payload("The default of a wait", default))
    return arguments


def _check_payload(what: str, payload: Mapping[str, object]) -> Mapping[str, object]:
    """The payload of an event; raises SubmitError if it is no JSON object."""
    if not isinstance(payload, Mapping) or not all(isinstance(name, str) for name in payload):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SubmitError(f"{what} is {payload!r:.60}.", remedy='Give a dict with text as keys: {"euros": 7}.')
    return payload


def check_seconds(where: str, seconds: float) -> None:
    """Raise SubmitError for a wait that is too long."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (is_number and 0 <= seconds <= MAX_WAIT_SECONDS):
        raise SubmitError(
            f"{where} has {seconds!r:.30} s.", remedy=f"Give 0 to {MAX_WAIT_SECONDS:.0f} seconds (a year)."
        )


# --- entrypoints ------------------------------------------------------------------------------------------------------


async def run_sleep(seconds: float, aaiclick_wait: object = None) -> Wait | None:
    """Wait once."""
    check_seconds("sleep()", seconds)
    return Wait("time", seconds) if aaiclick_wait is None else None


async def run_until(moment: str, aaiclick_wait: object = None) -> Wait | None:
    """Wait for a time; one in the past ends at once."""
    return Wait("time", at=datetime.fromisoformat(moment)) if aaiclick_wait is None else None


async def run_wait_for_event(
    name: str,
    key: str = "",
    timeout_seconds: float = MAX_WAIT_SECONDS,
    aaiclick_wait: Any = None,
    **default: Any,
) -> Wait | JsonResult | None:
    """Wait for an event; without one in time, return the default or fail."""
    if aaiclick_wait is None:
        return Wait("event", timeout_seconds, name=str(name), key=str(key))
    if "event" in aaiclick_wait:
        return JsonResult(aaiclick_wait["event"])
    if "default" not in default:
        event = f"{name}/{key}" if key else name
        raise PermanentError(
            f"There was no event {event} within {timeout_seconds:g} s.",
            remedy="Send it (aaiclick events send) and retry the job, or give the wait a default.",
        )
    return None if default["default"] is None else JsonResult(default["default"])


async def run_wait_for_job(
    job_id: str | int, timeout_seconds: float = MAX_WAIT_SECONDS, aaiclick_wait: Any = None
) -> object:
    """Wait for the end of a job; return its results."""
    if aaiclick_wait is None:
        return Wait("job", timeout_seconds, job_id=int(job_id))
    if "job" not in aaiclick_wait:
        raise PermanentError(
            f"Job {job_id} has not ended within {timeout_seconds:g} s.", remedy="Wait longer, or retry this job later."
        )
    ended = aaiclick_wait["job"]
    if ended["status"] != "COMPLETED":
        raise PermanentError(
            f"Job {job_id} ({ended['name']}) is {ended['status']}: {ended['error'] or 'cancelled'}",
            remedy=f"Retry that job first: aaiclick jobs retry {job_id}",
        )
    results = ended["results"]
    if all(isinstance(result, dict) for result in results) and len(results) == 1:
        return JsonResult(results[0])
    return results[0] if len(results) == 1 else results or None


async def run_wait_for_turn(job_id: str | None, aaiclick_wait: Any = None) -> Wait | None:
    """Wait for the end of an earlier job, whatever its outcome, before the other tasks of a limited job.

    Without a job the turn has come.
    """
    if job_id is None or aaiclick_wait is not None:
        return None
    return Wait("job", MAX_WAIT_SECONDS, job_id=int(job_id))
