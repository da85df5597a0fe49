"""Lambda handler: a worker that runs one task per invocation.

    handler: aaiclick.orchestration.worker.lambda_handler.handle

The event contains the claimed task (see `runtimes.lambda_invoke`). The function has AAICLICK_SERVER and
AAICLICK_API_KEY in its environment and no credential of a database: it fetches that from the server with its lease. It
renews the lease while it runs and reports the outcome under it, so that a duplicate or late event has no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import replace
from pathlib import Path

from aaiclick.api.worker_protocol import endpoints
from aaiclick.api.worker_protocol.claims import FetchRequest, FetchResponse
from aaiclick.errors import LeaseLost, SettingsError
from aaiclick.orchestration.gateway import GatewayConnection
from aaiclick.orchestration.gateway.http_client import worker_api_client
from aaiclick.orchestration.process_code_version import current_code_version
from aaiclick.orchestration.worker.executor import Executor
from aaiclick.orchestration.worker.executor_factory import make_executor
from aaiclick.orchestration.worker.failure_outcomes import Outcome
from aaiclick.orchestration.worker.log_shipping import SHIP_SECONDS
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.process_config import ProcessSetup
from aaiclick.orchestration.worker.running_task import RunningTask, StopReason, make_running_task
from aaiclick.server_addresses import ServerEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, Success
from aaiclick.store.postgres_connections import CONNECTION_ERRORS
from aaiclick.tempdirs import temporary_directory

TICK_SECONDS = 0.25
SPARE_SECONDS = 5.0
"""Time before Lambda's own timeout that is reserved to report a timeout of the task."""

MAX_REPORT_TRIES = 5


def handle(event: dict[str, object], context: object = None) -> dict[str, str]:
    """Run the task of an event; returns its outcome for the function's log."""
    settings = get_settings()
    if settings.server is None or settings.api_key is None:
        raise SettingsError(
            "The Lambda function has no server configured.",
            remedy="Set AAICLICK_SERVER and AAICLICK_API_KEY.",
        )
    remaining_time = getattr(context, "get_remaining_time_in_millis", None)
    seconds = None if remaining_time is None else remaining_time() / 1000 - SPARE_SECONDS
    endpoint = ServerEndpoint(settings.server, settings.api_key.get_secret_value())
    with temporary_directory("aaiclick-logs-") as logs, captured_output():
        setup = ProcessSetup(endpoint, None, logs, settings.task_modules, (), str(Path.cwd()))
        return asyncio.run(LambdaInvocation(event, setup).run(seconds))


class LambdaInvocation:
    """Runs the task of one event."""

    def __init__(self, event: dict[str, object], setup: ProcessSetup) -> None:
        payload = FetchResponse.model_validate(event)
        self._claim, self._lease, self._worker_id = payload.task, payload.task.lease, payload.worker_id
        self._lease_seconds = min(payload.lease_seconds, payload.task.lease_seconds or math.inf)
        self._log_sent = 0
        self._setup = setup

    async def run(self, seconds: float | None) -> dict[str, str]:
        executor = await make_executor(self._setup, threads=1)
        connection = await executor.gateway.connect()
        try:
            claim = await self._fetch_claim()
            await connection.mark_running([self._lease])
        except LeaseLost:
            await executor.close()
            return self._summary("lost")
        timeout = get_settings().worker_task_timeout_seconds
        running = make_running_task(claim, self._setup.log_directory, timeout, spooled=True)
        if seconds is not None:
            running.deadline = min(running.deadline, time.monotonic() + seconds)
        try:
            return await self._run_with_watch(executor, connection, running)
        finally:
            await executor.close()

    async def _fetch_claim(self) -> Claim:
        """Fetch complete arguments and the ClickHouse endpoint; raises LeaseLost if the lease is lost."""
        assert isinstance(self._setup.work, ServerEndpoint)  # noqa: S101
        client = worker_api_client(self._setup.work)
        version = await asyncio.to_thread(current_code_version)
        response = await client.send_request(endpoints.FETCH, FetchRequest(lease=self._lease, code_version=version))
        client.clickhouse_access = response
        kwargs = response.task.kwargs if self._claim.kwargs == "null" else self._claim.kwargs
        return replace(self._claim, kwargs=kwargs, shared=response.task.shared)  # `shared` of the event is not trusted

    async def _run_with_watch(
        self, executor: Executor, connection: GatewayConnection, running: RunningTask
    ) -> dict[str, str]:
        execution = running.asyncio_task = asyncio.create_task(self._execute_task(executor, connection, running))
        watch = asyncio.create_task(self._watch_lease(connection, running))
        try:
            await asyncio.wait([execution])
            return execution.result()
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _execute_task(
        self, executor: Executor, connection: GatewayConnection, running: RunningTask
    ) -> dict[str, str]:
        running.is_started = True
        outcome = await executor.execute(running)
        running.asyncio_task = None  # the task has finished and cannot be stopped any more
        with contextlib.suppress(*CONNECTION_ERRORS):
            await connection.send_log(self._lease, running.log.path, self._log_sent)
        return await self._report_outcome(connection, outcome)

    async def _watch_lease(self, connection: GatewayConnection, running: RunningTask) -> None:
        """Renew the lease, check for cancellation and timeout, and send the log."""
        renewed_at = sent_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            if now > running.deadline:
                running.request_stop(StopReason.TIMEOUT)
            if now - sent_at > SHIP_SECONDS:
                sent_at = now
                with contextlib.suppress(*CONNECTION_ERRORS):
                    self._log_sent = await connection.send_log(self._lease, running.log.path, self._log_sent)
            if now - renewed_at < self._lease_seconds / 3:
                continue
            renewed_at = now
            with contextlib.suppress(*CONNECTION_ERRORS):  # the server may be back before the lease expires
                held = await connection.held_leases(self._worker_id)
                current = next((task for task in held if task.lease == self._lease), None)
                if current is None:
                    running.request_stop(StopReason.LOST)
                elif current.cancelled:
                    running.request_stop(StopReason.CANCELLED)
                await connection.renew_leases([self._worker_id], self._lease_seconds)

    async def _report_outcome(self, connection: GatewayConnection, outcome: Outcome | None) -> dict[str, str]:
        """Report the outcome, with retries, and end the worker of this invocation."""
        accepted: set[int] = set()
        for tries in range(MAX_REPORT_TRIES):
            try:
                accepted = await connection.acknowledge_and_claim(
                    worker_id=self._worker_id,
                    successes=[outcome] if isinstance(outcome, Success) else [],
                    failures=[outcome] if isinstance(outcome, Failure) else [],
                    releases=[outcome] if isinstance(outcome, Lease) else [],
                    limit=0,
                    queues=[],
                    lease_seconds=self._lease_seconds,
                    on_claimed=lambda _: None,
                )
                await connection.finish_worker(self._worker_id, [], None)
                break
            except CONNECTION_ERRORS:
                if tries == MAX_REPORT_TRIES - 1:
                    raise
                await asyncio.sleep(2**tries * TICK_SECONDS)
        if self._lease.task_id not in accepted:
            return self._summary("lost")
        return self._summary("completed" if isinstance(outcome, Success) else "failed")

    def _summary(self, outcome: str) -> dict[str, str]:
        return {"task_id": str(self._lease.task_id), "attempt": str(self._lease.attempt), "outcome": outcome}
