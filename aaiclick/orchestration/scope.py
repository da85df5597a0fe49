"""The task that the current code runs in: what lets it add to its own job, and by which right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aaiclick.orchestration.handlers import Function
from aaiclick.orchestration.redaction import Redactor
from aaiclick.store.leases import Lease
from aaiclick.targets import WorkTarget


@dataclass(slots=True)
class TaskScope:
    """One running attempt; a value, like `Lease`."""

    lease: Lease
    org_id: UUID
    job_id: int | None
    group_id: int | None
    target: WorkTarget
    resolve: Callable[[str], Function] | None = None
    """From the import path of a function to the function, by the rules of this worker."""
    call: Callable[[Function, dict[str, Any]], Awaitable[Any]] | None = None
    """Call a function as the task's own: on the loop, or in a thread that ends when the task must."""
    redactor: Redactor = field(default_factory=Redactor)
    """Hides the secrets that the attempt was given."""
    emit: Callable[[Any, str, str | None], Awaitable[None]] | None = None
    """Publish rows and emit their event while the task runs: rows, cursor, output. Set for sources of DAGs."""
    effects: str | None = None
    """What the completion writes besides the result (`Success.effects`); whoever runs in here sets it."""


class Record(dict[str, Any]):
    """A small result that is kept as JSON beside the task, and not as an Object."""


_current: ContextVar[TaskScope | None] = ContextVar("aaiclick_task_scope", default=None)


def current_scope() -> TaskScope | None:
    """The attempt that this code belongs to, if any; follows awaits and the threads of tasks."""
    return _current.get()


def enter_scope(scope: TaskScope) -> Token[TaskScope | None]:
    return _current.set(scope)
