"""Handle of a job: its state, progress, result and logs, through the client or the local databases."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence

from aaiclick.api.job_html import render_job
from aaiclick.api.jobs import GroupProgress, Job, JobResult
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.errors import JobFailedError

POLL_SECONDS = 0.1
MAX_POLL_SECONDS = 1.0


class JobHandle:
    """A submitted job: `JobHandle(client, job_id).result()`. In a notebook it is shown with its progress.

    ```python
    with Client(url, key) as client:
        handle = JobHandle(client, client.create_job("nightly", "shop.load").id)
        print(handle.status(), handle.logs())
    ```
    """

    def __init__(self, endpoints: SyncEndpoints, job_id: int) -> None:
        self._endpoints = endpoints
        self.id = job_id

    def __repr__(self) -> str:
        return f"JobHandle({self.id})"

    def get_job(self) -> Job:
        """The job with all its fields."""
        return self._endpoints.get_job(self.id)

    def status(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED or CANCELLED."""
        return self.get_job().status

    def progress(self) -> list[GroupProgress]:
        """Numbers of tasks of each group; the group "" has the tasks without a group."""
        return self._endpoints.get_job_progress(self.id)

    def wait(self, timeout_seconds: float | None = None) -> Job:
        """Wait until the job has ended and return it; raises TimeoutError."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = POLL_SECONDS
        while (job := self.get_job()).completed_at is None:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"Job {self.id} has not ended after {timeout_seconds:g} s.")
            time.sleep(pause)
            pause = min(pause * 1.2, MAX_POLL_SECONDS)
        return job

    def result(self, timeout_seconds: float | None = None) -> object:
        """Wait for the job and return the result of its final task, or a list if it has several.

        Values are JSON values (a date is text), and of tables the first rows as text: read them with `export_object`.
        Raises JobFailedError if the job has failed or was cancelled.
        """
        check_completed(self.wait(timeout_seconds))
        return combine_results(list(iter_job_results(self._endpoints, self.id)))

    def logs(self) -> str:
        """Output of the job's tasks so far, each after a line with its name."""
        texts = [(f"{task.type} (task {task.id})", self._read_log(task.id)) for task in
                 self._endpoints.list_tasks(self.id)]  # fmt: skip
        return "\n".join(f"--- {name}\n{text}" for name, text in texts if text)

    def cancel(self) -> bool:
        """Cancel the job; False if it had ended before."""
        return self._endpoints.cancel_job(self.id).outcome != "over"

    def _read_log(self, task_id: int) -> str:
        text, offset = "", 0
        while True:
            part = self._endpoints.read_task_log(task_id, offset=offset)
            text += part.text
            if part.next_offset == offset:
                return text
            offset = part.next_offset

    def watch(self) -> JobHandle:
        """Show the job in a notebook, updated until it has ended."""
        display = importlib.import_module("IPython.display").display
        shown = display(self, display_id=True)
        while self.get_job().completed_at is None:
            time.sleep(POLL_SECONDS)
            shown.update(self)
        shown.update(self)
        return self

    def _repr_html_(self) -> str:
        job = self.get_job()
        return render_job(
            job.name, job.id, job.status, job.error, self.progress(), job.started_at, job.completed_at
        )  # fmt: skip


def iter_job_results(endpoints: SyncEndpoints, job_id: int) -> Iterator[JobResult]:
    """All results of a job, in pages."""
    after = 0
    while page := endpoints.get_job_results(job_id, after=after):
        yield from page
        after = page[-1].task_id


def check_completed(job: Job) -> None:
    """Raise JobFailedError unless a job has completed."""
    if job.status != "COMPLETED":
        raise JobFailedError(
            f"Job {job.id} ({job.name}) is {job.status}: {job.error or 'it was cancelled.'}",
            remedy="Its output is in `logs()`.",
        )


def combine_results(results: Sequence[JobResult]) -> object:
    """The value of the only result, or a list of the values; None if there are none."""
    values = [result.value if result.data is None else result.data for result in results]
    return None if not values else values[0] if len(values) == 1 else values
