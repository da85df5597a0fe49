"""OrchContext: a connection pool to PostgreSQL, and operations on jobs that use it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, overload

from aaiclick.errors import AaiclickError, SubmitError
from aaiclick.local import postgres_endpoint
from aaiclick.orchestration.argument_tables import share_argument_tables
from aaiclick.orchestration.connection_pool import ConnectionPool
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan, table_arguments
from aaiclick.orchestration.task_context import current_scope, refuse_repeated
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import get_settings
from aaiclick.store.engine.submission_plan import Plan
from aaiclick.store.engine.submit import JobLimits, add_to_job
from aaiclick.store.migrate import prepare_schema

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

    from aaiclick.orchestration.gateway.attempt import AttemptGateway
    from aaiclick.store.postgres_connections import Connection

N = TypeVar("N", Task, Group)


class OrchContext:
    """PostgreSQL for orchestration.

    ```python
    async with OrchContext() as context:
        submitted = await create_job("nightly", load.task())
        await context.apply(total.task([1]), job_id=submitted.id)
    ```

    The pool is opened on enter and closed on exit; every operation has its own connection and transaction. Contexts
    nest, and concurrent tasks have their own. `apply` also works on a context that is not entered (`await
    Context(job_id=job.id).apply(tasks)`): it then uses the current context, or opens one.
    """

    def __init__(
        self,
        job_id: int | None = None,
        *,
        endpoint: PostgresEndpoint | None = None,
        gateway: AttemptGateway | None = None,
    ) -> None:
        """`gateway` is that of the running task, if the context is its own."""
        self.job_id = job_id
        self._endpoint = endpoint
        self._gateway = gateway
        self._pool: ConnectionPool | None = None
        self._token: Token[OrchContext | None] | None = None

    async def __aenter__(self) -> OrchContext:
        self._endpoint = self._endpoint or await _find_endpoint()
        self._pool = ConnectionPool(self._endpoint)
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
            self._token = None
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @property
    def _source(self) -> ConnectionPool | AttemptGateway:
        source = self._pool or self._gateway
        if source is None:
            raise AaiclickError("This OrchContext is not entered.", remedy="Use it as `async with OrchContext() as …`.")
        return source

    @property
    def engine(self) -> AsyncEngine:
        """A SQLAlchemy engine, created on first use."""
        return self._source.engine

    def connection(self, *, keeps_session: bool = False) -> AbstractAsyncContextManager[Connection]:
        """A driver connection of the pool, for one operation.

        With `keeps_session`, the operation changes no state of the session (settings, temporary tables, listeners).
        """
        return self._source.connection(keeps_session=keeps_session)

    def session(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A SQLAlchemy session, for one operation."""
        return self._source.session()

    @overload
    async def apply(self, items: N, job_id: int | None = None) -> N: ...
    @overload
    async def apply(self, items: Sequence[Node], job_id: int | None = None) -> Sequence[Node]: ...
    async def apply(self, items: Node | Sequence[Node], job_id: int | None = None) -> Node | Sequence[Node]:
        """Insert tasks and groups with their predecessors, in one transaction; returns `items`.

        If a task adds to its own job, the new tasks start when that task has completed; if its attempt fails, they are
        removed.
        """
        refuse_repeated("add tasks to a job")
        job = job_id if job_id is not None else self.job_id
        if job is None:
            raise SubmitError(
                "apply() needs a job.", remedy="Pass job_id to apply() or OrchContext; create_job() creates one."
            )
        nodes = collect_unsubmitted([items] if isinstance(items, Node) else items)
        if nodes:
            plan, names = make_plan(nodes)
            async with share_argument_tables(table_arguments(plan, nodes)) as pools:
                plan.tables, plan.session_tables = pools.tables, pools.adopted
                await self._insert_plan(job, plan, names)
            mark_submitted(nodes, job)
        return items

    async def _insert_plan(self, job_id: int, plan: Plan, names: Mapping[int, str]) -> None:
        if self._gateway is not None and job_id == self._gateway.job_id:
            await self._gateway.add_tasks(plan, names, job_limits())
            return
        was_entered = self._endpoint is not None or self._gateway is not None
        usable_context = nullcontext(self) if was_entered else current_or_new_context()
        async with usable_context as context, context.connection(keeps_session=True) as connection:
            await add_to_job(connection, job_id, plan, names, None, limits=job_limits())


Context = OrchContext


def job_limits() -> JobLimits:
    settings = get_settings()
    return JobLimits(settings.job_max_tasks, settings.job_max_depth)


def mark_submitted(nodes: Sequence[Node], job_id: int) -> None:
    for node in nodes:
        node.job_id, node.submitted = job_id, True


_current: ContextVar[OrchContext | None] = ContextVar("aaiclick_orch_context", default=None)


def get_current_context() -> OrchContext:
    """The current context: the innermost entered one, or that of the running task.

    ```python
    async with OrchContext() as context:
        assert get_current_context() is context
    ```
    """
    context = _current.get()
    if context is not None:
        return context
    scope = current_scope()
    if scope is None:
        raise AaiclickError(
            "There is no OrchContext here.", remedy="Enter one (`async with OrchContext():`), or call this in a task."
        )
    return OrchContext(scope.job_id, gateway=scope.gateway)


@asynccontextmanager
async def get_orch_context_session() -> AsyncGenerator[AsyncSession]:
    """A session of the current context: `async with get_orch_context_session() as session:`.

    ```python
    from sqlalchemy import text

    async with OrchContext(), get_orch_context_session() as session:
        jobs = await session.scalar(text("SELECT count(*) FROM jobs"))
    ```
    """
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
