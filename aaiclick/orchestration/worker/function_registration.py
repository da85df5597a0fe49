"""Registration of the `@job` functions and schedules of a worker's modules when it starts."""

from __future__ import annotations

import asyncio
import logging

from aaiclick.errors import RequestError, ScheduleError, SubmitError
from aaiclick.orchestration.function_registry import collect_job_functions
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.worker.process_config import ProcessSetup, WorkerConfig
from aaiclick.store.postgres_connections import CONNECTION_ERRORS

RETRY_SECONDS = 5.0

_logger = logging.getLogger(__name__)


async def register_functions(gateway: WorkerGateway, setup: ProcessSetup, config: WorkerConfig) -> None:
    """Register what this process has imported, once; an outage is waited for, tasks run meanwhile."""
    named_modules = (*setup.imports, *setup.allowed_modules)
    if not config.registers_functions or not named_modules:
        return
    while True:
        try:
            jobs = collect_job_functions(named_modules, config.code_version)
            connection = await gateway.connect()
            try:
                await connection.register_functions(jobs)
            finally:
                await connection.close()
        except (SubmitError, ScheduleError, RequestError) as error:
            _logger.warning("The @job functions of %s were not registered: %s", ", ".join(named_modules), error)
            return
        except CONNECTION_ERRORS:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return
