"""Tables in ClickHouse, as PostgreSQL knows them: who refers to which, and what nobody refers to any more.

A table is known before it exists and until it is gone. References are rows with an owner, so ending an owner releases
exactly what it had; `refcount` is their sum, kept by a trigger. docs/lifecycle.md has the whole story.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import NotFoundError, UnknownTableError
from aaiclick.store.claims import columns
from aaiclick.store.deadlocks import again
from aaiclick.store.leases import Lease, Success
from aaiclick.store.statements import statement
from aaiclick.store.words import DEFAULT_ORG_ID

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

FAILED_SECONDS = 86_400.0
"""How long a failed job keeps what its tasks made, so that it can be retried."""

SESSION_SECONDS = 3_600.0
"""How long a session outside of tasks may be silent."""

RECLAIM_SECONDS = 30.0
"""How long a drop may take before somebody else does it again."""

DROPPED_AT_ONCE = 500
JOBS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Held:
    """What became of an attempt's wish to refer to a table."""

    lease_lost: bool
    gone: bool


async def reserve(connection: Connection, wishes: Sequence[tuple[str, Lease]]) -> list[Held]:
    """Make tables known before they exist, each held by its attempt; only an attempt that has its lease gets one."""
    async with faults.statement("reserve_tables"):
        rows = await again(lambda: connection.fetch(statement("reserve_tables"), *_wishes(wishes)))
    given = {(row["name"], row["id"]) for row in rows}
    return [Held((name, lease.task_id) not in given, gone=False) for name, lease in wishes]


async def hold(connection: Connection, wishes: Sequence[tuple[str, Lease]]) -> list[Held]:
    """Refer to tables that are there; one that nobody knows, or whose drop has begun, is `gone`."""
    async with faults.statement("hold_tables"):
        rows = await again(lambda: connection.fetch(statement("hold_tables"), *_wishes(wishes)))
    given = {(row["name"], row["id"]): row["held"] for row in rows}
    return [
        Held((name, lease.task_id) not in given, not given.get((name, lease.task_id), True)) for name, lease in wishes
    ]


def _wishes(wishes: Sequence[tuple[str, Lease]]) -> tuple[list[object], ...]:
    """In the order in which all lock tasks."""
    ordered = sorted(wishes, key=lambda wish: (wish[1].task_id, wish[0]))
    leases: tuple[list[object], ...] = columns([lease for _, lease in ordered])  # pyright: ignore[reportAssignmentType]
    return ([name for name, _ in ordered], *leases)


async def is_held(connection: Connection, table_name: str, lease: Lease) -> bool:
    """Whether an attempt holds a table."""
    return bool(await connection.fetchval(statement("is_held"), table_name, lease.task_id, lease.attempt))


async def release(connection: Connection, tables: Sequence[tuple[str, Lease]]) -> None:
    """Attempts have no use for these tables any more."""
    names, ids, attempts, _ = _wishes(tables)
    async with faults.statement("release_tables"):
        await again(lambda: connection.execute(statement("release_tables"), names, ids, attempts))


async def release_attempts(connection: Connection, leases: Sequence[Lease]) -> None:
    """In the transaction that ends these attempts without success."""
    if leases:
        ids, attempts, _ = columns(leases)
        await connection.execute(statement("release_attempts"), ids, attempts)


async def publish(connection: Connection, successes: Iterable[Success]) -> dict[int, str]:
    """In the transaction that completes these attempts: results hold their tables, the rest is released. Returns tasks
    whose results have a table that is not theirs to hold, with one such table.
    """
    with_tables = [success for success in successes if success.tables is not None]
    if not with_tables:
        return {}
    ids, attempts, _ = columns([success.lease for success in with_tables])
    results = [(success.lease.task_id, name) for success in with_tables for name in success.tables or ()]
    refused = await connection.fetch(
        statement("publish_tables"), ids, attempts, [task for task, _ in results], [name for _, name in results]
    )
    return {row["id"]: row["name"] for row in refused}


async def hold_results(connection: Connection, task_id: int, names: Collection[str]) -> None:
    """In the transaction that gives a task the results of others: it holds their tables as well."""
    if names:
        await connection.execute(statement("publish_tables"), [], [], [task_id] * len(names), sorted(names))


async def release_results(connection: Connection, task_ids: Sequence[int]) -> None:
    """In the transaction in which these tasks start over."""
    await connection.execute(statement("release_results"), list(task_ids))


async def hold_arguments(
    connection: Connection,
    job_id: int | None,
    tables: Collection[tuple[int, str]],
    adopted: Mapping[str, int],
    names: Mapping[int, str],
    org_id: UUID = DEFAULT_ORG_ID,
) -> None:
    """In the transaction that inserts tasks: (task, table) pairs of what they are given. `adopted` tables belong to a
    session that only ClickHouse knows of, and become known here.
    """
    if not tables:
        return
    if adopted:
        await connection.execute(statement("adopt_tables"), list(adopted), list(adopted.values()))
    pairs = sorted(set(tables)) if job_id is None else [(job_id, name) for name in sorted({name for _, name in tables})]
    missing = await connection.fetch(
        statement("hold_arguments"), [name for _, name in pairs], [task for task, _ in pairs], job_id, org_id
    )
    if missing:
        table = missing[0]["name"]
        task = next(task for task, name in tables if name == table)
        raise UnknownTableError(
            f"{names.get(task, f'Task {task}')} is given the Object in table {table}, which is released or unknown.",
            remedy="Make the Object anew; pass it on while it is held: by its context, its job, or a name.",
        )


# --- sessions -----------------------------------------------------------------------------------------------------


async def beat_session(connection: Connection, session: int) -> None:
    """Say that the session lives."""
    await connection.execute(statement("beat_session"), session)


async def count_session(connection: Connection, session: int, counts: Mapping[str, int]) -> set[str]:
    """How often a session refers to tables; returns those that it cannot refer to, being dropped."""
    held = {name: count for name, count in counts.items() if count > 0}
    rest = [name for name, count in counts.items() if count <= 0]
    rows = await again(
        lambda: connection.fetch(statement("count_session"), session, list(held), list(held.values()), rest)
    )
    return set(held) - {row["table_name"] for row in rows}


async def doubtful_sessions(
    connection: Connection, *, silent_seconds: float = SESSION_SECONDS, now: datetime | None = None
) -> dict[int, bool]:
    """Sessions that may be over, and whether ClickHouse knows better."""
    rows = await connection.fetch(statement("doubtful_sessions"), silent_seconds, now)
    return {row["id"]: row["in_clickhouse"] for row in rows}


async def release_sessions(connection: Connection, sessions: Sequence[int]) -> None:
    """These sessions are over."""
    await again(lambda: connection.execute(statement("release_sessions"), list(sessions)))


# --- names --------------------------------------------------------------------------------------------------------


async def name_table(connection: Connection, table_name: str, name: str, lease: Lease | None = None) -> None:
    """Keep a table by its name, in the org of the attempt that does it."""
    task_id = None if lease is None else lease.task_id
    await connection.execute(statement("name_table"), table_name, name, task_id, DEFAULT_ORG_ID)


async def unname_table(connection: Connection, table_name: str, lease: Lease | None = None) -> None:
    task_id = None if lease is None else lease.task_id
    await connection.execute(statement("unname_table"), table_name, task_id, DEFAULT_ORG_ID)


# --- jobs ---------------------------------------------------------------------------------------------------------


async def release_ended_jobs(
    connection: Connection,
    *,
    failed_seconds: float = FAILED_SECONDS,
    limit: int = JOBS_AT_ONCE,
    now: datetime | None = None,
) -> int:
    """Jobs that are over let go of everything but their final results; returns how many references that were."""
    row = await again(lambda: connection.fetchrow(statement("release_ended_jobs"), failed_seconds, limit, now))
    return 0 if row is None else int(row["released"])


async def release_jobs(connection: Connection, job_ids: Sequence[int]) -> int:
    """Let go of all that these jobs hold, final results too; returns how many tables that were. They must be over."""
    rows = await again(lambda: connection.fetch(statement("release_jobs"), list(job_ids)))
    for job_id in job_ids:
        if job_id not in {row["id"] for row in rows}:
            raise NotFoundError(
                f"There is no job {job_id} that is over.",
                remedy="'aaiclick jobs show' tells; cancel it first if it runs.",
            )
    return int(rows[0]["tables"]) if rows else 0


# --- dropping -----------------------------------------------------------------------------------------------------


async def mark_dropping(
    connection: Connection,
    *,
    limit: int = DROPPED_AT_ONCE,
    reclaim_seconds: float = RECLAIM_SECONDS,
    now: datetime | None = None,
) -> dict[str, UUID]:
    """Tables that nothing refers to or can refer to any more, with their orgs: to be dropped, then forgotten."""
    async with faults.statement("mark_dropping"):
        rows = await again(lambda: connection.fetch(statement("mark_dropping"), limit, reclaim_seconds, now))
    return {row["table_name"]: row["org_id"] for row in rows}


async def mark_orphans(connection: Connection, names: Sequence[str], org_id: UUID = DEFAULT_ORG_ID) -> dict[str, UUID]:
    """The same for tables of an org that nobody knows; returns those of which that was true."""
    async with faults.statement("mark_orphans"):
        rows = await again(lambda: connection.fetch(statement("mark_orphans"), list(names), org_id))
    return {row["table_name"]: org_id for row in rows}


async def known_tables(connection: Connection, names: Sequence[str]) -> set[str]:
    return {row["table_name"] for row in await connection.fetch(statement("known_tables"), list(names))}


async def holders_of(connection: Connection, names: Sequence[str], org_id: UUID) -> list[asyncpg.Record]:
    """Which tasks and jobs hold tables (`owner`, `task_id`, `of_dag`); an owner that is None is nobody."""
    return await connection.fetch(statement("holders_of_tables"), list(names), org_id)


async def forget_tables(connection: Connection, names: Sequence[str]) -> None:
    """These tables are gone."""
    if names:
        async with faults.statement("forget_tables"):
            await again(lambda: connection.execute(statement("forget_tables"), list(names)))


async def list_tables(
    connection: Connection, org_id: UUID, *, job_id: int | None = None, after: str = "", limit: int = 1_000
) -> list[asyncpg.Record]:
    """Known tables of an org with their owners (JSON text), by name; the last name is the `after` of the next page."""
    return await connection.fetch(statement("list_tables"), job_id, org_id, after, limit)


async def orgs_with_tables(connection: Connection) -> set[UUID]:
    return {row["org_id"] for row in await connection.fetch(statement("orgs_with_tables"))}
