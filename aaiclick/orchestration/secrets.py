"""Access to secrets from the code of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from aaiclick.errors import SecretError
from aaiclick.orchestration.task_context import TaskScope, current_scope
from aaiclick.store.tenancy.secrets import Secret, wrong_host_error


async def get_secret(name: str) -> str:
    """The value of a secret that the organisation of the running task was granted.

    A task of a DAG has the names that its definition declares under `secrets`. The value is redacted in the task's log
    and errors. Raises SecretError if there is none, or if it is bound to a host.

    ```python
    @task
    async def call_shop() -> None:
        headers = {"Authorization": f"Bearer {await get_secret('shop_key')}"}
    ```
    """
    scope = current_scope()
    if scope is None:
        raise SecretError("Secrets can be read only in a task.", remedy="Call get_secret() in the code of a task.")
    (secret,) = await read_secrets(scope, [name])
    if secret.host is not None:
        raise wrong_host_error(secret)
    return secret.value


async def read_secrets(scope: TaskScope, names: Sequence[str]) -> list[Secret]:
    """Load secrets of the attempt and register them for redaction."""
    secrets = await scope.gateway.read_secrets(names)
    for secret in secrets:
        scope.redactor.add(secret.value)
    return secrets
