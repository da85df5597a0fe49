"""OrchContext: a connection pool to PostgreSQL for as long as it is entered, and what can be done with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast, overload

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from aaiclick.errors import AaiclickError, SubmitError
from aaiclick.local import postgres_target
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.planning import closure, make_plan
from aaiclick.orchestration.scope import TaskScope, current_scope
from aaiclick.settings import PostgresTarget, get_settings
from aaiclick.store.engine import create_engine
from aaiclick.store.leases import Lease
from aaiclick.store.migrate import ensure_current
from aaiclick.store.submit import add_to_job

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

N = TypeVar("N", Task, Group)


class OrchContext:
    """PostgreSQL for orchestration.

        async with OrchContext() as context:
            await context.apply([extract, transform], job_id=job.id)

    The engine is made on enter and disposed of on exit; every operation has a connection of its own and no
    transaction outlives it. Contexts nest, and concurrent tasks have their own.
    """

    def __init__(
        self, job_id: int | None = None, *, target: PostgresTarget | None = None, lease: Lease | None = None
    ) -> None:
        self.job_id = job_id
        self._target = target
        self._lease = lease
        self._engine: AsyncEngine | None = None
        self._token: Token[OrchContext | None] | None = None

    async def __aenter__(self) -> OrchContext:
        target = self._target or await _find_target()
        self._engine = create_engine(target)
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
            self._token = None
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()

    @property
    def engine(self) -> AsyncEngine:
        if self._engine is None:
            raise AaiclickError("This OrchContext is not entered.", remedy="Use it as `async with OrchContext() as …`.")
        return self._engine

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A driver connection of the pool, for one operation."""
        async with self.engine.connect() as pooled:
            raw = await pooled.get_raw_connection()
            yield cast("Connection", raw.driver_connection)

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[AsyncSession]:
        """A SQLAlchemy session, for one operation."""
        async with AsyncSession(self.engine, expire_on_commit=False) as session:
            yield session

    @overload
    async def apply(self, items: N, job_id: int | None = None) -> N: ...
    @overload
    async def apply(self, items: Sequence[Node], job_id: int | None = None) -> Sequence[Node]: ...
    async def apply(self, items: Node | Sequence[Node], job_id: int | None = None) -> Node | Sequence[Node]:
        """Insert tasks and groups, with what they need and their dependencies, in one transaction; returns `items`."""
        job = job_id if job_id is not None else self.job_id
        if job is None:
            raise SubmitError(
                "apply() does not know the job.", remedy="Give job_id, here or to OrchContext; create_job() makes one."
            )
        nodes = closure([items] if isinstance(items, Node) else items)
        if nodes:
            plan, names = make_plan(nodes)
            lease = self._lease if job == self.job_id else None
            async with self.connection() as connection:
                await add_to_job(connection, job, plan, names, lease)
            mark_submitted(nodes, job)
        return items


def mark_submitted(nodes: Sequence[Node], job_id: int) -> None:
    for node in nodes:
        node.job_id, node.submitted = job_id, True


_current: ContextVar[OrchContext | None] = ContextVar("aaiclick_orch_context", default=None)
_of_scopes: dict[tuple[int, PostgresTarget], AsyncEngine] = {}


def get_current_context() -> OrchContext:
    """The context that this code runs in: the innermost entered one, or that of the task it belongs to."""
    context = _current.get()
    if context is not None:
        return context
    scope = current_scope()
    if scope is None:
        raise AaiclickError(
            "There is no OrchContext here.", remedy="Enter one (`async with OrchContext():`), or call this in a task."
        )
    return _of_scope(scope)


def _of_scope(scope: TaskScope) -> OrchContext:
    """Tasks of one process share a pool: opening one per task would cost more than the task."""
    key = (id(asyncio.get_running_loop()), scope.target)
    engine = _of_scopes.get(key)
    if engine is None:
        engine = _of_scopes[key] = create_engine(scope.target)
    context = OrchContext(scope.job_id, target=scope.target, lease=scope.lease)
    context._engine = engine  # pyright: ignore[reportPrivateUsage]
    return context


@asynccontextmanager
async def get_orch_context_session() -> AsyncGenerator[AsyncSession]:
    """A session of the current context: `async with get_orch_context_session() as session:`."""
    async with get_current_context().session() as session:
        yield session


@asynccontextmanager
async def any_context() -> AsyncGenerator[OrchContext]:
    """The current context, or one for the moment."""
    if _current.get() is not None or current_scope() is not None:
        yield get_current_context()
    else:
        async with OrchContext() as context:
            yield context


async def _find_target() -> PostgresTarget:
    """Where PostgreSQL is. The embedded one has no administrator: its schema is kept current here."""
    target = await postgres_target()
    if get_settings().postgres is None:
        await ensure_current(target)
    return target
