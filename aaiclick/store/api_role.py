"""The role of the API's sessions: made once, checked at every start.

`aaiclick_api` owns nothing and passes no wall, so the policies of `models.walls` hold for it. A session takes it on as
it connects and never leaves it; for which org it speaks is said each time a request gets it from the pool.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from aaiclick.errors import AaiclickError, UnauthorisedError
from aaiclick.store.engine import SERVANT_SILENT_SECONDS, connect
from aaiclick.store.statements import statement
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection, Pool

API_ROLE = "aaiclick_api"
TRIES = 5


async def ensure_api_role(connection: Connection) -> None:
    """Make the role and let it to our tables, if that is still to be done."""
    for attempt in range(TRIES):
        if await connection.fetchval(statement("has_api_role")):
            return
        try:
            async with connection.transaction():
                await connection.execute(statement("create_api_role"))
                await connection.execute(statement("join_api_role"))
                await connection.execute(statement("grant_api_role"))
        except asyncpg.InsufficientPrivilegeError as error:
            raise UnauthorisedError(
                f"This user may not make the role {API_ROLE}, which walls the organisations off: {error}.",
                remedy=f"Have an administrator run: CREATE ROLE {API_ROLE} NOLOGIN; GRANT {API_ROLE} TO the user of "
                "AAICLICK_DATABASE_URL. Then start the server once as the owner of the tables.",
            ) from None
        except asyncpg.PostgresError:  # another server makes the same role of the same PostgreSQL at this moment
            if attempt == TRIES - 1:
                raise
            await asyncio.sleep(0.05)


def create_api_pool(target: PostgresTarget, *, size: int, statement_seconds: float) -> Pool:
    """Connections that are `aaiclick_api` for all their life. What a request set is undone when it gives one back."""
    settings = {"role": API_ROLE, "statement_timeout": f"{statement_seconds * 1000:.0f}"}

    async def open_connection(*_: object, **__: object) -> Connection:
        connection = await connect(target, silent_seconds=SERVANT_SILENT_SECONDS, server_settings=settings)
        try:
            await _refuse_owner(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    return asyncpg.create_pool(min_size=0, max_size=size, connect=open_connection)


async def speak_for(connection: Connection, org_id: UUID) -> None:
    """From now on the session sees what belongs to the org, and nothing else."""
    await connection.execute(statement("set_org"), str(org_id))


async def _refuse_owner(connection: Connection) -> None:
    """A pooler that drops start-up parameters would leave us the owner, whom no wall stops."""
    found = await connection.fetchrow(statement("check_api_role"))
    if found is None or found["name"] != API_ROLE or found["passes"] or found["owns"]:
        raise AaiclickError(
            f"The API's session is {found['name'] if found else 'nobody'!r} instead of {API_ROLE}, or that role passes "
            "row-level security: organisations would not be walled off.",
            remedy="Connect the server to PostgreSQL itself, not through a pooler, and leave the role without rights.",
        )
