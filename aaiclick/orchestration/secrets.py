"""Secrets in the code of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from aaiclick.errors import SecretError
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.scope import TaskScope, current_scope
from aaiclick.store.org_secrets import Secret, bound_elsewhere


async def get_secret(name: str) -> str:
    """The value of a secret that the organisation of the running task was granted.

    A task of a DAG has the names that its definition declares under `secrets`. The value is redacted in the task's log
    and errors. Raises SecretError if there is none, or if it is bound to a host.
    """
    scope = current_scope()
    if scope is None:
        raise SecretError("Secrets are read by running tasks only.", remedy="Call get_secret() in the code of a task.")
    (secret,) = await read_secrets(scope, [name])
    if secret.host is not None:
        raise bound_elsewhere(secret)
    return secret.value


async def read_secrets(scope: TaskScope, names: Sequence[str]) -> list[Secret]:
    """Secrets of the attempt, registered for redaction."""
    found = await get_current_context().task_secrets(scope.lease, names)
    for secret in found:
        scope.redactor.add(secret.value)
    return found
