"""Runtime dispatcher: sends ready tasks to external runtimes (SQS, Lambda).

For `ecs_…`, it sends a message with the task's id to a queue, and a worker that receives it claims. For `lambda`, it
claims the task and passes it to an invocation of the function, which is a worker of its own: it renews its lease, and
if it dies its task is retried like that of any dead worker. Several dispatchers may run at once: a dispatched task is
skipped by the others, and a task is claimed once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick._version import __version__
from aaiclick.errors import AaiclickError
from aaiclick.orchestration.runtimes import lambda_invoke
from aaiclick.orchestration.runtimes.sqs_queue import SqsTaskQueue
from aaiclick.server_addresses import RuntimeEndpoint
from aaiclick.settings import get_logs_dir
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queue, runtime_dispatches
from aaiclick.store.enums import DEFAULT_ORG_ID

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

POLL_SECONDS = 1.0
MAX_MESSAGES = 1_000
"""Messages per organisation and pass; more are sent as tasks are claimed."""

MAX_INVOCATIONS = 100
BACKOFF_SECONDS = (1.0, 5.0, 15.0, 60.0)
"""Pause before a function is invoked again, by its number of consecutive failures."""


class RuntimeDispatcher:
    """Dispatches tasks to runtimes, with back-off for functions that fail."""

    def __init__(self, endpoints: Sequence[RuntimeEndpoint], *, resend_seconds: float, lease_seconds: float) -> None:
        self._endpoints = endpoints
        self._resend_seconds = resend_seconds
        self._lease_seconds = lease_seconds
        self._failures: dict[RuntimeEndpoint, tuple[int, float]] = {}

    async def run_once(self, connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
        """Run one pass; counts `messages` sent and `invocations` started."""
        counts = {"messages": 0, "invocations": 0}
        orgs = await runtime_dispatches.load_org_ids(connection, [other.org for other in self._endpoints if other.org])
        for endpoint in self._endpoints:
            org_id = None if endpoint.org is None else orgs.get(endpoint.org)
            if endpoint.org is not None and org_id is None:
                continue  # the organisation does not exist
            if endpoint.name == "lambda":
                counts["invocations"] += await self._invoke_functions(
                    connection, endpoint, org_id or DEFAULT_ORG_ID, now
                )
            else:
                orgs_with_own_queue = [
                    orgs[other.org] for other in self._endpoints if other.name == endpoint.name and other.org in orgs
                ]
                without = orgs_with_own_queue if org_id is None else []
                counts["messages"] += await self._send_messages(connection, endpoint, org_id, without, now)
        await runtime_dispatches.delete_finished_dispatches(connection)
        return counts

    async def _send_messages(
        self,
        connection: Connection,
        endpoint: RuntimeEndpoint,
        org_id: UUID | None,
        without: Sequence[UUID],
        now: datetime | None,
    ) -> int:
        task_ids = await runtime_dispatches.take_dispatches(
            connection,
            runtime_dispatches.runtime_queue(endpoint.name),
            limit=MAX_MESSAGES,
            repeat_seconds=self._resend_seconds,
            org_id=org_id,
            excluded_org_ids=without,
            now=now,
        )
        try:
            if task_ids:
                await SqsTaskQueue(endpoint.address).send(task_ids)
        except AaiclickError as error:
            await runtime_dispatches.record_dispatch_failure(connection, task_ids, error.what)
            return 0
        return len(task_ids)

    async def _invoke_functions(
        self, connection: Connection, endpoint: RuntimeEndpoint, org_id: UUID, now: datetime | None
    ) -> int:
        failures, until = self._failures.get(endpoint, (0, 0.0))
        if time.monotonic() < until:
            return 0
        for nth in range(MAX_INVOCATIONS):
            worker_id = get_snowflake_id()
            name = runtime_dispatches.runtime_queue(endpoint.name)
            claims = await queue.claim(
                connection, worker_id=worker_id, limit=1, queues=[name], lease_seconds=self._lease_seconds,
                org_id=org_id, now=now,
            )  # fmt: skip
            for claim in claims:
                await queue.register_worker(
                    connection, worker_id=worker_id, hostname=f"lambda:{endpoint.address}", pid=0, version=__version__,
                    queues=[name], org_id=org_id, log_directory=get_logs_dir(),
                )  # fmt: skip
                try:
                    event = await lambda_invoke.make_event(connection, claim, worker_id, self._lease_seconds)
                    await lambda_invoke.invoke_function(endpoint.address, event)
                except AaiclickError as error:
                    await queue.deregister_worker(connection, worker_id)
                    await runtime_dispatches.record_dispatch_refusal(connection, claim, error.what)
                    backoff = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
                    self._failures[endpoint] = failures + 1, time.monotonic() + backoff
                    return nth
            if not claims:
                return nth
            self._failures.pop(endpoint, None)
        return MAX_INVOCATIONS
