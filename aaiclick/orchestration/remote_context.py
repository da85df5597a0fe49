"""OrchContext of tasks on HTTP workers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine

from aaiclick.endpoints import ServerEndpoint
from aaiclick.orchestration.context import OrchContext
from aaiclick.orchestration.gateway.http import no_database_error, worker_api_client
from aaiclick.orchestration.task_context import TaskScope
from aaiclick.store.engine.leases import Lease
from aaiclick.store.engine.plan import Plan
from aaiclick.store.tenancy.secrets import Secret

if TYPE_CHECKING:
    from aaiclick.store.connections import Connection


class RemoteContext(OrchContext):
    """OrchContext that calls the worker API, which allows only what the task's lease permits."""

    def __init__(self, scope: TaskScope) -> None:
        super().__init__(scope.job_id, lease=scope.lease)
        assert isinstance(scope.endpoint, ServerEndpoint)  # noqa: S101
        self._client = worker_api_client(scope.endpoint)
        self._task_lease = scope.lease

    @property
    def engine(self) -> AsyncEngine:
        raise no_database_error()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        raise no_database_error()
        yield

    async def _insert_plan(self, job_id: int, plan: Plan, names: Mapping[int, str], lease: Lease | None) -> None:  # noqa: ARG002
        if lease is None or plan.session_tables:
            raise no_database_error()
        await self._client.add_tasks(lease, plan, names)

    async def task_results(self, job_id: int, task_ids: Sequence[int]) -> Mapping[int, str | None]:  # noqa: ARG002
        return await self._client.task_results(self._task_lease, task_ids)

    async def task_secrets(self, lease: Lease, names: Sequence[str]) -> list[Secret]:
        return await self._client.task_secrets(lease, names)

    async def group_results(self, group_id: int) -> Sequence[Mapping[str, Any]]:
        return await self._client.group_results(self._task_lease, group_id)
