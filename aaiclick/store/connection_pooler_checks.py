"""Connection poolers such as PgBouncer: session mode is supported, transaction and statement mode are refused.

Sessions have state: planner settings, timeouts, the role and organisation of row-level security, LISTEN, prepared
statements. In session mode a pooler keeps it, but drops start-up parameters: they are set by statements instead, also
after each reset. In other modes the state of one client, including its organisation, would leak to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.errors import UnreachableError, UnsupportedServerError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

PROBE_SECONDS = 5.0
MODE_CACHE_SECONDS = 60.0
"""TTL of the detected mode of a pooler."""

PROBE_ROUNDS = 3
LOST_STATE_ERRORS = (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
"""Errors about prepared statements that occur when the server connection has changed."""

_checked_at: dict[PostgresEndpoint, float] = {}


class GuardedConnection(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument, reportUntypedBaseClass]
    """A connection that restores its session settings after the reset at its release to a pool, if it needs one."""

    settings_statements = ""
    """Statements that set them; empty if they are start-up parameters, which a reset keeps."""

    _is_unchanged = False

    def skip_reset(self) -> None:
        """Release it without a reset, which is a round trip: its session has not been changed."""
        self._is_unchanged = True

    def get_reset_query(self) -> str:
        if self._is_unchanged:
            self._is_unchanged = False
            return ""
        return f"{super().get_reset_query()}\n{self.settings_statements}"


async def guard_session(
    endpoint: PostgresEndpoint,
    connection: Connection,
    settings: Mapping[str, str],
    open_probe: Callable[[], Awaitable[Connection]],
) -> None:
    """Set the session settings of a connection through a pooler; UnsupportedServerError unless in session mode."""
    if time.monotonic() - _checked_at.get(endpoint, float("-inf")) > MODE_CACHE_SECONDS:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await _refuse_shared_sessions(endpoint, connection, open_probe)
        except TimeoutError:
            raise UnreachableError(
                f"The connection pooler at {endpoint.host}:{endpoint.port} provided no second server connection "
                f"within {PROBE_SECONDS:g} s.",
                remedy="Allow it more server connections (PgBouncer: default_pool_size), or connect to PostgreSQL "
                "itself.",
            ) from None
        _checked_at[endpoint] = time.monotonic()
    guards = " ".join(
        f"SELECT set_config({_quote_literal(k)}, {_quote_literal(v)}, false);" for k, v in settings.items()
    )
    await connection.execute(guards)
    if isinstance(connection, GuardedConnection):
        connection.settings_statements = guards


async def _refuse_shared_sessions(
    endpoint: PostgresEndpoint, connection: Connection, open_probe: Callable[[], Awaitable[Connection]]
) -> None:
    """Raise if two clients get the same server process, which cannot happen in session mode."""
    probe = await open_probe()
    try:
        own_pids: set[int] = set()
        for _ in range(PROBE_ROUNDS):
            own_pids.add(await _get_backend_pid(connection))
            async with probe.transaction():
                probe_pid = await probe.fetchval(statement("get_backend_pid"))
                own_pids.add(await _get_backend_pid(connection))
            if len(own_pids) > 1 or probe_pid in own_pids:
                raise shared_sessions_error(endpoint)
    except (
        *LOST_STATE_ERRORS,
        asyncpg.ConnectionDoesNotExistError,
    ):  # statement mode: closed at BEGIN
        raise shared_sessions_error(endpoint) from None
    finally:
        probe.terminate()


async def _get_backend_pid(connection: Connection) -> int:
    async with connection.transaction():
        return await connection.fetchval(statement("get_backend_pid"))


def shared_sessions_error(endpoint: PostgresEndpoint) -> UnsupportedServerError:
    return UnsupportedServerError(
        f"The server at {endpoint.host}:{endpoint.port} is a connection pooler that shares server connections "
        "between clients (transaction or statement mode): the sessions of organisations would mix.",
        remedy="Set pool_mode = session for this database in the pooler, or connect to PostgreSQL itself.",
    )


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
