"""What a task of a server's worker has instead of a database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine

from aaiclick.orchestration.context import OrchContext
from aaiclick.orchestration.scope import TaskScope
from aaiclick.orchestration.transport.remote import no_database, remote_of
from aaiclick.store.leases import Lease
from aaiclick.store.org_secrets import Secret
from aaiclick.store.plan import Plan
from aaiclick.targets import ServerTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


class RemoteContext(OrchContext):
    """The context of a task whose worker speaks to a server: it can do what the task itself may, and nothing else."""

    def __init__(self, scope: TaskScope) -> None:
        super().__init__(scope.job_id, lease=scope.lease)
        assert isinstance(scope.target, ServerTarget)  # noqa: S101
        self._remote = remote_of(scope.target)
        self._of = scope.lease

    @property
    def engine(self) -> AsyncEngine:
        raise no_database()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        raise no_database()
        yield

    async def _insert(self, job_id: int, plan: Plan, names: Mapping[int, str], lease: Lease | None) -> None:  # noqa: ARG002
        if lease is None or plan.adopted:
            raise no_database()
        await self._remote.add(lease, plan, names)

    async def task_results(self, job_id: int, task_ids: Sequence[int]) -> Mapping[int, str | None]:  # noqa: ARG002
        return await self._remote.task_results(self._of, task_ids)

    async def task_secrets(self, lease: Lease, names: Sequence[str]) -> list[Secret]:
        return await self._remote.task_secrets(lease, names)

    async def group_results(self, group_id: int) -> Sequence[Mapping[str, Any]]:
        return await self._remote.group_results(self._of, group_id)
