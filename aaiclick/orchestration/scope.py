"""The task that the current code runs in: what lets it add to its own job, and by which right."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass
from uuid import UUID

from aaiclick.settings import PostgresTarget
from aaiclick.store.leases import Lease


@dataclass(slots=True)
class TaskScope:
    """One running attempt; a value, like `Lease`."""

    lease: Lease
    org_id: UUID
    job_id: int | None
    group_id: int | None
    target: PostgresTarget


_current: ContextVar[TaskScope | None] = ContextVar("aaiclick_task_scope", default=None)


def current_scope() -> TaskScope | None:
    """The attempt that this code belongs to, if any; follows awaits and the threads of tasks."""
    return _current.get()


def enter_scope(scope: TaskScope) -> Token[TaskScope | None]:
    return _current.set(scope)
