"""Task functions of a chaos run. Each records its begin and its end, and is idempotent.

Workers of other installations cannot run these: AAICLICK_TASK_MODULES names this module only for the run's own workers.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaiclick.chaos.history import (
    BATCHED,
    DEBOUNCED,
    FINAL_TASKS,
    PRINTED_LINES,
    STEPS,
    UNDONE_STEPS,
    record_attempt,
    record_event,
)
from aaiclick.data import Object, create_object_from_value
from aaiclick.orchestration import (
    Branch,
    Job,
    PermanentError,
    Task,
    TaskFailure,
    create_job,
    get_current_context,
    handler,
    sensor,
    task,
)
from aaiclick.orchestration.task_context import current_scope
from aaiclick.orchestration.worker.logs import current_log


@contextmanager
def _record_attempt(history: str) -> Generator[int]:
    """Record begin and end of this attempt; yields its number."""
    scope = current_scope()
    assert scope is not None  # noqa: S101
    lease, org = scope.lease, str(scope.org_id)
    record_attempt(history, "begin", lease.task_id, lease.attempt, org)
    yield lease.attempt
    record_attempt(history, "end", lease.task_id, lease.attempt, org)


def _print_line(history: str, step: str) -> None:
    """Print a line and record it: from now on it must be in the log, even after kill -9."""
    scope, log = current_scope(), current_log()
    assert scope is not None  # noqa: S101
    line = f"{step} in attempt {scope.lease.attempt}"
    print(line)  # noqa: T201  (into the task's log)
    if (
        log is not None and log.is_complete and not os.path.ismount(log.path.parent)
    ):  # a full disk is removed with its worker
        task, attempt = scope.lease.task_id, scope.lease.attempt
        record_event(Path(history), PRINTED_LINES, task=task, attempt=attempt, line=line, path=str(log.path))


VALUES: tuple[object, ...] = (7, {"a": [1, 2], "b": ["x", "y"]}, [1, None, 3], "text", {"one": 1.5})
"""Values that tasks return; each becomes an Object in ClickHouse."""


async def return_value(history: str, value_index: int, seconds: float = 0.0) -> object:
    """Print, wait and return a value."""
    with _record_attempt(history):
        _print_line(history, "begun")
        await asyncio.sleep(seconds)
        _print_line(history, "ending")
        return VALUES[value_index % len(VALUES)]


async def check_value(history: str, value: Object, value_index: int) -> None:
    """Check that a value arrived as it was returned."""
    with _record_attempt(history):
        actual, expected = await value.data(), VALUES[value_index % len(VALUES)]
        if actual != expected:
            raise PermanentError(f"Expected {expected!r}, got {actual!r:.200}.")


async def plain(history: str, seconds: float = 0.0) -> None:
    with _record_attempt(history):
        await asyncio.sleep(seconds)


def blocking(history: str, seconds: float = 0.0) -> None:
    """Block a thread."""
    with _record_attempt(history):
        _print_line(history, "begun")
        time.sleep(seconds)


async def flaky(history: str, fails: int) -> None:
    """Fail the given number of times."""
    with _record_attempt(history) as attempt:
        _print_line(history, "begun")
        if attempt <= fails:
            raise ConnectionError("A transient error, on purpose.")


async def poison(history: str) -> None:
    with _record_attempt(history):
        raise ValueError("It never works, on purpose.")


async def add_tasks(history: str, width: int) -> None:
    """Add tasks to its own job."""
    with _record_attempt(history):
        context = get_current_context()
        scope = current_scope()
        assert scope is not None  # noqa: S101
        assert scope.job_id is not None  # noqa: S101
        tasks = [Task(f"{__name__}.plain", {"history": history}) for _ in range(width)]
        await context.apply(tasks, scope.job_id)


async def choose_branch(history: str) -> Branch:
    """Choose the dependent `plain`; the others are skipped."""
    with _record_attempt(history):
        return Branch("plain")


async def submit_child(history: str, key: str) -> Job:
    """Submit a child job, and wait for it without a worker."""
    with _record_attempt(history):
        return await create_job(f"child {key}", Task(f"{__name__}.plain", {"history": history}))


async def run_step(history: str, key: str, number: int) -> int:
    """A step of a saga."""
    with _record_attempt(history):
        scope = current_scope()
        assert scope is not None  # noqa: S101
        record_event(Path(history), STEPS, key=key, number=number, task=scope.lease.task_id)
        return number


async def undo_step(history: str, key: str, result: int) -> None:
    """Undo a step of a saga."""
    with _record_attempt(history):
        record_event(Path(history), UNDONE_STEPS, key=key, number=result)


async def undo_plain(history: str) -> None:
    """Undo a step of a job that exceeded its timeout."""
    with _record_attempt(history):
        _print_line(history, "undone")


async def fail_first(history: str) -> None:
    """Fail in the first attempt."""
    with _record_attempt(history) as attempt:
        if attempt == 1:
            raise ValueError("The first attempt fails, on purpose.")


async def fail_finally(history: str) -> None:
    with _record_attempt(history):
        raise PermanentError("The last step fails, on purpose.")


async def check_event(history: str, payload: dict[str, Any], key: str) -> None:
    """Check the payload of an event that another task has waited for."""
    with _record_attempt(history):
        if payload != {"key": key}:
            raise PermanentError(f"Expected the event of {key!r}, got {payload!r:.200}.")


@sensor(poll_seconds=0.3)
async def poll(history: str, polls: int) -> bool:
    """Succeed at the given poll."""
    with _record_attempt(history) as attempt:
        return attempt >= polls


async def run_final(history: str, key: str) -> None:
    """The final task of a job."""
    with _record_attempt(history):
        record_event(Path(history), FINAL_TASKS, key=key)


async def note_failure(failure: TaskFailure, history: str) -> None:
    """The failure handler of a job."""
    with _record_attempt(history):
        _print_line(history, failure.error[:20])


async def run_debounced(history: str, key: str, number: int) -> None:
    with _record_attempt(history):
        record_event(Path(history), DEBOUNCED, key=key, number=number)


async def run_merged(history: str, key: str, **numbers: int) -> None:
    """Run the numbers of several payloads."""
    with _record_attempt(history):
        for number in numbers.values():
            record_event(Path(history), DEBOUNCED, key=key, number=number)


@task(cache="1d")
async def cached_value(history: str, value_index: int) -> object:
    """Return a value; with the same arguments, the worker reuses the first result."""
    with _record_attempt(history):
        return VALUES[value_index % len(VALUES)]


BATCH_TYPE, ITEM_TYPE = "chaos_batch", "chaos_item"


@handler(BATCH_TYPE, batch=10, within="1s")
async def run_batch(items: list[dict[str, Any]]) -> list[object]:
    """One verdict for each item."""
    record_event(Path(items[0]["history"]), BATCHED, names=[item["name"] for item in items])
    return [item["name"] if item["is_valid"] else ValueError("It never works, on purpose.") for item in items]


@handler(ITEM_TYPE)
async def run_scheduled_item(history: str) -> None:
    with _record_attempt(history):
        await asyncio.sleep(0)


def sell(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The source of the reactive DAG: returns the rows of the payload."""
    return event["payload"]["rows"]


async def make_object(history: str, rows: int) -> Object:
    """Return an Object with the numbers from 0."""
    with _record_attempt(history):
        return await create_object_from_value({"x": list(range(rows))})


def double_rows(rows: pa.Table) -> pa.Table:
    """The function of a map."""
    return pa.table({"x": [2 * x for x in rows["x"].to_pylist()]})


async def check_rows(history: str, rows: Object, times: int, count: int) -> int:
    """Check that an Object has `count` numbers from 0, multiplied by `times`, in order."""
    with _record_attempt(history):
        actual = (await rows.data())["x"]
        if actual != [times * x for x in range(count)]:
            raise PermanentError(f"Expected {count:,} rows in order, got {len(actual):,}.")
        return count
