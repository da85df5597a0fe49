"""The attempt that the current code belongs to, in a ContextVar."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.orchestration.handlers import Function
from aaiclick.orchestration.redaction import Redactor
from aaiclick.store.engine.leases import Lease

if TYPE_CHECKING:
    from aaiclick.orchestration.gateway.attempt import AttemptGateway


@dataclass(slots=True)
class TaskScope:
    """One running attempt: its lease, and what its code may use."""

    lease: Lease
    org_id: UUID
    job_id: int | None
    group_id: int | None
    gateway: AttemptGateway
    resolve: Callable[[str], Function] | None = None
    """Resolves an import path to a function, by the rules of this worker."""
    call: Callable[[Function, dict[str, Any]], Awaitable[Any]] | None = None
    """Calls a function like the task's own: on the loop, or in a thread that is stopped with the task."""
    redactor: Redactor = field(default_factory=Redactor)
    """Redacts secrets that the attempt has read."""
    emit: Callable[[Any, str, str | None], Awaitable[None]] | None = None
    """Publishes rows and emits their event: rows, cursor, output. Set for sources of DAGs."""
    wait_state: Mapping[str, Any] | None = None
    """The outcome of the wait that an earlier attempt began."""
    effects: str | None = None
    """Effects that the completion writes along with the result (`Success.effects`), set by the running code."""


class JsonResult(dict[str, Any]):
    """A small result that is stored as JSON in the task's row, and not as an Object."""


_current: ContextVar[TaskScope | None] = ContextVar("aaiclick_task_scope", default=None)


def current_scope() -> TaskScope | None:
    """The current attempt, if any; also in coroutines and threads that the task starts."""
    return _current.get()


def enter_scope(scope: TaskScope) -> Token[TaskScope | None]:
    return _current.set(scope)
