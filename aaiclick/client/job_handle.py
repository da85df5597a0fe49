"""Handle of a job: its state, progress, result and logs, through the client or the local databases."""

from __future__ import annotations

import ast
import time

from aaiclick.api.job_html import render_job
from aaiclick.api.jobs import GroupProgress, Job
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.errors import JobFailedError

POLL_SECONDS = 0.1
MAX_POLL_SECONDS = 1.0


class JobHandle:
    """A submitted job: `JobHandle(client, job_id).result()`. In a notebook it is shown with its progress."""

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

        Plain values are returned as such, tables as text: read them with `export_object`. Raises JobFailedError if the
        job has failed or was cancelled.
        """
        job = self.wait(timeout_seconds)
        if job.status != "COMPLETED":
            raise JobFailedError(
                f"Job {self.id} ({job.name}) is {job.status}: {job.error or 'it was cancelled.'}",
                remedy="Its output is in `logs()`.",
            )
        values = [_parse_value(result.value) for result in self._endpoints.get_job_results(self.id)]
        return None if not values else values[0] if len(values) == 1 else values

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

    def _repr_html_(self) -> str:
        job = self.get_job()
        return render_job(
            job.name, job.id, job.status, job.error, self.progress(), job.started_at, job.completed_at
        )  # fmt: skip


def _parse_value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
