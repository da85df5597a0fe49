"""Connections to PostgreSQL, and what is said when there are none.

`connect` is the only place that opens one: the SQLAlchemy engine, the migrations and the raw asyncpg users all go
through it, so a wrong password or a missing server reads the same everywhere. No message repeats the password.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg

from aaiclick.errors import AaiclickError, SettingsError, UnauthorisedError, UnreachableError, UnsupportedServerError
from aaiclick.store.pooler import LOST_STATE, GuardedConnection, guard, shared_sessions
from aaiclick.store.wire import introduce
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]

CONNECT_TIMEOUT_SECONDS = 10.0
MINIMUM_MAJOR_VERSION = 14
SESSION = {"enable_seqscan": "off", "enable_bitmapscan": "off", "plan_cache_mode": "force_generic_plan", "jit": "off"}
"""Every statement has its index, and reads in its order what it wants in order. A plan made and kept while a table was
small must not read it whole when it is not; nor may one made before any ANALYZE, which expects few rows, fetch all by a
bitmap and sort them for a first page. And since a statement's plan is the same whatever its parameters, making it anew
each time would only cost.
Before version 18 what is off counts as very dear, and a dear statement is compiled (jit): that took 28 s of a test.
"""

SILENT_SECONDS = 5.0
"""Our transactions are a few statements, each right after the other. Who says nothing for so long in the middle of one
is frozen, or cut off by a network that tells nobody, and what it has locked may be what all others wait for (elections,
a job's counters): PostgreSQL ends it. What it was at is undone, and it hears so when it speaks again.
"""

SERVANT_SILENT_SECONDS = 2.5
"""The same of workers and servers: others wait for them more often, and their programs do nothing else meanwhile."""

IDLE_SECONDS, AGAIN_SECONDS, TIMES = 10, 5, 3
KEEPALIVE = {
    "tcp_keepalives_idle": str(IDLE_SECONDS),
    "tcp_keepalives_interval": str(AGAIN_SECONDS),
    "tcp_keepalives_count": str(TIMES),
    "tcp_user_timeout": str(1000 * (IDLE_SECONDS + AGAIN_SECONDS * TIMES)),
}
"""On a network, both ends notice within 25 s that the other is no longer there: we wait for nobody, and PostgreSQL
lets go of what a client that has vanished had locked.
"""

CHECK_PLACE = "Check host and port (AAICLICK_DATABASE_URL, or POSTGRES_HOST and POSTGRES_PORT)."

_REFUSED = (
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
)
_NOT_POSTGRESQL = (asyncpg.InternalClientError, asyncpg.ProtocolViolationError)


@dataclass(frozen=True)
class Server:
    """What answered."""

    major_version: int
    description: str


async def connect(target: PostgresTarget, *, silent_seconds: float = SILENT_SECONDS, **options: Any) -> Connection:
    """Open one asyncpg connection; every way this fails is an aaiclick error."""
    try:
        return await _open(target, silent_seconds, options)
    except asyncpg.ClientConfigurationError as error:
        raise SettingsError(
            f"The address of {target} cannot be used: {error}.",
            remedy="Correct AAICLICK_DATABASE_URL; 'aaiclick config' shows what is set.",
        ) from None
    except (OSError, TimeoutError, UnicodeError, asyncpg.PostgresError, asyncpg.InternalClientError) as error:
        raise _explain(target, error).at(target.endpoint) from error


async def _open(target: PostgresTarget, silent_seconds: float, options: dict[str, Any]) -> Connection:
    by_network = not target.host.startswith("/")
    settings = SESSION | {"idle_in_transaction_session_timeout": f"{1000 * silent_seconds:.0f}"}
    settings |= options.pop("server_settings", {})
    options = {"timeout": CONNECT_TIMEOUT_SECONDS, "connection_class": GuardedConnection} | options
    if not by_network:  # variables like PGSSLMODE are meant for servers on a network
        options = {"ssl": False, "target_session_attrs": "any", "gsslib": "gssapi"} | options
    given = settings | (KEEPALIVE if by_network else {})
    try:
        opened = await asyncpg.connect(target.dsn, server_settings=given, **options)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        # A pooler that takes none: `guard` sets them.
        opened = await asyncpg.connect(target.dsn, **options)
    if by_network:
        _keep_alive(opened)
    try:
        if await introduce(opened) != opened.get_server_pid():
            probe = partial(asyncpg.connect, target.dsn, statement_cache_size=0, **options)
            await guard(target, opened, settings, probe)
    except LOST_STATE:
        opened.terminate()
        raise shared_sessions(target) from None
    except BaseException:
        opened.terminate()
        raise
    return opened


def _keep_alive(connection: Connection) -> None:
    """The client's side of KEEPALIVE; systems name these options differently, or have fewer."""
    transport: asyncio.Transport = connection._transport  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType, reportPrivateUsage]
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_SECONDS),
        ("TCP_KEEPINTVL", AGAIN_SECONDS),
        ("TCP_KEEPCNT", TIMES),
        ("TCP_USER_TIMEOUT", 1000 * (IDLE_SECONDS + AGAIN_SECONDS * TIMES)),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def create_pool(target: PostgresTarget, *, size: int = 5, silent_seconds: float = SILENT_SECONDS) -> Pool:
    """A pool of plain driver connections, opened as they are needed: `async with pool.acquire() as connection:`.

    JSON comes out of them as text, as the statements in `sql/` expect; an engine's connections decode it.
    """

    async def open_connection(*_: Any, **__: Any) -> Connection:
        return await connect(target, silent_seconds=silent_seconds)

    return asyncpg.create_pool(min_size=0, max_size=size, connect=open_connection)


def create_engine(target: PostgresTarget, *, pool_size: int = 5, max_overflow: int = 10) -> AsyncEngine:
    """An engine whose connections come from `connect`; nothing is opened until it is used."""
    from sqlalchemy.ext.asyncio import create_async_engine  # few use it, and all would wait for it

    async def open_connection() -> Connection:
        return await connect(target)

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=open_connection, pool_size=pool_size, max_overflow=max_overflow
    )


async def check_server(target: PostgresTarget) -> Server:
    """Say what answers at `target`, or raise the error that says why it cannot be used."""
    connection = await connect(target)
    try:
        description = str(await connection.fetchval("SELECT version()"))
    finally:
        await connection.close()
    return judge_server(target, connection.get_server_version().major, description)


def judge_server(target: PostgresTarget, major_version: int, description: str) -> Server:
    if not description.startswith("PostgreSQL "):
        raise UnsupportedServerError(
            f"The server at {_place(target)} is not PostgreSQL; it says: {description}.",
            remedy=f"aaiclick works with PostgreSQL {MINIMUM_MAJOR_VERSION} or newer.",
        )
    if major_version < MINIMUM_MAJOR_VERSION:
        raise UnsupportedServerError(
            f"The server at {_place(target)} is PostgreSQL {major_version}, which is too old.",
            remedy=f"Upgrade it to PostgreSQL {MINIMUM_MAJOR_VERSION} or newer.",
        )
    return Server(major_version, description)


def _explain(target: PostgresTarget, error: Exception) -> AaiclickError:
    """Turn what a driver or the system says into what a user can act on."""
    match error:
        case UnicodeError():
            return SettingsError(f"{target.host[:60]!r} is no name of a host.", remedy=CHECK_PLACE)
        case asyncpg.InvalidCatalogNameError():
            return UnreachableError(
                f"The server at {_place(target)} has no database {target.database!r}.",
                remedy=f"Create it: createdb -h {target.host} -p {target.port} -U {target.user} {target.database}",
            )
        case _ if isinstance(error, _REFUSED):
            return UnauthorisedError(
                f"The server at {_place(target)} refused user {target.user!r}: {error}.",
                remedy="Check user and password (AAICLICK_DATABASE_URL, or POSTGRES_USER and POSTGRES_PASSWORD).",
            )
        case _ if isinstance(error, _NOT_POSTGRESQL) or _garbles_greeting(target, error):
            return UnsupportedServerError(
                f"What answers at {_place(target)} does not speak PostgreSQL's protocol.",
                remedy=CHECK_PLACE,
            )
        case _ if "SSL" in str(error):
            return UnreachableError(
                f"PostgreSQL at {_place(target)} and this client do not agree about TLS: {_reason(error)}.",
                remedy="Set sslmode in AAICLICK_DATABASE_URL (?sslmode=disable, prefer, require, verify-full).",
            )
        case _:
            return UnreachableError(
                f"PostgreSQL at {_place(target)} does not answer: {_reason(error)}.",
                remedy=f"Check that it runs. {CHECK_PLACE}",
            )


LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""A working connection is lost, or PostgreSQL cannot serve it now: a shutdown, a restart, a full disk, a standby."""


def explain_loss(
    target: PostgresTarget, error: Exception, connection: Connection | None = None
) -> UnreachableError | None:
    """The error for an operation on an open connection that fails because of the server; None if the operation is at
    fault. A broken network is the server's only if it has closed the `connection`.
    """
    cancelled = isinstance(error, asyncpg.QueryCanceledError)  # a statement timeout: the statement is at fault
    closed = isinstance(error, asyncpg.InterfaceError) and "clos" in str(error)
    broken = isinstance(error, ConnectionError) and connection is not None and connection.is_closed()
    if cancelled or not (closed or broken or isinstance(error, LOST)):
        return None
    return UnreachableError(
        f"PostgreSQL at {_place(target)} does not answer: {_reason(error)}.",
        remedy=f"Check that it runs. {CHECK_PLACE}",
    ).at(target.endpoint)


def _garbles_greeting(target: PostgresTarget, error: Exception) -> bool:
    """asyncpg offers TLS first; PostgreSQL says yes or no, and only who insists on TLS is turned away by a no."""
    insists = dict(target.options).get("sslmode", "prefer") not in ("prefer", "allow")
    return isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error) and not insists


def _place(target: PostgresTarget) -> str:
    place = f"{target.host}:{target.port}"
    return f"socket {place}" if target.host.startswith("/") else place


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_TIMEOUT_SECONDS:g} s"
    if isinstance(error, asyncpg.ConnectionDoesNotExistError):  # a balancer whose server restarts does so
        return "it hung up before it had answered"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
