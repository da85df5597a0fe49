"""`run_job_test`: a job run to its end here and now, for tests and for a first look."""

from __future__ import annotations

import asyncio
import importlib
import threading
from dataclasses import fields

from aaiclick.orchestration.graph import Job


def run_job_test(job: Job, *, timeout_seconds: float = 300.0) -> Job:
    """Run a job's tasks in this process until the job has ended; updates the given job and returns it.

    It blocks, whether called from ordinary or from asynchronous code. Tasks run as in a worker, with retries and logs;
    tasks of other jobs in the same database may run along. Raises TimeoutError if the job takes longer.
    """
    outcome: list[Job] = []
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            # imported here: submitting jobs does not need all that running them does
            trial = importlib.import_module("aaiclick.orchestration.worker.trial")
            outcome.append(asyncio.run(asyncio.wait_for(trial.run_until_job_ends(job.id), timeout_seconds)))
        except BaseException as error:  # noqa: BLE001  (carried over to the caller's thread)
            trouble.append(error)

    thread = threading.Thread(target=run, name="aaiclick-run-job-test")
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    for column in fields(job):
        setattr(job, column.name, getattr(outcome[0], column.name))
    return job
