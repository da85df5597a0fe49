"""Counts of accepted outcomes of a worker process; the queue adds each report exactly once.

Reports have ascending numbers. A report without a response is sent again with its number, and the queue ignores numbers
that are not higher than the last one. An outcome is not counted if the response to its acknowledgement is lost after
the commit: it is sent again without a lease, and is not accepted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence

from aaiclick.orchestration.gateway import GatewayConnection
from aaiclick.orchestration.worker.failure_outcomes import Outcome
from aaiclick.store.engine.leases_and_outcomes import (
    MAX_REPORTED_QUEUES,
    Claim,
    Lease,
    OrgQueue,
    OutcomeCounts,
    Success,
)


class OutcomeCounter:
    """Counts accepted outcomes by queue, and reports them."""

    def __init__(self, worker_id: int) -> None:
        self._worker_id = worker_id
        self._queues: dict[int, OrgQueue] = {}
        self._counts: defaultdict[OrgQueue, OutcomeCounts] = defaultdict(OutcomeCounts)
        self._report: dict[OrgQueue, OutcomeCounts] = {}
        self._number = 0
        self._lock = asyncio.Lock()

    @property
    def is_reported(self) -> bool:
        """Whether the queue has confirmed all counts."""
        return not self._report and not self._counts

    def record_end(self, claim: Claim) -> None:
        """Record the queue of a task, until its outcome is accepted."""
        self._queues[claim.lease.task_id] = claim.org_id, claim.queue

    def count(self, outcomes: Sequence[Outcome], accepted: set[int]) -> None:
        """Count the accepted ones of these outcomes; releases are not counted."""
        for outcome in outcomes:
            if isinstance(outcome, Lease):
                continue
            queue = self._queues.pop(outcome.lease.task_id, None)
            if queue is None or outcome.lease.task_id not in accepted:
                continue
            if isinstance(outcome, Success):
                self._counts[queue].completed += 1
            elif outcome.outcome != "RELEASED":
                self._counts[queue].failed += 1

    async def report(self, connection: GatewayConnection) -> None:
        """Send all counts, first a report that failed before. One call at a time, so that numbers ascend."""
        async with self._lock:
            while not self.is_reported:
                if not self._report:
                    self._number += 1
                    queues = list(itertools.islice(self._counts, MAX_REPORTED_QUEUES))
                    self._report = {queue: self._counts.pop(queue) for queue in queues}
                await connection.add_counts(self._worker_id, self._number, self._report)
                self._report = {}
