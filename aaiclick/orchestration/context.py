"""OrchContext: a connection pool to PostgreSQL for as long as it is entered, and what can be done with it."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from aaiclick.errors import AaiclickError, SubmitError
from aaiclick.local import postgres_target
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.planning import arguments_of, closure, make_plan
from aaiclick.orchestration.scope import TaskScope, current_scope
from aaiclick.orchestration.sharing import sharing
from aaiclick.settings import get_settings
from aaiclick.store import org_secrets, reads
from aaiclick.store.engine import create_engine, create_pool, explain_loss
from aaiclick.store.leases import Lease
from aaiclick.store.migrate import prepare
from aaiclick.store.org_secrets import Secret
from aaiclick.store.plan import Plan
from aaiclick.store.submit import Limits, add_to_job
from aaiclick.targets import PostgresTarget, ServerTarget

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

    from aaiclick.store.engine import Connection, Pool

N = TypeVar("N", Task, Group)


class OrchContext:
    """PostgreSQL for orchestration.

        async with OrchContext() as context:
            await context.apply([extract, transform], job_id=job.id)

    The engine is made on enter and disposed of on exit; every operation has a connection of its own and no
    transaction outlives it. Contexts nest, and concurrent tasks have their own. `apply` also works on a context that is
    not entered (`await Context(job_id=job.id).apply(tasks)`): it then uses the current context, or opens one.
    """

    def __init__(
        self, job_id: int | None = None, *, target: PostgresTarget | None = None, lease: Lease | None = None
    ) -> None:
        self.job_id = job_id
        self._target = target
        self._lease = lease
        self._engines: list[AsyncEngine] | None = None
        self._pool: Pool | None = None
        self._token: Token[OrchContext | None] | None = None

    async def __aenter__(self) -> OrchContext:
        target = self._target or await _find_target()
        self._target, self._engines, self._pool = target, [], create_pool(target)
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
            self._token = None
        engines, self._engines = self._engines, None
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool
            await pool.close()
        for engine in engines or ():
            await engine.dispose()

    def borrow(self, engines: list[AsyncEngine], pool: Pool) -> None:
        """Work with a pool, and an engine if there is one, that belong to somebody else, who closes them."""
        self._engines, self._pool = engines, pool

    @property
    def engine(self) -> AsyncEngine:
        """A SQLAlchemy engine, made when somebody wants it."""
        if self._engines is None or self._target is None:
            raise _not_entered()
        if not self._engines:
            self._engines.append(create_engine(self._target))
        return self._engines[0]

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A driver connection of the pool, for one operation."""
        if self._pool is None:
            raise _not_entered()
        await self._pool  # makes it ready at first; it opens nothing by itself
        async with self._pool.acquire() as acquired:
            connection = cast("Connection", acquired)
            try:
                yield connection
            except Exception as error:
                self._raise_outage(error, connection)
                raise

    def _raise_outage(self, error: Exception, connection: Connection | None = None) -> None:
        """Raise UnreachableError if PostgreSQL was lost: its outage is no failure of the task."""
        if self._target is not None and (lost := explain_loss(self._target, error, connection)) is not None:
            raise lost from error

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[AsyncSession]:
        """A SQLAlchemy session, for one operation."""
        from sqlalchemy.ext.asyncio import AsyncSession

        try:
            async with AsyncSession(self.engine, expire_on_commit=False) as session:
                yield session
        except Exception as error:
            self._raise_outage(_driver_error(error))
            raise

    @overload
    async def apply(self, items: N, job_id: int | None = None) -> N: ...
    @overload
    async def apply(self, items: Sequence[Node], job_id: int | None = None) -> Sequence[Node]: ...
    async def apply(self, items: Node | Sequence[Node], job_id: int | None = None) -> Node | Sequence[Node]:
        """Insert tasks and groups, with what they need and their dependencies, in one transaction; returns `items`.

        Called by a task for its own job, they begin when that task has completed, and not at all if it does not: an
        attempt that fails leaves nothing behind.
        """
        job = job_id if job_id is not None else self.job_id
        if job is None:
            raise SubmitError(
                "apply() does not know the job.", remedy="Give job_id, here or to OrchContext; create_job() makes one."
            )
        nodes = closure([items] if isinstance(items, Node) else items)
        if nodes:
            plan, names = make_plan(nodes)
            lease = self._lease if job == self.job_id else None
            async with sharing(arguments_of(plan, nodes)) as shared:
                plan.tables, plan.adopted = shared.tables, shared.adopted
                await self._insert(job, plan, names, lease)
            mark_submitted(nodes, job)
        return items

    async def _insert(self, job_id: int, plan: Plan, names: Mapping[int, str], lease: Lease | None) -> None:
        used = any_context() if self._target is None else nullcontext(self)  # not entered: whichever there is
        async with used as context, context.connection() as connection:
            await add_to_job(connection, job_id, plan, names, lease, limits=job_limits())

    async def task_results(self, job_id: int, task_ids: Sequence[int]) -> Mapping[int, str | None]:
        """What tasks of a job returned, as JSON text."""
        async with self.connection() as connection:
            return await reads.task_results(connection, job_id, task_ids)

    async def group_results(self, group_id: int) -> Sequence[Mapping[str, Any]]:
        """What the tasks of a group returned (as JSON text), when and by which attempts, in the order of their ids.

        A task sees groups of its own job only.
        """
        async with self.connection() as connection:
            return [dict(row) for row in await reads.group_results(connection, group_id, self.job_id)]

    async def task_secrets(self, lease: Lease, names: Sequence[str]) -> list[Secret]:
        """Secrets of the task that holds the lease."""
        async with self.connection() as connection:
            return await org_secrets.task_secrets(connection, lease, names)


Context = OrchContext


def _driver_error(error: Exception) -> Exception:
    """asyncpg's own error within one of SQLAlchemy."""
    original = getattr(error, "orig", None)
    cause = original.__cause__ if isinstance(original, Exception) else None
    return cause if isinstance(cause, Exception) else error


def _not_entered() -> AaiclickError:
    return AaiclickError("This OrchContext is not entered.", remedy="Use it as `async with OrchContext() as …`.")


def job_limits() -> Limits:
    settings = get_settings()
    return Limits(settings.job_max_tasks, settings.job_max_depth)


def mark_submitted(nodes: Sequence[Node], job_id: int) -> None:
    for node in nodes:
        node.job_id, node.submitted = job_id, True


_current: ContextVar[OrchContext | None] = ContextVar("aaiclick_orch_context", default=None)
_of_scopes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[PostgresTarget, tuple[list[AsyncEngine], Pool]]] = (
    WeakKeyDictionary()
)


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
    if isinstance(scope.target, ServerTarget):
        return importlib.import_module("aaiclick.orchestration.remote_context").RemoteContext(scope)  # loads httpx
    shared = _of_scopes.setdefault(asyncio.get_running_loop(), {})
    if scope.target not in shared:
        shared[scope.target] = [], create_pool(scope.target)
    context = OrchContext(scope.job_id, target=scope.target, lease=scope.lease)
    context.borrow(*shared[scope.target])
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
    target = await postgres_target()
    await prepare(target, embedded=get_settings().postgres is None)
    return target
