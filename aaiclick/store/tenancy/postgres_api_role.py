"""The PostgreSQL role of the API's sessions, and the tenant of a session.

`aaiclick_api` owns nothing and does not bypass row-level security (`models.row_level_security`). A session takes the
role at its start; each request sets its org after it has acquired a connection from the pool.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import AaiclickError, UnauthorisedError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.postgres_connections import SERVICE_IDLE_TRANSACTION_SECONDS, connect
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection, Pool

API_ROLE = "aaiclick_api"
MAX_TRIES = 5


async def ensure_api_role(connection: Connection) -> None:
    """Create the role and grant it access to the tables, unless that is done."""
    for attempt in range(MAX_TRIES):
        if await connection.fetchval(statement("has_api_role")):
            return
        try:
            async with connection.transaction():
                await connection.execute(statement("create_api_role"))
                await connection.execute(statement("join_api_role"))
                await connection.execute(statement("grant_api_role"))
        except asyncpg.InsufficientPrivilegeError as error:
            raise UnauthorisedError(
                f"This user may not create the role {API_ROLE}, which separates organisations: {error}.",
                remedy=f"Have an administrator run: CREATE ROLE {API_ROLE} NOLOGIN; GRANT {API_ROLE} TO the user of "
                "AAICLICK_DATABASE_URL. Then start the server once as the owner of the tables.",
            ) from None
        except asyncpg.PostgresError:  # another server creates the same role concurrently
            if attempt == MAX_TRIES - 1:
                raise
            await asyncio.sleep(0.05)


def create_api_pool(endpoint: PostgresEndpoint, *, size: int, statement_seconds: float) -> Pool:
    """A pool of connections with the role `aaiclick_api`. Session state is reset at each release."""
    settings = {"role": API_ROLE, "statement_timeout": f"{statement_seconds * 1000:.0f}"}

    async def open_connection(*_: object, **__: object) -> Connection:
        connection = await connect(endpoint, silent_seconds=SERVICE_IDLE_TRANSACTION_SECONDS, server_settings=settings)
        try:
            await _check_role(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    return asyncpg.create_pool(min_size=0, max_size=size, connect=open_connection)


async def set_tenant(connection: Connection, org_id: UUID) -> None:
    """Limit the session to rows of the org, by row-level security."""
    await connection.execute(statement("set_tenant"), str(org_id))


async def _check_role(connection: Connection) -> None:
    """Raise unless the session has the API role: a pooler that drops start-up parameters would leave the owner's."""
    role = await connection.fetchrow(statement("check_api_role"))
    if role is None or role["name"] != API_ROLE or role["passes"] or role["owns"]:
        raise AaiclickError(
            f"The API's session has the role {role['name'] if role else 'none'!r} instead of {API_ROLE}, or that role "
            "bypasses row-level security: organisations would not be separated.",
            remedy="Connect the server to PostgreSQL itself, not through a pooler, and grant the role nothing else.",
        )
