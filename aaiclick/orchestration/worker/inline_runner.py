"""Inline runner of `run_job_test`: runs tasks in this process until a job has ended."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.api.approval_forms import check_answers
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.local import clickhouse_endpoint, postgres_endpoint
from aaiclick.orchestration.approvals import Decision
from aaiclick.orchestration.debugging import breakpoints_on, find_post_mortem
from aaiclick.orchestration.graph import Job
from aaiclick.orchestration.loops import event_router
from aaiclick.orchestration.process_code_version import known_code_version
from aaiclick.orchestration.worker.executor_factory import make_executor
from aaiclick.orchestration.worker.isolation import Isolation
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.process_config import ProcessSetup, WorkerConfig
from aaiclick.orchestration.worker.worker_process import WorkerProcess
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.store.engine import approvals, queries, queue, worker_leases
from aaiclick.store.enums import DEFAULT_QUEUE
from aaiclick.store.migrate import prepare_schema
from aaiclick.store.postgres_connections import connect

if TYPE_CHECKING:
    from asyncpg import Record

    from aaiclick.store.postgres_connections import Connection

POLL_SECONDS = 0.02
CONCURRENCY = 16


@contextmanager
def _captured_with_breakpoints() -> Generator[None]:
    with breakpoints_on(sys.stdout), captured_output():
        yield


async def run_until_job_ends(
    job_id: int, *, debug_queue: str | None = None, decisions: Mapping[str, Decision] = MappingProxyType({})
) -> Job:
    """Run tasks in this process until the job has ended; returns the job.

    `decisions` decide approvals by their titles. With `debug_queue`, only tasks of that queue and the default one run,
    one at a time and with the terminal's streams.
    """
    settings = get_settings()
    postgres, clickhouse = await postgres_endpoint(settings), await clickhouse_endpoint(settings)
    await prepare_schema(postgres, embedded=settings.postgres is None)
    log_directory = get_logs_dir(settings)
    with nullcontext() if debug_queue else _captured_with_breakpoints():
        setup = ProcessSetup(postgres, clickhouse, log_directory, settings.task_modules, (), str(Path.cwd()))
        connection = await connect(postgres)
        try:
            worker = await queue.register_worker(
                connection,
                hostname=socket.gethostname(),
                pid=os.getpid(),
                pool_size=CONCURRENCY,
                log_directory=log_directory,
                code_version=known_code_version(),
            )
            config = WorkerConfig(
                worker_id=worker.id,
                queues=() if debug_queue is None else (debug_queue, DEFAULT_QUEUE),
                concurrency=CONCURRENCY if debug_queue is None else 1,
                lease_seconds=settings.job_default_timeout_seconds,
                task_timeout_seconds=settings.worker_task_timeout_seconds,
                grace_seconds=0,
                log_directory=log_directory,
            )
            executor = await make_executor(setup, threads=CONCURRENCY, in_process=True)
            executor.open_debugger = find_post_mortem()
            isolation = Isolation(setup, 1, executor.gateway)
            process = WorkerProcess(config, executor.gateway, executor, isolation)
            process_task = asyncio.create_task(process.run())
            try:
                while (row := await _load_job(connection, job_id))["completed_at"] is None:
                    if process_task.done():
                        process_task.result()
                    await event_router.run_once(connection)
                    if decisions:
                        await _decide_approvals(connection, row["org_id"], decisions)
                    await worker_leases.renew_task_leases(connection, [worker.id])
                    await asyncio.sleep(POLL_SECONDS)
            finally:
                process.stop()
                await process_task
                await isolation.close()
                await executor.close()
                await queue.deregister_worker(connection, worker.id)
            return Job.from_row(row)
        finally:
            await connection.close()


async def _load_job(connection: Connection, job_id: int) -> Record:
    row = await queries.get_job(connection, job_id)
    if row is None:
        raise NotFoundError(
            f"There is no job {job_id} in the database of this process.",
            remedy="Submit it with the same settings of the database, and do not delete it while it runs.",
        )
    return row


async def _decide_approvals(connection: Connection, org_id: UUID, decisions: Mapping[str, Decision]) -> None:
    waiting = await approvals.list_approvals(connection, org_id, only_waiting=True, before=queries.LAST_ID, limit=1_000)
    for approval in waiting:
        if (decision := decisions.get(approval.title)) is not None:
            form = None if approval.form is None else json.loads(approval.form)
            answers = check_answers(form, decision.values) if decision.approved else {}
            chosen = approvals.RecordedDecision(decision.approved, decision.by, decision.reason, answers)
            with suppress(ConflictError):  # it has timed out meanwhile
                await approvals.decide_approval(connection, approval.id, chosen)
