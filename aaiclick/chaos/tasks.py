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

from aaiclick.chaos.history import PRINTED_LINES, record_attempt, record_event
from aaiclick.data import Object, create_object_from_value
from aaiclick.orchestration import PermanentError, Task, get_current_context
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


VALUES: tuple[Any, ...] = (7, {"a": [1, 2], "b": ["x", "y"]}, [1, None, 3], "text", {"one": 1.5})
"""Values that tasks return; each becomes an Object in ClickHouse."""


async def return_value(history: str, value_index: int, seconds: float = 0.0) -> Any:
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
