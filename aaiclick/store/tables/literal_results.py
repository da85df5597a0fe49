"""Literals: small results that are stored with their tasks, until something needs a ClickHouse table.

A literal becomes a table in three steps: one caller reserves the table, creates and fills it, and replaces the literal.
Until the last step all readers use the literal; a caller that dies leaves a reservation, which another one takes over.
The table is filled under another name and renamed, so a caller that continues late changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick import failpoints
from aaiclick.store.engine.result_placeholders import temporary_tables_in
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement
from aaiclick.store.typed_rows import fetch_row, fetch_rows

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

RESERVATION_SECONDS = 2.0
"""How long a caller may take to create the table before another one takes over.

Two callers at once are safe, since each fills a table of its own and the first rename wins; they only work twice."""


@dataclass(frozen=True, slots=True)
class StoredLiteral:
    """A literal with the task that returned it."""

    table_id: str
    task_id: int
    job_id: int | None
    completed_at: datetime
    text: str


class Reservation(StrEnum):
    """Answer to a request to create the table of a literal."""

    GRANTED = "granted"
    """The caller creates it."""
    TAKEN = "taken"
    """Another caller is creating it."""
    NO_LITERAL = "no_literal"
    """It is a table already, or its task is deleted or cleared."""


async def load_literals(connection: Connection, table_ids: Sequence[str], org_id: UUID) -> dict[str, str]:
    """Encoded literals of an organisation by table id; tables and unknown ids are left out."""
    rows = await connection.fetch(statement("load_literals"), list(table_ids), org_id)
    return {row["name"]: row["literal"] for row in rows}


async def find_literal(connection: Connection, table_id: str, org_id: UUID) -> StoredLiteral | None:
    """The literal of an organisation with this table id; None if it is a table or unknown."""
    return await fetch_row(connection, StoredLiteral, statement("find_literal"), table_id, org_id)


async def list_job_literals(
    connection: Connection, job_id: int, org_id: UUID, *, after: str = "", limit: int = 100
) -> list[StoredLiteral]:
    """Literals of a job by table id."""
    return await fetch_rows(connection, StoredLiteral, statement("list_job_literals"), job_id, org_id, after, limit)


async def load_result_literals(
    connection: Connection, results: Iterable[str | None], org_id: UUID = DEFAULT_ORG_ID
) -> dict[str, str]:
    """Encoded literals in results, which are JSON texts."""
    names = set[str]().union(*(temporary_tables_in(json.loads(text)) for text in results if text is not None))
    return await load_literals(connection, sorted(names), org_id) if names else {}


async def reserve_literal_table(
    connection: Connection, table_id: str, org_id: UUID, *, after_seconds: float = RESERVATION_SECONDS
) -> Reservation:
    """Request to create the table of a literal."""
    async with failpoints.statement("reserve_literal_table"):
        row = await connection.fetchrow(statement("reserve_literal_table"), table_id, org_id, after_seconds)
    if row is None or not row["is_literal"]:
        return Reservation.NO_LITERAL
    return Reservation.GRANTED if row["is_reserved"] else Reservation.TAKEN


async def replace_literal(connection: Connection, table_id: str, org_id: UUID) -> None:
    """Make readers use the table, which is complete."""
    async with failpoints.statement("replace_literal"):
        await connection.execute(statement("replace_literal"), table_id, org_id)


async def abandon_literal_table(connection: Connection, table_id: str, org_id: UUID) -> None:
    """Cancel a reservation, so that the next caller gets it at once."""
    await connection.execute(statement("abandon_literal_table"), table_id, org_id)
