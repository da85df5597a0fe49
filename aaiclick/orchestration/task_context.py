"""The attempt that the current code belongs to, in a ContextVar."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.errors import ConflictError
from aaiclick.orchestration.handler_registry import Function
from aaiclick.orchestration.secret_redaction import Redactor
from aaiclick.store.engine.leases_and_outcomes import Lease, Wait

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
    child_calls: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Number of child jobs that the attempt has submitted, by name and digest of their tasks."""
    child_ids: set[int] = field(default_factory=set[int])
    """Child jobs that the attempt has submitted, or found again."""
    effects: str | None = None
    """Effects that the completion writes along with the result (`Success.effects`), set by the running code."""


class SuspendTask(BaseException):
    """Ends an attempt that waits for a child job: the function is called again when the child has ended.

    Not an Exception, so that `except Exception` in the code of a task does not catch it.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait)
        self.wait = wait


class JsonResult(dict[str, Any]):
    """A small result that is stored as JSON in the task's row, and not as an Object."""


_current: ContextVar[TaskScope | None] = ContextVar("aaiclick_task_scope", default=None)


def current_scope() -> TaskScope | None:
    """The current attempt, if any; also in coroutines and threads that the task starts."""
    return _current.get()


def enter_scope(scope: TaskScope) -> Token[TaskScope | None]:
    return _current.set(scope)


_is_repeated: ContextVar[bool] = ContextVar("aaiclick_is_repeated", default=False)


def enter_repetition() -> Token[bool]:
    """Refuse changes by the code of this context: it repeats a task in the foreground."""
    return _is_repeated.set(True)


def leave_repetition(token: Token[bool]) -> None:
    _is_repeated.reset(token)


def refuse_repeated(change: str) -> None:
    """Raise ConflictError if the current code repeats a task, which changes nothing."""
    if _is_repeated.get():
        raise ConflictError(
            f"A repeated task changes nothing, so it cannot {change}.",
            remedy="Set a breakpoint before this line, or comment it out.",
        )
