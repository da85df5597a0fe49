"""What tables there are, in ClickHouse and in PostgreSQL's knowledge, and where the two disagree."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.data.client import Client
from aaiclick.data.tables import NAMED
from aaiclick.orchestration.loops.sweeper import orphans, tenant_clients
from aaiclick.orchestration.tenants import tenant_target
from aaiclick.store import tables
from aaiclick.store.words import DEFAULT_ORG_ID

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


async def inventory(
    connection: Connection, client: Client | None, *, org_id: UUID = DEFAULT_ORG_ID, job_id: int | None = None
) -> list[Entry]:
    """All tables of an org, by name; only those that a job holds, if asked. `client` is in its database, if any."""
    prefix = _prefix(org_id)
    known = {row["table_name"].removeprefix(prefix): row for row in await _known(connection, org_id, job_id)}
    there = {} if client is None else await _there(client)
    names = set(known) if job_id is not None else set(known) | set(there)
    return [_entry(name, known.get(name), there.get(name)) for name in sorted(names)]


def _prefix(org_id: UUID) -> str:
    """What is in front of another org's names in PostgreSQL: people choose them (see `name_table.sql`)."""
    return "" if org_id == DEFAULT_ORG_ID else f"{org_id}."


async def _known(connection: Connection, org_id: UUID, job_id: int | None) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = []
    while True:
        after = rows[-1]["table_name"] if rows else ""
        page = await tables.list_tables(connection, org_id, job_id=job_id, after=after, limit=PAGE)
        rows += page
        if len(page) < PAGE:
            return rows


async def _there(client: Client) -> dict[str, Mapping[str, Any]]:
    answer: Any = await client.read_text(client.layout.listing(_TABLES), {"named": NAMED})
    return {row["name"]: row for row in answer.to_pylist() if '"aaiclick": "session"' not in row["comment"]}


async def _places(connection: Connection, client: Client) -> dict[UUID, Client | None]:
    """Where the tables of each org are; nowhere, if it should have some and its database is gone."""
    nowhere: dict[UUID, Client | None] = dict.fromkeys(await tables.orgs_with_tables(connection))
    return nowhere | await tenant_clients(client)


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
    """Where references and tables of any org do not match. Attempts may hold tables that they are about to create."""
    found: list[Disagreement] = []
    for org_id, place in (await _places(connection, client)).items():
        where = "" if place is client else f"{tenant_target(client.target, org_id).database}."
        for entry in await inventory(connection, place, org_id=org_id):
            being_made = all(owner.startswith(("attempt", "session")) for owner in entry.owners)
            if entry.state == "missing" and not being_made:
                finding = f"does not exist, but is the {', '.join(entry.owners)}"
                found.append(Disagreement("I7", where + entry.table, finding))
        unknown = [] if place is None else await orphans(connection, place, orphan_seconds)
        found += [Disagreement("I8", where + name, "exists, and nobody knows it") for name in unknown]
    return found


async def forget_missing_names(connection: Connection, client: Client) -> int:
    """Names whose table was deleted by a context that does not speak to PostgreSQL are let go; returns how many."""
    count = 0
    for org_id, place in (await _places(connection, client)).items():
        for entry in await inventory(connection, place, org_id=org_id) if place else ():
            if entry.state == "missing" and entry.name:
                await tables.unname_table(connection, _prefix(org_id) + entry.table)
                count += 1
    return count
