"""Reference counting of ClickHouse tables in PostgreSQL.

A table is registered before it is created and until after it is dropped. References are rows with an owner, so ending
an owner releases exactly its references; a trigger maintains their sum in `refcount`. See docs/internals/lifecycle.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import NotFoundError, UnknownTableError
from aaiclick.store.deadlock_retry import retry_on_deadlock
from aaiclick.store.engine.claims import lease_columns
from aaiclick.store.engine.leases_and_outcomes import Lease, Success
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

FAILED_JOB_RETENTION_SECONDS = 86_400.0
"""How long a failed job keeps the tables of its tasks, so that it can be retried."""

SESSION_TIMEOUT_SECONDS = 3_600.0
"""How long a session outside of tasks may miss heartbeats."""

RECLAIM_SECONDS = 30.0
"""How long a drop may take before it is repeated by another process."""

DROP_BATCH_SIZE = 500
JOB_BATCH_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class TableReferenceResult:
    """Result of a request of an attempt to reference a table."""

    lease_lost: bool
    is_unknown: bool


async def reserve_tables(connection: Connection, requests: Sequence[tuple[str, Lease]]) -> list[TableReferenceResult]:
    """Register tables before they are created; a name that another organisation has registered is `is_unknown`."""
    async with failpoints.statement("reserve_tables"):
        return await _reference_tables(connection, statement("reserve_tables"), requests)


async def hold_tables(connection: Connection, requests: Sequence[tuple[str, Lease]]) -> list[TableReferenceResult]:
    """Reference existing tables; one that is not registered, or is being dropped, is `is_unknown`."""
    async with failpoints.statement("hold_tables"):
        return await _reference_tables(connection, statement("hold_tables"), requests)


async def _reference_tables(
    connection: Connection, query: str, requests: Sequence[tuple[str, Lease]]
) -> list[TableReferenceResult]:
    """Reference tables by attempts, if their leases are valid."""
    rows = await retry_on_deadlock(lambda: connection.fetch(query, *_request_columns(requests)))
    held = {(row["name"], row["id"]): row["held"] for row in rows}
    return [
        TableReferenceResult((name, lease.task_id) not in held, not held.get((name, lease.task_id), True))
        for name, lease in requests
    ]


def _request_columns(requests: Sequence[tuple[str, Lease]]) -> tuple[list[object], ...]:
    """Columns of requests, in the lock order of tasks."""
    ordered = sorted(requests, key=lambda wish: (wish[1].task_id, wish[0]))
    leases: tuple[list[object], ...] = lease_columns([lease for _, lease in ordered])  # pyright: ignore[reportAssignmentType]
    return ([name for name, _ in ordered], *leases)


async def is_held(connection: Connection, table_name: str, lease: Lease) -> bool:
    """Whether an attempt holds a table."""
    return bool(await connection.fetchval(statement("is_table_held"), table_name, lease.task_id, lease.attempt))


async def release_tables(connection: Connection, tables: Sequence[tuple[str, Lease]]) -> None:
    """Release references of attempts to tables."""
    names, ids, attempts, _ = _request_columns(tables)
    async with failpoints.statement("release_tables"):
        await retry_on_deadlock(lambda: connection.execute(statement("release_tables"), names, ids, attempts))


async def release_attempts(connection: Connection, leases: Sequence[Lease]) -> None:
    """Release all references of failed attempts, in the transaction that ends them."""
    if leases:
        ids, attempts, _ = lease_columns(leases)
        await connection.execute(statement("release_attempts"), ids, attempts)


async def publish_results(connection: Connection, successes: Iterable[Success]) -> dict[int, str]:
    """Move the references of completed attempts to their results, in the transaction that completes them.

    Returns the tasks with a table in their result that they cannot reference, with one such table.
    """
    with_tables = [success for success in successes if success.tables is not None]
    if not with_tables:
        return {}
    ids, attempts, _ = lease_columns([success.lease for success in with_tables])
    results = [(success.lease.task_id, name) for success in with_tables for name in success.tables or ()]
    refused = await connection.fetch(
        statement("publish_tables"), ids, attempts, [task for task, _ in results], [name for _, name in results]
    )
    return {row["id"]: row["name"] for row in refused}


async def hold_results(connection: Connection, task_id: int, names: Collection[str]) -> None:
    """Reference the tables of returned results by the task that returned them."""
    if names:
        await connection.execute(statement("publish_tables"), [], [], [task_id] * len(names), sorted(names))


async def release_results(connection: Connection, task_ids: Sequence[int]) -> None:
    """Release the results of tasks, in the transaction that resets them."""
    await connection.execute(statement("release_results"), list(task_ids))


async def hold_arguments(
    connection: Connection,
    job_id: int | None,
    tables: Collection[tuple[int, str]],
    session_tables: Mapping[str, int],
    names: Mapping[int, str],
    org_id: UUID = DEFAULT_ORG_ID,
) -> None:
    """Reference the tables in arguments, (task, table) pairs, in the transaction that inserts the tasks.

    `session_tables` belong to sessions without PostgreSQL, and are registered here.
    """
    if not tables:
        return
    if session_tables:
        await connection.execute(
            statement("register_session_tables"), list(session_tables), list(session_tables.values())
        )
    pairs = sorted(set(tables)) if job_id is None else [(job_id, name) for name in sorted({name for _, name in tables})]
    missing = await connection.fetch(
        statement("hold_arguments"), [name for _, name in pairs], [task for task, _ in pairs], job_id, org_id
    )
    if missing:
        table = missing[0]["name"]
        task = next(task for task, name in tables if name == table)
        raise UnknownTableError(
            f"{names.get(task, f'Task {task}')} has an Object of table {table} as argument, which is released or "
            "unknown.",
            remedy="Create the Object again, and pass it on while its context, its job or a name holds it.",
        )


# --- sessions -----------------------------------------------------------------------------------------------------


async def renew_session(connection: Connection, session: int) -> None:
    """Renew the heartbeat of a session."""
    await connection.execute(statement("renew_session"), session)


async def set_session_references(connection: Connection, session: int, counts: Mapping[str, int]) -> set[str]:
    """Set the reference counts of a session; returns the tables that it cannot reference because they are dropped."""
    held = {name: count for name, count in counts.items() if count > 0}
    rest = [name for name, count in counts.items() if count <= 0]
    rows = await retry_on_deadlock(
        lambda: connection.fetch(statement("set_session_references"), session, list(held), list(held.values()), rest)
    )
    return set(held) - {row["table_name"] for row in rows}


async def list_stale_sessions(
    connection: Connection, *, silent_seconds: float = SESSION_TIMEOUT_SECONDS, now: datetime | None = None
) -> dict[int, bool]:
    """Sessions without a recent heartbeat, and whether their liveness is known in ClickHouse only."""
    rows = await connection.fetch(statement("list_stale_sessions"), silent_seconds, now)
    return {row["id"]: row["in_clickhouse"] for row in rows}


async def release_sessions(connection: Connection, sessions: Sequence[int]) -> None:
    """Release all references of ended sessions."""
    await retry_on_deadlock(lambda: connection.execute(statement("release_sessions"), list(sessions)))


# --- names --------------------------------------------------------------------------------------------------------


async def name_table(connection: Connection, table_name: str, name: str, lease: Lease | None = None) -> None:
    """Reference a table by name, in the org of the attempt."""
    task_id = None if lease is None else lease.task_id
    await connection.execute(statement("name_table"), table_name, name, task_id, DEFAULT_ORG_ID)


async def unname_table(connection: Connection, table_name: str, lease: Lease | None = None) -> None:
    task_id = None if lease is None else lease.task_id
    await connection.execute(statement("unname_table"), table_name, task_id, DEFAULT_ORG_ID)


# --- jobs ---------------------------------------------------------------------------------------------------------


async def release_ended_jobs(
    connection: Connection,
    *,
    failed_seconds: float = FAILED_JOB_RETENTION_SECONDS,
    limit: int = JOB_BATCH_SIZE,
    now: datetime | None = None,
) -> int:
    """Release the references of ended jobs except to their final results; returns how many."""
    row = await retry_on_deadlock(
        lambda: connection.fetchrow(statement("release_ended_jobs"), failed_seconds, limit, now)
    )
    return 0 if row is None else int(row["released"])


async def release_jobs(connection: Connection, job_ids: Sequence[int]) -> int:
    """Release all references of ended jobs, also to final results; returns the number of tables."""
    rows = await retry_on_deadlock(lambda: connection.fetch(statement("release_jobs"), list(job_ids)))
    for job_id in job_ids:
        if job_id not in {row["id"] for row in rows}:
            raise NotFoundError(
                f"There is no ended job {job_id}.",
                remedy="'aaiclick jobs show' shows its status; cancel it first if it runs.",
            )
    return int(rows[0]["tables"]) if rows else 0


# --- dropping -----------------------------------------------------------------------------------------------------


async def mark_tables_dropping(
    connection: Connection,
    *,
    limit: int = DROP_BATCH_SIZE,
    reclaim_seconds: float = RECLAIM_SECONDS,
    now: datetime | None = None,
) -> dict[str, UUID]:
    """Mark tables without references as being dropped; returns them with their orgs. New references are refused."""
    async with failpoints.statement("mark_tables_dropping"):
        rows = await retry_on_deadlock(
            lambda: connection.fetch(statement("mark_tables_dropping"), limit, reclaim_seconds, now)
        )
    return {row["table_name"]: row["org_id"] for row in rows}


async def mark_orphan_tables(
    connection: Connection, names: Sequence[str], org_id: UUID = DEFAULT_ORG_ID
) -> dict[str, UUID]:
    """Mark unregistered tables of an org as being dropped; returns those that were not registered."""
    async with failpoints.statement("mark_orphan_tables"):
        rows = await retry_on_deadlock(lambda: connection.fetch(statement("mark_orphan_tables"), list(names), org_id))
    return {row["table_name"]: org_id for row in rows}


async def find_known_tables(connection: Connection, names: Sequence[str]) -> set[str]:
    return {row["table_name"] for row in await connection.fetch(statement("find_known_tables"), list(names))}


async def list_table_holders(connection: Connection, names: Sequence[str], org_id: UUID) -> list[asyncpg.Record]:
    """Tasks and jobs that reference tables (`owner`, `task_id`, `of_dag`); owner None: no reference."""
    return await connection.fetch(statement("list_table_holders"), list(names), org_id)


async def delete_tables(connection: Connection, names: Sequence[str]) -> None:
    """Delete the rows of dropped tables."""
    if names:
        async with failpoints.statement("delete_tables"):
            await retry_on_deadlock(lambda: connection.execute(statement("delete_tables"), list(names)))


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """A table with its references; `owners` is a JSON list."""

    table_name: str
    refcount: int
    created_at: datetime
    owners: str


async def list_tables(
    connection: Connection,
    org_id: UUID,
    *,
    job_id: int | None = None,
    names: Sequence[str] | None = None,
    after: str = "",
    limit: int = 1_000,
) -> list[RegisteredTable]:
    """Tables of an org by name, optionally those of a job or some names; the last is the `after` of the next page."""
    rows = await connection.fetch(
        statement("list_tables"), job_id, org_id, after, limit, None if names is None else list(names)
    )
    return [RegisteredTable(**row) for row in rows]


async def list_orgs_with_tables(connection: Connection) -> set[UUID]:
    return {row["org_id"] for row in await connection.fetch(statement("list_orgs_with_tables"))}
