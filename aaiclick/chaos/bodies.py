"""What the tasks of a chaos run do. Each notes when it begins and when it ends, and is safe to run again.

Workers of other installations do not run these: AAICLICK_TASK_MODULES names this module for the run's own.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from aaiclick.chaos.history import note_attempt
from aaiclick.data import Object, create_object_from_value
from aaiclick.orchestration import PermanentError, Task, get_current_context
from aaiclick.orchestration.scope import current_scope


@contextmanager
def _noted(history: str) -> Generator[int]:
    """Between the begin and the end of this attempt; gives its number."""
    scope = current_scope()
    assert scope is not None  # noqa: S101
    lease, org = scope.lease, str(scope.org_id)
    note_attempt(history, "begin", lease.task_id, lease.attempt, org)
    yield lease.attempt
    note_attempt(history, "end", lease.task_id, lease.attempt, org)


async def plain(history: str, seconds: float = 0.0) -> None:
    with _noted(history):
        await asyncio.sleep(seconds)


def blocking(history: str, seconds: float = 0.0) -> None:
    """In a thread."""
    with _noted(history):
        time.sleep(seconds)


async def flaky(history: str, fails: int) -> None:
    """Fails that many times."""
    with _noted(history) as attempt:
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
