"""The queue, as workers and loops see it: every function takes an asyncpg connection and is one transaction or two."""

from __future__ import annotations

from aaiclick.store.claims import claim, heartbeat, promote, seconds_to_next_due, start
from aaiclick.store.leases import Claim, Failure, HeartbeatAnswer, Lease, Success
from aaiclick.store.outcomes import acknowledge, acknowledge_and_claim
from aaiclick.store.workers import (
    count_outcomes,
    deregister_worker,
    drain_worker,
    lead,
    list_workers,
    register_worker,
    release_worker,
    resign,
    set_worker_status,
    stop_dead_workers,
)

READY_CHANNEL = "aaiclick_ready"
"""Notified with a queue's name when a task of it becomes ready."""

CANCEL_CHANNEL = "aaiclick_cancel"
"""Notified with a job's or a task's id when live work is to be cancelled: the next heartbeat says which."""

__all__ = [
    "CANCEL_CHANNEL",
    "READY_CHANNEL",
    "Claim",
    "Failure",
    "HeartbeatAnswer",
    "Lease",
    "Success",
    "acknowledge",
    "acknowledge_and_claim",
    "claim",
    "count_outcomes",
    "deregister_worker",
    "drain_worker",
    "heartbeat",
    "lead",
    "list_workers",
    "promote",
    "register_worker",
    "release_worker",
    "resign",
    "seconds_to_next_due",
    "set_worker_status",
    "start",
    "stop_dead_workers",
]
