"""Connection poolers between us and PostgreSQL, such as PgBouncer.

Our sessions have state: planner settings, time limits, the role and organisation of row-level security, LISTEN,
prepared statements. A pooler that gives each client a server connection of its own (session mode) keeps it, but drops
start-up parameters: they are set by statements instead, after each reset too. One that changes server connections
between transactions would hand the state of one client to another, organisations included: it is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.errors import UnreachableError, UnsupportedServerError
from aaiclick.store.statements import statement
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

PROBE_SECONDS = 5.0
KNOWN_SECONDS = 60.0
"""How long the mode of a pooler is taken for known."""

ROUNDS = 3
LOST_STATE = (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
"""A prepared statement of another client, or none of ours: the server connection has changed."""

_known: dict[PostgresTarget, float] = {}


class GuardedConnection(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument, reportUntypedBaseClass]
    """A connection whose session settings survive the reset at its return to a pool."""

    guards = ""
    """Statements that set them; empty if they came with the start-up parameters, which a reset keeps."""

    def get_reset_query(self) -> str:
        return f"{super().get_reset_query()}\n{self.guards}"


async def guard(
    target: PostgresTarget,
    connection: Connection,
    settings: Mapping[str, str],
    open_probe: Callable[[], Awaitable[Connection]],
) -> None:
    """Make a connection through a pooler as safe as a direct one, or raise UnsupportedServerError."""
    if time.monotonic() - _known.get(target, float("-inf")) > KNOWN_SECONDS:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await _refuse_shared_sessions(target, connection, open_probe)
        except TimeoutError:
            raise UnreachableError(
                f"The connection pooler at {target.host}:{target.port} had no second server connection for us within "
                f"{PROBE_SECONDS:g} s.",
                remedy="Let it have more server connections (PgBouncer: default_pool_size), or connect to PostgreSQL "
                "itself.",
            ) from None
        _known[target] = time.monotonic()
    guards = " ".join(f"SELECT set_config({_literal(k)}, {_literal(v)}, false);" for k, v in settings.items())
    await connection.execute(guards)
    if isinstance(connection, GuardedConnection):
        connection.guards = guards


async def _refuse_shared_sessions(
    target: PostgresTarget, connection: Connection, open_probe: Callable[[], Awaitable[Connection]]
) -> None:
    """In session mode a client has its server process alone; else two clients meet the same one after the other."""
    probe = await open_probe()
    try:
        ours: set[int] = set()
        for _ in range(ROUNDS):
            ours.add(await _process_id(connection))
            async with probe.transaction():
                theirs = await probe.fetchval(statement("backend_pid"))
                ours.add(await _process_id(connection))
            if len(ours) > 1 or theirs in ours:
                raise shared_sessions(target)
    except (*LOST_STATE, asyncpg.ConnectionDoesNotExistError):  # in statement mode it hangs up at BEGIN
        raise shared_sessions(target) from None
    finally:
        probe.terminate()


async def _process_id(connection: Connection) -> int:
    async with connection.transaction():
        return await connection.fetchval(statement("backend_pid"))


def shared_sessions(target: PostgresTarget) -> UnsupportedServerError:
    return UnsupportedServerError(
        f"The server at {target.host}:{target.port} is a connection pooler that shares server connections "
        "between clients (transaction or statement mode): the sessions of organisations would mix.",
        remedy="Set pool_mode = session for this database in the pooler, or connect to PostgreSQL itself.",
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
