"""Jobs without `await`, for notebooks and scripts.

    from aaiclick.orchestration import sync

    handle = sync.submit(nightly("2026-11-16"))
    print(handle.result())

A worker must be running: `aaiclick dev` or `aaiclick worker start`.
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Coroutine
from typing import Any

from aaiclick.api.job_html import render_job
from aaiclick.api.jobs import GroupProgress
from aaiclick.data.sync import run
from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Job

POLL_SECONDS = 0.2


class SyncJob:
    """A submitted job. Its methods block until the asynchronous ones have finished."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __repr__(self) -> str:
        return f"SyncJob({self.job.id}, {self.job.name!r}, {self.job.status.value})"

    @property
    def id(self) -> int:
        return self.job.id

    def status(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED or CANCELLED, as of now."""
        return run(self.job.refresh()).status.value

    def progress(self) -> list[GroupProgress]:
        """Numbers of tasks of each group; the group "" has the tasks without a group."""
        return run(self.job.progress())

    def wait(self, timeout_seconds: float | None = None) -> SyncJob:
        """Wait until a worker has run the job; raises TimeoutError."""
        run(self.job.wait(timeout_seconds))
        return self

    def result(self, annotation: Any = None, *, timeout_seconds: float | None = None) -> Any:
        """Wait for the job and return the result of its final task; see `Job.result`."""
        return run(self.job.result(annotation, timeout_seconds=timeout_seconds))

    def logs(self) -> str:
        """Output of the job's tasks so far."""
        return run(self.job.logs())

    def cancel(self) -> bool:
        """Cancel the job; False if it had ended before."""
        return run(self.job.cancel())

    def watch(self) -> SyncJob:
        """Show the job in a notebook, updated until it has ended."""
        display = importlib.import_module("IPython.display").display
        shown = display(self, display_id=True)
        while self.status() not in ("COMPLETED", "FAILED", "CANCELLED"):
            time.sleep(POLL_SECONDS)
            shown.update(self)
        shown.update(self)
        return self

    def _repr_html_(self) -> str:
        job, progress = run(self.job.refresh()), self.progress()
        return render_job(
            job.name, job.id, job.status.value, job.error, progress, job.started_at, job.completed_at
        )  # fmt: skip


def submit(job: Coroutine[object, object, Job]) -> SyncJob:
    """Submit a job, the call of a `@job` function, and return its handle."""
    if not inspect.isawaitable(job):
        name = getattr(job, "__name__", type(job).__name__)
        raise SubmitError(f"{name} is not the call of a @job function.", remedy=f"Write submit({name}(…)).")
    return SyncJob(run(job))
