"""Connections to PostgreSQL, and errors for users.

`connect` opens all of them, also for the SQLAlchemy engine and migrations, so a wrong password or a missing server
gives the same message everywhere. No message contains the password.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg

from aaiclick.errors import AaiclickError, SettingsError, UnauthorisedError, UnreachableError, UnsupportedServerError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.asyncpg_types import register_types
from aaiclick.store.connection_pooler_checks import (
    LOST_STATE_ERRORS,
    GuardedConnection,
    guard_session,
    shared_sessions_error,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]

CONNECT_TIMEOUT_SECONDS = 10.0
MINIMUM_MAJOR_VERSION = 14
SESSION_SETTINGS = {
    "application_name": "aaiclick", "enable_seqscan": "off", "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan", "jit": "off",
}  # fmt: skip
"""Session settings: every statement has its index, and reads in index order.

A plan cached while a table was small must not scan it when it is large; a plan made before the first ANALYZE must not
sort all rows for a first page. Plans do not depend on parameters, so generic plans save planning time. Before version
18 disabled plan types have a very high cost, which triggers JIT compilation: that took 28 s in a test.
"""

IDLE_TRANSACTION_SECONDS = 5.0
"""Idle timeout in transactions, which consist of a few statements in quick succession.

A client that is idle for so long is frozen or disconnected, and may hold locks that others need (elections, counters of
a job): PostgreSQL aborts the transaction and closes the session.
"""

SERVICE_IDLE_TRANSACTION_SECONDS = 2.5
"""The same for workers and servers: other sessions need their locks more often."""

KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT = 10, 5, 3
KEEPALIVE = {
    "tcp_keepalives_idle": str(KEEPALIVE_IDLE_SECONDS),
    "tcp_keepalives_interval": str(KEEPALIVE_INTERVAL_SECONDS),
    "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    "tcp_user_timeout": str(1000 * (KEEPALIVE_IDLE_SECONDS + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_COUNT)),
}
"""TCP keepalive: both ends detect a lost peer within 25 s, and PostgreSQL releases the locks of a lost client."""

ADDRESS_REMEDY = "Check host and port (AAICLICK_DATABASE_URL, or POSTGRES_HOST and POSTGRES_PORT)."

_REFUSED = (
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
)
_NOT_POSTGRESQL = (asyncpg.InternalClientError, asyncpg.ProtocolViolationError)


@dataclass(frozen=True)
class ServerInfo:
    """Version of a PostgreSQL server."""

    major_version: int
    description: str


async def connect(
    endpoint: PostgresEndpoint, *, silent_seconds: float = IDLE_TRANSACTION_SECONDS, **options: object
) -> Connection:
    """Open one asyncpg connection; all failures raise an AaiclickError."""
    try:
        return await _open_connection(endpoint, silent_seconds, options)
    except asyncpg.ClientConfigurationError as error:
        raise SettingsError(
            f"The address of {endpoint} cannot be used: {error}.",
            remedy="Correct AAICLICK_DATABASE_URL; 'aaiclick config' shows what is set.",
        ) from None
    except (OSError, TimeoutError, UnicodeError, asyncpg.PostgresError, asyncpg.InternalClientError) as error:
        raise _to_connection_error(endpoint, error).at(endpoint.address) from error


async def _open_connection(endpoint: PostgresEndpoint, silent_seconds: float, options: dict[str, Any]) -> Connection:
    by_network = not endpoint.host.startswith("/")
    settings = SESSION_SETTINGS | {"idle_in_transaction_session_timeout": f"{1000 * silent_seconds:.0f}"}
    settings |= options.pop("server_settings", {})
    options = {"timeout": CONNECT_TIMEOUT_SECONDS, "connection_class": GuardedConnection} | options
    if not by_network:  # variables like PGSSLMODE apply to servers on a network
        options = {"ssl": False, "target_session_attrs": "any", "gsslib": "gssapi"} | options
    start_up_settings = settings | (KEEPALIVE if by_network else {})
    try:
        connection = await asyncpg.connect(endpoint.dsn, server_settings=start_up_settings, **options)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        # A pooler that takes none: `guard` sets them.
        connection = await asyncpg.connect(endpoint.dsn, **options)
    if by_network:
        _enable_keepalive(connection)
    try:
        if await register_types(connection) != connection.get_server_pid():
            probe = partial(asyncpg.connect, endpoint.dsn, statement_cache_size=0, **options)
            await guard_session(endpoint, connection, settings, probe)
    except LOST_STATE_ERRORS:
        connection.terminate()
        raise shared_sessions_error(endpoint) from None
    except BaseException:
        connection.terminate()
        raise
    return connection


def _enable_keepalive(connection: Connection) -> None:
    """Set the client's side of KEEPALIVE; options depend on the operating system."""
    transport: asyncio.Transport = connection._transport  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType, reportPrivateUsage]
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", 1000 * (KEEPALIVE_IDLE_SECONDS + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_COUNT)),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def create_pool(endpoint: PostgresEndpoint, *, size: int = 5, silent_seconds: float = IDLE_TRANSACTION_SECONDS) -> Pool:
    """A pool of plain driver connections, opened as they are needed: `async with pool.acquire() as connection:`.

    They return JSON as text, as the statements in `sql/` expect; connections of an engine decode it.
    """

    async def open_connection(*_: object, **__: object) -> Connection:
        return await connect(endpoint, silent_seconds=silent_seconds)

    return asyncpg.create_pool(min_size=0, max_size=size, connect=open_connection)


def create_engine(endpoint: PostgresEndpoint, *, pool_size: int = 5, max_overflow: int = 10) -> AsyncEngine:
    """An engine with connections of `connect`; none is opened until it is used."""
    from sqlalchemy.ext.asyncio import create_async_engine  # slow to import, and rarely used

    async def open_connection() -> Connection:
        return await connect(endpoint)

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=open_connection, pool_size=pool_size, max_overflow=max_overflow
    )


async def check_server(endpoint: PostgresEndpoint) -> ServerInfo:
    """The version of the server at `endpoint`; raises if it cannot be used."""
    connection = await connect(endpoint)
    try:
        description = str(await connection.fetchval("SELECT version()"))
    finally:
        await connection.close()
    return check_version(endpoint, connection.get_server_version().major, description)


def check_version(endpoint: PostgresEndpoint, major_version: int, description: str) -> ServerInfo:
    if not description.startswith("PostgreSQL "):
        raise UnsupportedServerError(
            f"The server at {_format_address(endpoint)} is not PostgreSQL; it reports: {description}.",
            remedy=f"aaiclick works with PostgreSQL {MINIMUM_MAJOR_VERSION} or newer.",
        )
    if major_version < MINIMUM_MAJOR_VERSION:
        raise UnsupportedServerError(
            f"The server at {_format_address(endpoint)} is PostgreSQL {major_version}, which is too old.",
            remedy=f"Upgrade it to PostgreSQL {MINIMUM_MAJOR_VERSION} or newer.",
        )
    return ServerInfo(major_version, description)


def _to_connection_error(endpoint: PostgresEndpoint, error: Exception) -> AaiclickError:
    """The AaiclickError, with a remedy, for an error of the driver or the system."""
    match error:
        case UnicodeError():
            return SettingsError(f"{endpoint.host[:60]!r} is not a valid host name.", remedy=ADDRESS_REMEDY)
        case asyncpg.InvalidCatalogNameError():
            return UnreachableError(
                f"The server at {_format_address(endpoint)} has no database {endpoint.database!r}.",
                remedy=f"Create it: createdb -h {endpoint.host} -p {endpoint.port} -U {endpoint.user} "
                f"{endpoint.database}",
            )
        case _ if isinstance(error, _REFUSED):
            return UnauthorisedError(
                f"The server at {_format_address(endpoint)} refused user {endpoint.user!r}: {error}.",
                remedy="Check user and password (AAICLICK_DATABASE_URL, or POSTGRES_USER and POSTGRES_PASSWORD).",
            )
        case _ if isinstance(error, _NOT_POSTGRESQL) or _is_not_postgresql(endpoint, error):
            return UnsupportedServerError(
                f"The server at {_format_address(endpoint)} does not use PostgreSQL's protocol.",
                remedy=ADDRESS_REMEDY,
            )
        case _ if "SSL" in str(error):
            return UnreachableError(
                f"PostgreSQL at {_format_address(endpoint)} and this client do not agree about TLS: "
                f"{_format_reason(error)}.",
                remedy="Set sslmode in AAICLICK_DATABASE_URL (?sslmode=disable, prefer, require, verify-full).",
            )
        case _:
            return UnreachableError(
                f"PostgreSQL at {_format_address(endpoint)} does not answer: {_format_reason(error)}.",
                remedy=f"Check that it runs. {ADDRESS_REMEDY}",
            )


LOST_CONNECTION_ERRORS = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""Errors of an open connection caused by the server: shutdown, restart, full disk, standby."""

OUTAGE_ERRORS = (UnreachableError, OSError, asyncpg.InterfaceError, *LOST_CONNECTION_ERRORS)
"""PostgreSQL restarts or is unreachable: the operation is retried."""

CONNECTION_ERRORS = (AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors after which a loop opens a new connection and continues: outages, and statements that were refused."""


def to_unreachable_error(
    endpoint: PostgresEndpoint, error: Exception, connection: Connection | None = None
) -> UnreachableError | None:
    """UnreachableError for an operation that failed because of the server; None if the operation caused the error.

    A ConnectionError counts only if it has closed the `connection`.
    """
    cancelled = isinstance(error, asyncpg.QueryCanceledError)  # a statement timeout: caused by the statement
    closed = isinstance(error, asyncpg.InterfaceError) and "clos" in str(error)
    broken = isinstance(error, ConnectionError) and connection is not None and connection.is_closed()
    if cancelled or not (closed or broken or isinstance(error, LOST_CONNECTION_ERRORS)):
        return None
    return UnreachableError(
        f"PostgreSQL at {_format_address(endpoint)} does not answer: {_format_reason(error)}.",
        remedy=f"Check that it runs. {ADDRESS_REMEDY}",
    ).at(endpoint.address)


def _is_not_postgresql(endpoint: PostgresEndpoint, error: Exception) -> bool:
    """Whether the server rejected asyncpg's TLS offer with something other than PostgreSQL's answer."""
    requires_tls = dict(endpoint.options).get("sslmode", "prefer") not in ("prefer", "allow")
    return isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error) and not requires_tls


def _format_address(endpoint: PostgresEndpoint) -> str:
    address = f"{endpoint.host}:{endpoint.port}"
    return f"socket {address}" if endpoint.host.startswith("/") else address


def _format_reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_TIMEOUT_SECONDS:g} s"
    if isinstance(error, asyncpg.ConnectionDoesNotExistError):  # a load balancer during a restart of its server
        return "it closed the connection before it answered"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
