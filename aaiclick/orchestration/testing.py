"""`run_job_test`: runs a job to its end in this process, for tests and first steps."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Mapping
from dataclasses import fields

from aaiclick.orchestration.approvals import Decision
from aaiclick.orchestration.graph import Job


def run_job_test(job: Job, *, timeout_seconds: float = 300.0, decisions: Mapping[str, Decision] | None = None) -> Job:
    """Run a job's tasks in this process until the job has ended; updates the given job and returns it.

    It blocks, also if called from asynchronous code. Tasks run as in a worker, with retries and logs; tasks of other
    jobs in the same database may run as well. `decisions` decide approvals by their titles. Raises TimeoutError if the
    job takes longer.

    ```python
    run_job_test(await nightly("2026-11-16")).status  # <JobStatus.COMPLETED: 'COMPLETED'>
    ```
    """
    jobs: list[Job] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            # imported here, since submitting jobs does not need it
            inline_runner = importlib.import_module("aaiclick.orchestration.worker.inline_runner")
            running = inline_runner.run_until_job_ends(job.id, decisions=decisions or {})
            jobs.append(asyncio.run(asyncio.wait_for(running, timeout_seconds)))
        except BaseException as error:  # noqa: BLE001  (raised in the caller's thread)
            errors.append(error)

    thread = threading.Thread(target=run, name="aaiclick-run-job-test")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    for column in fields(job):
        setattr(job, column.name, getattr(jobs[0], column.name))
    return job
