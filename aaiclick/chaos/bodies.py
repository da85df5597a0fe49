"""What the tasks of a chaos run do. Each notes when it begins and when it ends, and is safe to run again.

Workers of other installations do not run these: AAICLICK_TASK_MODULES names this module for the run's own.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaiclick.chaos.history import PRINTED, note, note_attempt
from aaiclick.data import Object, create_object_from_value
from aaiclick.orchestration import PermanentError, Task, get_current_context
from aaiclick.orchestration.scope import current_scope
from aaiclick.orchestration.worker.logs import current_log


@contextmanager
def _noted(history: str) -> Generator[int]:
    """Between the begin and the end of this attempt; gives its number."""
    scope = current_scope()
    assert scope is not None  # noqa: S101
    lease, org = scope.lease, str(scope.org_id)
    note_attempt(history, "begin", lease.task_id, lease.attempt, org)
    yield lease.attempt
    note_attempt(history, "end", lease.task_id, lease.attempt, org)


def _print(history: str, word: str) -> None:
    """Print a line, and note it: it must be in the log from now on, whatever kills the process."""
    scope, log = current_scope(), current_log()
    assert scope is not None  # noqa: S101
    line = f"{word} in attempt {scope.lease.attempt}"
    print(line)  # noqa: T201  (into the task's log)
    if log is not None and log.is_complete and not os.path.ismount(log.path.parent):  # a full disk goes with its worker
        task, attempt = scope.lease.task_id, scope.lease.attempt
        note(Path(history), PRINTED, task=task, attempt=attempt, line=line, path=str(log.path))


VALUES: tuple[Any, ...] = (7, {"a": [1, 2], "b": ["x", "y"]}, [1, None, 3], "text", {"one": 1.5})
"""What tasks return: each becomes an Object in ClickHouse."""


async def valued(history: str, kind: int, seconds: float = 0.0) -> Any:
    """Prints, waits and returns a value."""
    with _noted(history):
        _print(history, "begun")
        await asyncio.sleep(seconds)
        _print(history, "ending")
        return VALUES[kind % len(VALUES)]


async def check_value(history: str, value: Object, kind: int) -> None:
    """Whether a value arrived as it was returned."""
    with _noted(history):
        found, wanted = await value.data(), VALUES[kind % len(VALUES)]
        if found != wanted:
            raise PermanentError(f"{found!r:.200} came of {wanted!r}.")


async def plain(history: str, seconds: float = 0.0) -> None:
    with _noted(history):
        await asyncio.sleep(seconds)


def blocking(history: str, seconds: float = 0.0) -> None:
    """In a thread."""
    with _noted(history):
        _print(history, "begun")
        time.sleep(seconds)


async def flaky(history: str, fails: int) -> None:
    """Fails that many times."""
    with _noted(history) as attempt:
        _print(history, "begun")
        if attempt <= fails:
            raise ConnectionError("A transient error, on purpose.")


async def poison(history: str) -> None:
    with _noted(history):
        raise ValueError("It never works, on purpose.")


async def grow(history: str, width: int) -> None:
    """Adds tasks to its own job."""
    with _noted(history):
        context = get_current_context()
        scope = current_scope()
        assert scope is not None  # noqa: S101
        assert scope.job_id is not None  # noqa: S101
        tasks = [Task(f"{__name__}.plain", {"history": history}) for _ in range(width)]
        await context.apply(tasks, scope.job_id)


def sell(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The source of the reactive DAG: what the payload brings."""
    return event["payload"]["rows"]


async def make(history: str, rows: int) -> Object:
    """An Object of the numbers from 0 on."""
    with _noted(history):
        return await create_object_from_value({"x": list(range(rows))})


def doubled(rows: pa.Table) -> pa.Table:
    """The callback of a map."""
    return pa.table({"x": [2 * x for x in rows["x"].to_pylist()]})


async def check(history: str, rows: Object, times: int, count: int) -> int:
    """Whether an Object holds the numbers from 0 on, so many times, in order."""
    with _noted(history):
        found = (await rows.data())["x"]
        if found != [times * x for x in range(count)]:
            raise PermanentError(f"{len(found):,} rows, and not {count:,} in order.")
        return count
