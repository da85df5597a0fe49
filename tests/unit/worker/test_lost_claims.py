"""lost_claims: leases with a lost claim response are older than the oldest open request."""

from __future__ import annotations

from uuid import uuid4

import pytest

from aaiclick.orchestration.worker.worker_process import lost_claims
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.engine.worker_leases import HeldLease

NOW = 100.0


@pytest.mark.parametrize(
    ("age_seconds", "request_times", "known_attempts", "lost"),
    [
        (5.0, [], set(), True),
        (0.1, [], set(), False),  # its response may have arrived meanwhile
        (5.0, [], {(1, 2)}, False),
        (5.0, [], {(1, 1)}, True),  # another attempt
        (5.0, [99.0], set(), True),  # the open requests are later
        (5.0, [99.0, 98.0], set(), True),
        (5.0, [99.0, 94.0], set(), False),  # an open request may have claimed it
    ],
)
def test_claims_older_than_open_requests_are_lost(age_seconds, request_times, known_attempts, lost):
    lease = Lease(1, 2, uuid4())
    assert lost_claims([HeldLease(lease, False, age_seconds)], known_attempts, request_times, NOW) == (
        [lease] if lost else []
    )
