"""OrchContext: a connection pool to PostgreSQL, and operations on jobs that use it."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from aaiclick.endpoints import PostgresEndpoint, ServerEndpoint
from aaiclick.errors import AaiclickError, SubmitError
from aaiclick.local import postgres_endpoint
from aaiclick.orchestration.argument_tables import share_argument_tables
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan, table_arguments
from aaiclick.orchestration.task_context import TaskScope, current_scope
from aaiclick.settings import get_settings
from aaiclick.store.connections import create_engine, create_pool, to_unreachable_error
from aaiclick.store.engine import queries
from aaiclick.store.engine.leases import Lease
from aaiclick.store.engine.plan import Plan
from aaiclick.store.engine.submit import JobLimits, add_to_job
from aaiclick.store.migrate import prepare_schema
from aaiclick.store.tenancy import secrets
from aaiclick.store.tenancy.secrets import Secret

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

    from aaiclick.store.connections import Connection, Pool

N = TypeVar("N", Task, Group)


class OrchContext:
    """PostgreSQL for orchestration.

        async with OrchContext() as context:
            await context.apply([extract, transform], job_id=job.id)

    The pool is opened on enter and closed on exit; every operation has its own connection and transaction. Contexts
    nest, and concurrent tasks have their own. `apply` also works on a context that is not entered (`await
    Context(job_id=job.id).apply(tasks)`): it then uses the current context, or opens one.
    """

    def __init__(
        self, job_id: int | None = None, *, endpoint: PostgresEndpoint | None = None, lease: Lease | None = None
    ) -> None:
        self.job_id = job_id
        self._endpoint = endpoint
        self._lease = lease
        self._engines: list[AsyncEngine] | None = None
        self._pool: Pool | None = None
        self._token: Token[OrchContext | None] | None = None

    async def __aenter__(self) -> OrchContext:
        endpoint = self._endpoint or await _find_endpoint()
        self._endpoint, self._engines, self._pool = endpoint, [], create_pool(endpoint)
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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

    def use_pool(self, engines: list[AsyncEngine], pool: Pool) -> None:
        """Use a pool and engines of another owner, which closes them."""
        self._engines, self._pool = engines, pool

    @property
    def engine(self) -> AsyncEngine:
        """A SQLAlchemy engine, created on first use."""
        if self._engines is None or self._endpoint is None:
            raise _not_entered()
        if not self._engines:
            self._engines.append(create_engine(self._endpoint))
        return self._engines[0]

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A driver connection of the pool, for one operation."""
        if self._pool is None:
            raise _not_entered()
        await self._pool  # initialises it on first use; opens no connection
        async with self._pool.acquire() as acquired:
            connection = cast("Connection", acquired)
            try:
                yield connection
            except Exception as error:
                self._raise_outage(error, connection)
                raise

    def _raise_outage(self, error: Exception, connection: Connection | None = None) -> None:
        """Raise UnreachableError if the connection was lost: an outage is not charged to the task."""
        if self._endpoint is not None and (lost := to_unreachable_error(self._endpoint, error, connection)) is not None:
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
        """Insert tasks and groups with their predecessors, in one transaction; returns `items`.

        If a task adds to its own job, the new tasks start when that task has completed; if its attempt fails, they are
        removed.
        """
        job = job_id if job_id is not None else self.job_id
        if job is None:
            raise SubmitError(
                "apply() needs a job.", remedy="Pass job_id to apply() or OrchContext; create_job() creates one."
            )
        nodes = collect_unsubmitted([items] if isinstance(items, Node) else items)
        if nodes:
            plan, names = make_plan(nodes)
            lease = self._lease if job == self.job_id else None
            async with share_argument_tables(table_arguments(plan, nodes)) as pools:
                plan.tables, plan.session_tables = pools.tables, pools.adopted
                await self._insert_plan(job, plan, names, lease)
            mark_submitted(nodes, job)
        return items

    async def _insert_plan(self, job_id: int, plan: Plan, names: Mapping[int, str], lease: Lease | None) -> None:
        usable_context = current_or_new_context() if self._endpoint is None else nullcontext(self)  # not entered
        async with usable_context as context, context.connection() as connection:
            await add_to_job(connection, job_id, plan, names, lease, limits=job_limits())

    async def task_results(self, job_id: int, task_ids: Sequence[int]) -> Mapping[int, str | None]:
        """Results of tasks of a job, as JSON text by task id."""
        async with self.connection() as connection:
            return await queries.load_task_results(connection, job_id, task_ids)

    async def group_results(self, group_id: int) -> Sequence[Mapping[str, Any]]:
        """Results of the tasks of a group (JSON text, attempt, times), ordered by task id.

        A task can read groups of its own job only.
        """
        async with self.connection() as connection:
            return [dict(row) for row in await queries.load_group_results(connection, group_id, self.job_id)]

    async def task_secrets(self, lease: Lease, names: Sequence[str]) -> list[Secret]:
        """Secrets of the task that holds the lease."""
        async with self.connection() as connection:
            return await secrets.load_task_secrets(connection, lease, names)


Context = OrchContext


def _driver_error(error: Exception) -> Exception:
    """The asyncpg error that a SQLAlchemy error wraps."""
    original = getattr(error, "orig", None)
    cause = original.__cause__ if isinstance(original, Exception) else None
    return cause if isinstance(cause, Exception) else error


def _not_entered() -> AaiclickError:
    return AaiclickError("This OrchContext is not entered.", remedy="Use it as `async with OrchContext() as …`.")


def job_limits() -> JobLimits:
    settings = get_settings()
    return JobLimits(settings.job_max_tasks, settings.job_max_depth)


def mark_submitted(nodes: Sequence[Node], job_id: int) -> None:
    for node in nodes:
        node.job_id, node.submitted = job_id, True


_current: ContextVar[OrchContext | None] = ContextVar("aaiclick_orch_context", default=None)
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[PostgresEndpoint, tuple[list[AsyncEngine], Pool]]] = (
    WeakKeyDictionary()
)


def get_current_context() -> OrchContext:
    """The current context: the innermost entered one, or that of the running task."""
    context = _current.get()
    if context is not None:
        return context
    scope = current_scope()
    if scope is None:
        raise AaiclickError(
            "There is no OrchContext here.", remedy="Enter one (`async with OrchContext():`), or call this in a task."
        )
    return _task_context(scope)


def _task_context(scope: TaskScope) -> OrchContext:
    """Context of the running task. Tasks of a process share a pool: opening one per task would cost too much."""
    if isinstance(scope.endpoint, ServerEndpoint):
        return importlib.import_module("aaiclick.orchestration.remote_context").RemoteContext(scope)  # loads httpx
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if scope.endpoint not in pools:
        pools[scope.endpoint] = [], create_pool(scope.endpoint)
    context = OrchContext(scope.job_id, endpoint=scope.endpoint, lease=scope.lease)
    context.use_pool(*pools[scope.endpoint])
    return context


@asynccontextmanager
async def get_orch_context_session() -> AsyncGenerator[AsyncSession]:
    """A session of the current context: `async with get_orch_context_session() as session:`."""
    async with get_current_context().session() as session:
        yield session


@asynccontextmanager
async def current_or_new_context() -> AsyncGenerator[OrchContext]:
    """The current context, or a temporary one."""
    if _current.get() is not None or current_scope() is not None:
        yield get_current_context()
    else:
        async with OrchContext() as context:
            yield context


async def _find_endpoint() -> PostgresEndpoint:
    endpoint = await postgres_endpoint()
    await prepare_schema(endpoint, embedded=get_settings().postgres is None)
    return endpoint
