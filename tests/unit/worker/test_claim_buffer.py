"""ClaimBuffer: order and age of claims."""

from __future__ import annotations

from uuid import uuid4

from aaiclick.orchestration.worker.claim_buffer import ClaimBuffer
from aaiclick.store.engine.leases_and_outcomes import Claim, Lease


def claim(task_id: int, priority: int) -> Claim:
    lease = Lease(task_id, 1, uuid4())
    return Claim(lease, uuid4(), None, None, "t", None, "{}", None, 0, None, priority=priority)


def test_claims_are_popped_by_priority_then_arrival() -> None:
    buffer = ClaimBuffer()
    for task_id, priority in enumerate([0, 5, 0, -1, 5, 9]):
        buffer.push(claim(task_id, priority), now=0.0)
    assert len(buffer) == 6
    assert [buffer.pop().lease.task_id for _ in range(6)] == [5, 1, 4, 0, 2, 3]


def test_old_claim_makes_the_buffer_stale() -> None:
    buffer = ClaimBuffer()
    assert not buffer.is_stale(before=100.0)
    buffer.push(claim(1, 0), now=1.0)
    buffer.push(claim(2, 9), now=5.0)
    assert buffer.is_stale(before=2.0)
    assert not buffer.is_stale(before=1.0)
    assert sorted(lease.task_id for lease in buffer.leases()) == [1, 2]
    buffer.clear()
    assert not buffer
