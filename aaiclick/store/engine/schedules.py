"""Schedules of jobs and queue items: their rows, due ones, and changes by users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from aaiclick.errors import NotFoundError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

ScheduleState = Literal["active", "paused", "missing"]


@dataclass(frozen=True, slots=True)
class ScheduleFields:
    """What a schedule starts, when, and by which policies; `sql/columns.sql` lists the columns in this order.

    `kwargs` and `options` (of the task) are JSON text.
    """

    entrypoint: str | None
    job_name: str | None
    item_type: str | None
    kwargs: str
    options: str
    cron: str | None
    every_seconds: float | None
    timezone: str
    missed: str
    max_missed: int
    overlap: str
    nominal_parameter: str | None
    nominal_type: str | None
    timeout_seconds: float | None
    declared_in: str | None

    def values(self) -> tuple[object, ...]:
        return _field_values(self)

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> ScheduleFields:
        return cls(*[row[field.name] for field in fields(cls)])


_field_values = attrgetter(*(field.name for field in fields(ScheduleFields)))


async def lock_due_schedules(
    connection: Connection, *, limit: int, now: datetime | None = None
) -> list[asyncpg.Record]:
    """Lock due schedules until the transaction ends."""
    return await connection.fetch(statement("lock_due_schedules"), now, limit)


async def advance_schedule(
    connection: Connection,
    schedule_id: int,
    next_run_at: datetime | None,
    *,
    due_at: datetime | None,
    nominal: datetime | None = None,
    run_id: int | None = None,
    skipped: int = 0,
) -> None:
    """Set the next run of a schedule, and its last one."""
    await connection.execute(statement("advance_schedule"), schedule_id, next_run_at, due_at, nominal, run_id, skipped)


async def postpone_schedule(connection: Connection, schedule_id: int, due_at: datetime, error: str) -> None:
    """Set when the scheduler looks at a schedule again, and why its run could not be started."""
    await connection.execute(statement("postpone_schedule"), schedule_id, due_at, error)


async def list_unfinished_runs(connection: Connection, schedule_id: int, limit: int) -> list[int]:
    return [row["id"] for row in await connection.fetch(statement("list_unfinished_runs"), schedule_id, limit)]


async def lock_schedule(connection: Connection, org_id: UUID, name: str) -> asyncpg.Record | None:
    return await connection.fetchrow(statement("lock_schedule"), org_id, name)


async def insert_schedule(
    connection: Connection,
    org_id: UUID,
    name: str,
    new_fields: ScheduleFields,
    anchor: datetime,
    next_run_at: datetime | None,
) -> asyncpg.Record | None:
    """Insert a schedule; None if its name is taken."""
    return await connection.fetchrow(
        statement("insert_schedule"), get_snowflake_id(), org_id, name, anchor, next_run_at, *new_fields.values()
    )


async def update_schedule(
    connection: Connection, schedule_id: int, new_fields: ScheduleFields, anchor: datetime, next_run_at: datetime | None
) -> asyncpg.Record:
    row = await connection.fetchrow(
        statement("update_schedule"), schedule_id, anchor, next_run_at, *new_fields.values()
    )
    assert row is not None  # noqa: S101  (the caller holds its lock)
    return row


async def get_schedule(connection: Connection, org_id: UUID, name: str) -> asyncpg.Record:
    """A schedule with the state of its last run; raises NotFoundError."""
    row = await connection.fetchrow(statement("get_schedule"), org_id, name)
    if row is None:
        raise unknown_schedule(name)
    return row


async def list_schedules(
    connection: Connection, org_id: UUID, *, after: str = "", state: ScheduleState | None = None, limit: int = 100
) -> list[asyncpg.Record]:
    """Schedules by name, with the states of their last runs."""
    return await connection.fetch(statement("list_schedules"), org_id, after, state, limit)


async def list_schedule_runs(connection: Connection, schedule_id: int, limit: int) -> list[asyncpg.Record]:
    """Jobs of a schedule, newest first."""
    return await connection.fetch(statement("list_schedule_runs"), schedule_id, limit)


async def find_runs(connection: Connection, schedule: asyncpg.Record, keys: Sequence[str]) -> dict[str, asyncpg.Record]:
    """Idempotency key → (id, status) of runs of a schedule."""
    item_type: str | None = schedule["item_type"]
    query = statement("find_scheduled_jobs") if item_type is None else statement("find_scheduled_items")
    rows = await connection.fetch(query, schedule["org_id"], item_type or schedule["job_name"], list(keys))
    return {row["idempotency_key"]: row for row in rows}


async def delete_schedule(connection: Connection, org_id: UUID, name: str) -> None:
    await _change(connection, statement("delete_schedule"), org_id, name)


async def pause_schedule(connection: Connection, org_id: UUID, name: str) -> None:
    await _change(connection, statement("pause_schedule"), org_id, name)


async def resume_schedule(connection: Connection, org_id: UUID, name: str) -> None:
    """Resume a schedule; runs missed meanwhile are handled by its policy."""
    await _change(connection, statement("resume_schedule"), org_id, name)


async def _change(connection: Connection, query: str, org_id: UUID, name: str) -> None:
    if await connection.fetchval(query, org_id, name) is None:
        raise unknown_schedule(name)


async def list_declared_schedules(connection: Connection, org_id: UUID, module: str) -> list[asyncpg.Record]:
    """Lock the schedules that are declared in a module or below it."""
    return await connection.fetch(statement("list_declared_schedules"), org_id, module)


async def mark_schedule_missing(connection: Connection, schedule_id: int, error: str) -> None:
    await connection.execute(statement("mark_schedule_missing"), schedule_id, error)


def unknown_schedule(name: str) -> NotFoundError:
    return NotFoundError(
        f"There is no schedule {name!r:.80}.", remedy="'aaiclick schedules ls' lists the schedules there are."
    )
