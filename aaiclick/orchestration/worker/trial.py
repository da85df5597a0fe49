"""What `run_job_test` does: a worker process's work, in this process, until one job has ended."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from aaiclick.local import clickhouse_target, postgres_target
from aaiclick.orchestration.graph import Job
from aaiclick.orchestration.loops import router
from aaiclick.orchestration.worker.isolated import Isolation
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.orders import Duty, Setup
from aaiclick.orchestration.worker.process import WorkerProcess
from aaiclick.orchestration.worker.setup import make_executor
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.store import queue, reads, supervision
from aaiclick.store.engine import connect
from aaiclick.store.migrate import prepare

LOOK_SECONDS = 0.02
CONCURRENCY = 16


async def run_until_job_ends(job_id: int) -> Job:
    """Run tasks here until the job has ended; returns the job as it is then."""
    settings = get_settings()
    postgres, clickhouse = await postgres_target(settings), await clickhouse_target(settings)
    await prepare(postgres, embedded=settings.postgres is None)
    directory = get_logs_dir(settings)
    with captured_output():
        setup = Setup(postgres, clickhouse, directory, settings.task_modules, (), str(Path.cwd()))
        connection = await connect(postgres)
        try:
            me = await queue.register_worker(
                connection,
                hostname=socket.gethostname(),
                pid=os.getpid(),
                pool_size=CONCURRENCY,
                log_directory=directory,
            )
            duty = Duty(
                worker_id=me.id,
                queues=(),
                concurrency=CONCURRENCY,
                lease_seconds=settings.job_default_timeout_seconds,
                task_timeout_seconds=settings.worker_task_timeout_seconds,
                grace_seconds=0,
                log_directory=directory,
            )
            executor = await make_executor(setup, threads=CONCURRENCY, in_process=True)
            isolation = Isolation(setup, 1, executor.transport)
            process = WorkerProcess(duty, executor.transport, executor, isolation)
            work = asyncio.create_task(process.run())
            try:
                while (row := await reads.get_job(connection, job_id)) is None or row["completed_at"] is None:
                    if work.done():
                        work.result()
                    await router.run_once(connection)
                    await supervision.renew_task_leases(connection, [me.id])
                    await asyncio.sleep(LOOK_SECONDS)
            finally:
                process.stop()
                await work
                await isolation.close()
                await executor.close()
                await queue.deregister_worker(connection, me.id)
            return Job.from_row(row)
        finally:
            await connection.close()
