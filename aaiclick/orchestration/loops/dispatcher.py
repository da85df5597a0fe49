"""The dispatcher: runtimes elsewhere are told of the tasks that are ready for them.

For `ecs_…`, a message with the task's id goes to a queue, and a worker that hears it claims. For `lambda`, the task is
claimed here and given to an invocation of its function, which is a worker of its own: it keeps its lease itself, and
when it falls silent its task is tried again as that of any dead worker. Several dispatchers at once do no harm: what
one has told the others leave alone, and a task is claimed once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick._version import __version__
from aaiclick.errors import AaiclickError
from aaiclick.orchestration.runtimes import functions
from aaiclick.orchestration.runtimes.sqs import TaskQueue
from aaiclick.settings import get_logs_dir
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import dispatches, queue
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import RuntimeTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

POLL_SECONDS = 1.0
FRONT = 1_000
"""Tasks of an organisation that a queue is told of at once: as some are taken, more are told."""

INVOKED_AT_ONCE = 100
REST_SECONDS = (1.0, 5.0, 15.0, 60.0)
"""How long a function that did not take a task is left alone, after so many failures in a row."""


class Dispatcher:
    """Tells a number of runtimes; remembers which of them did not listen."""

    def __init__(self, targets: Sequence[RuntimeTarget], *, again_seconds: float, lease_seconds: float) -> None:
        self._targets = targets
        self._again_seconds = again_seconds
        self._lease_seconds = lease_seconds
        self._failures: dict[RuntimeTarget, tuple[int, float]] = {}

    async def run_once(self, connection: Connection, *, now: datetime | None = None) -> dict[str, int]:
        """One pass: `messages` that were sent, `invocations` that were begun."""
        counts = {"messages": 0, "invocations": 0}
        orgs = await dispatches.org_ids(connection, [each.org for each in self._targets if each.org])
        for target in self._targets:
            org_id = None if target.org is None else orgs.get(target.org)
            if target.org is not None and org_id is None:
                continue  # an organisation that is not there has no tasks
            if target.name == "lambda":
                counts["invocations"] += await self._invoke(connection, target, org_id or DEFAULT_ORG_ID, now)
            else:
                others = [orgs[each.org] for each in self._targets if each.name == target.name and each.org in orgs]
                without = others if org_id is None else []
                counts["messages"] += await self._tell(connection, target, org_id, without, now)
        await dispatches.forget(connection)
        return counts

    async def _tell(
        self,
        connection: Connection,
        target: RuntimeTarget,
        org_id: UUID | None,
        without: Sequence[UUID],
        now: datetime | None,
    ) -> int:
        told = await dispatches.take(
            connection,
            dispatches.queue_of(target.name),
            limit=FRONT,
            again_seconds=self._again_seconds,
            org_id=org_id,
            without=without,
            now=now,
        )
        try:
            if told:
                await TaskQueue(target.place).send(told)
        except AaiclickError as error:
            await dispatches.note_failure(connection, told, error.what)
            return 0
        return len(told)

    async def _invoke(self, connection: Connection, target: RuntimeTarget, org_id: UUID, now: datetime | None) -> int:
        failures, until = self._failures.get(target, (0, 0.0))
        if time.monotonic() < until:
            return 0
        for nth in range(INVOKED_AT_ONCE):
            worker_id = get_snowflake_id()
            name = dispatches.queue_of(target.name)
            claims = await queue.claim(
                connection, worker_id=worker_id, limit=1, queues=[name], lease_seconds=self._lease_seconds,
                org_id=org_id, now=now,
            )  # fmt: skip
            for claim in claims:
                await queue.register_worker(
                    connection, worker_id=worker_id, hostname=f"lambda:{target.place}", pid=0, version=__version__,
                    queues=[name], org_id=org_id, log_directory=get_logs_dir(),
                )  # fmt: skip
                try:
                    event = await functions.make_event(connection, claim, worker_id, self._lease_seconds)
                    await functions.invoke(target.place, event)
                except AaiclickError as error:
                    await queue.deregister_worker(connection, worker_id)
                    await dispatches.note_refusal(connection, claim, error.what)
                    rest = REST_SECONDS[min(failures, len(REST_SECONDS) - 1)]
                    self._failures[target] = failures + 1, time.monotonic() + rest
                    return nth
            if not claims:
                return nth
            self._failures.pop(target, None)
        return INVOKED_AT_ONCE
