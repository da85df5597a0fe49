"""`@job` functions that workers have registered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class JobFunctionFields:
    """A `@job` as its code declares it; `sql/columns.sql` lists the columns in this order.

    `parameters` (a JSON Schema), `tags` and `policy` (a `JobPolicy`) are JSON text.
    """

    entrypoint: str
    module: str
    name: str
    documentation: str
    parameters: str
    schedule: str | None = None
    timeout_seconds: float | None = None
    tags: str = "{}"
    owner: str | None = None
    code_version: str | None = None
    policy: str = "{}"


async def replace_job_functions(
    connection: Connection, org_id: UUID, modules: Sequence[str], functions: Sequence[JobFunctionFields]
) -> None:
    """Make the registered functions of these modules those in `functions`."""
    entrypoints = sorted(function.entrypoint for function in functions)
    await connection.execute(statement("delete_job_functions"), org_id, list(modules), entrypoints)
    for function in sorted(functions, key=lambda item: item.entrypoint):  # in one order: no deadlock between workers
        await connection.execute(statement("upsert_job_function"), org_id, *astuple(function))


async def find_job_function(connection: Connection, org_id: UUID, entrypoint: str) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("get_job_function"), org_id, entrypoint)


async def list_job_functions(
    connection: Connection, org_id: UUID, *, after: str = "", limit: int = 100
) -> list[asyncpg.Record]:
    """Functions by entrypoint, each with its last job."""
    return await connection.fetch(statement("list_job_functions"), org_id, after, limit)


async def list_named_jobs(connection: Connection, org_id: UUID, name: str, limit: int) -> list[asyncpg.Record]:
    """The last jobs of a name, newest first."""
    return await connection.fetch(statement("list_named_jobs"), org_id, name, limit)
