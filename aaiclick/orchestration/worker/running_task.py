"""A claimed task in this process: its log, its deadline, and how it is stopped."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from aaiclick.errors import AaiclickError
from aaiclick.orchestration.worker.log_shipping import spool_path
from aaiclick.orchestration.worker.logs import TaskLog
from aaiclick.store.engine.leases_and_outcomes import Claim


class StopReason(Enum):
    """Reason why a task is stopped before it finishes."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lease lost"
    RELEASED = "released"


class TaskStopped(BaseException):
    """Raised in the thread of a task that is stopped."""


@dataclass(slots=True)
class RunningTask:
    """A claimed task in this process, started or about to start."""

    claim: Claim
    log: TaskLog
    timeout_seconds: float
    deadline: float
    began: float | None = None
    """Start time by the monotonic clock."""
    is_reported: bool = False
    is_started: bool = False
    asyncio_task: asyncio.Task[Any] | None = None
    thread: int | None = None
    stop_reason: StopReason | None = None
    stop_requested_at: float = 0.0
    """Time of `request_stop` by the monotonic clock."""
    outage: AaiclickError | None = None
    """The outage that delays publishing its result: not charged, even if the task times out meanwhile."""
    before_call: Callable[[RunningTask], Awaitable[None]] | None = None
    """Called before the code of the task, if it must not run twice."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def request_stop(self, reason: StopReason) -> None:
        """Request the task to stop; later reasons are ignored."""
        if self.stop_reason is not None or self.asyncio_task is None:
            return
        self.stop_reason, self.stop_requested_at = reason, time.monotonic()
        if not self.is_started:
            return  # a coroutine that is cancelled before its first step never runs, so it would report no outcome
        with self.lock:
            if self.thread is not None:
                raise_in_thread(self.thread)
                return
        self.asyncio_task.cancel()


def raise_in_thread(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TaskStopped))


def make_running_task(
    claim: Claim, log_directory: Path, default_timeout_seconds: float, *, spooled: bool = False
) -> RunningTask:
    """Make a RunningTask of a claim. A spooled log has a file per attempt, which is sent to the server."""
    seconds = claim.timeout_seconds or default_timeout_seconds
    file = spool_path(log_directory, claim.lease) if spooled else f"{log_directory}/{claim.lease.task_id}.log"
    log = TaskLog(file, claim.lease.attempt)
    return RunningTask(claim, log, seconds, time.monotonic() + seconds)
