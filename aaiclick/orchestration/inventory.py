"""What tables there are, in ClickHouse and in PostgreSQL's knowledge, and where the two disagree."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aaiclick.data.client import Client
from aaiclick.data.tables import NAMED
from aaiclick.orchestration.loops.sweeper import orphans
from aaiclick.store import tables

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

PAGE = 5_000

_TABLES = """
    SELECT name, comment, coalesce(total_rows, 0) AS rows, coalesce(total_bytes, 0) AS bytes FROM {catalog}
    WHERE database = currentDatabase() AND (match(name, '^t[1-9][0-9]*$') OR startsWith(name, {named:String}))
    ORDER BY name
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One table; `state` is named, live, unused (soon dropped), unknown (to PostgreSQL) or missing (in ClickHouse)."""

    table: str
    name: str | None
    state: str
    rows: int
    bytes: int
    references: int
    owners: tuple[str, ...]
    created_at: datetime | None


async def inventory(connection: Connection, client: Client, *, job_id: int | None = None) -> list[Entry]:
    """All tables that are ours, by name; only those that a job holds, if asked."""
    known = {row["table_name"]: row for row in await _known(connection, job_id)}
    answer: Any = await client.read_text(client.layout.listing(_TABLES), {"named": NAMED})
    there: dict[str, dict[str, Any]] = {
        row["name"]: row for row in answer.to_pylist() if '"aaiclick": "session"' not in row["comment"]
    }
    names = set(known) if job_id is not None else set(known) | set(there)
    return [_entry(name, known.get(name), there.get(name)) for name in sorted(names)]


async def _known(connection: Connection, job_id: int | None) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = []
    while True:
        page = await tables.list_tables(
            connection, job_id=job_id, after=rows[-1]["table_name"] if rows else "", limit=PAGE
        )
        rows += page
        if len(page) < PAGE:
            return rows


def _entry(table: str, known: asyncpg.Record | None, there: Mapping[str, Any] | None) -> Entry:
    owners: Sequence[Mapping[str, Any]] = json.loads(known["owners"]) if known is not None else ()
    return Entry(
        table=table,
        name=table.removeprefix(NAMED) if table.startswith(NAMED) else None,
        state=_state(table, known, there),
        rows=there["rows"] if there else 0,
        bytes=there["bytes"] if there else 0,
        references=known["refcount"] if known is not None else 0,
        owners=tuple(_owner(owner) for owner in owners),
        created_at=known["created_at"] if known is not None else None,
    )


def _state(table: str, known: asyncpg.Record | None, there: Mapping[str, Any] | None) -> str:
    if table.startswith(NAMED):
        return "named" if there else "missing"
    if known is None:
        return "unknown"
    if known["refcount"] <= 0:
        return "unused"
    return "live" if there else "missing"


def _owner(owner: Mapping[str, Any]) -> str:
    of_job = f" of job {owner['job_id']}" if owner["job_id"] else ""
    match owner["owner"]:
        case "ATTEMPT":
            return f"attempt {owner['attempt']} of task {owner['id']}"
        case "RESULT":
            return f"result of task {owner['id']}{of_job}"
        case "TASK":
            return f"argument of task {owner['id']}"
        case "JOB":
            return f"argument in job {owner['id']}"
        case "NAME":
            return f"name {owner['name']!r}"
        case _:
            return f"session {owner['id']}"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A violation of I7 (a table that is needed is not there) or I8 (one that is there is not needed)."""

    invariant: str
    table: str
    finding: str


async def disagreements(connection: Connection, client: Client, *, orphan_seconds: float) -> list[Disagreement]:
    """Where references and tables do not match. Attempts may hold tables that they are about to create."""
    found: list[Disagreement] = []
    for entry in await inventory(connection, client):
        being_made = all(owner.startswith(("attempt", "session")) for owner in entry.owners)
        if entry.state == "missing" and not being_made:
            found.append(Disagreement("I7", entry.table, f"does not exist, but is the {', '.join(entry.owners)}"))
    unknown = await orphans(connection, client, orphan_seconds)
    return found + [Disagreement("I8", name, "exists, and nobody knows it") for name in unknown]


async def forget_missing_names(connection: Connection, client: Client) -> int:
    """Names whose table was deleted by a context that does not speak to PostgreSQL are let go; returns how many."""
    missing = [entry for entry in await inventory(connection, client) if entry.state == "missing" and entry.name]
    for entry in missing:
        await tables.unname_table(connection, entry.table)
    return len(missing)
