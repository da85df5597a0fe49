"""Queue operations of workers and loops: each function takes an asyncpg connection and runs one or two transactions."""

from __future__ import annotations

from aaiclick.store.engine.acknowledge import acknowledge, acknowledge_and_claim
from aaiclick.store.engine.claims import claim, heartbeat, promote_due_tasks, seconds_to_next_due, start
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, HeartbeatAnswer, Lease, Success
from aaiclick.store.engine.workers import (
    count_outcomes,
    deregister_worker,
    drain_worker,
    lead,
    list_workers,
    register_worker,
    release_worker,
    stop_dead_workers,
)

READY_CHANNEL = "aaiclick_ready"
"""Notified with a queue's name when a task of it becomes ready."""

CANCEL_CHANNEL = "aaiclick_cancel"
"""Notified with a job's or task's id when leased tasks are to be cancelled: workers then send a heartbeat."""

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
    "promote_due_tasks",
    "register_worker",
    "release_worker",
    "seconds_to_next_due",
    "start",
    "stop_dead_workers",
]
