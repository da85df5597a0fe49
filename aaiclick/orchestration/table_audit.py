"""Audit of tables: compares the tables in ClickHouse with the references in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.data.runtime.clickhouse_client import Client
from aaiclick.data.runtime.tables import NAMED
from aaiclick.orchestration.loops.sweeper import find_orphans, tenant_clients
from aaiclick.orchestration.tenant_databases import tenant_endpoint
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.connections import Connection

PAGE = 5_000

_TABLES = """
    SELECT name, comment, coalesce(total_rows, 0) AS rows, coalesce(total_bytes, 0) AS bytes FROM {catalog}
    WHERE database = currentDatabase() AND (match(name, '^t[1-9][0-9]*$') OR startsWith(name, {named:String}))
    ORDER BY name
"""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table; `state` is named, live, unused (to be dropped), unknown (to PostgreSQL) or missing (in ClickHouse)."""

    table: str
    name: str | None
    state: str
    rows: int
    bytes: int
    references: int
    owners: tuple[str, ...]
    created_at: datetime | None


async def list_tables(
    connection: Connection, client: Client | None, *, org_id: UUID = DEFAULT_ORG_ID, job_id: int | None = None
) -> list[TableEntry]:
    """Tables of an organisation, by name, optionally only those that a job refers to.

    `client` uses the organisation's database; None if that does not exist.
    """
    prefix = _name_prefix(org_id)
    records = {row["table_name"].removeprefix(prefix): row for row in await _load_records(connection, org_id, job_id)}
    tables = {} if client is None else await _load_tables(client)
    names = set(records) if job_id is not None else set(records) | set(tables)
    return [_make_entry(name, records.get(name), tables.get(name)) for name in sorted(names)]


def _name_prefix(org_id: UUID) -> str:
    """Prefix of an organisation's table names in PostgreSQL: users choose names, which may collide."""
    return "" if org_id == DEFAULT_ORG_ID else f"{org_id}."


async def _load_records(connection: Connection, org_id: UUID, job_id: int | None) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = []
    while True:
        after = rows[-1]["table_name"] if rows else ""
        page = await table_references.list_tables(connection, org_id, job_id=job_id, after=after, limit=PAGE)
        rows += page
        if len(page) < PAGE:
            return rows


async def _load_tables(client: Client) -> dict[str, Mapping[str, object]]:
    answer = await client.read_text(client.layout.with_catalog(_TABLES), {"named": NAMED})
    return {row["name"]: row for row in answer.to_pylist() if '"aaiclick": "session"' not in row["comment"]}


async def _org_clients(connection: Connection, client: Client) -> dict[UUID, Client | None]:
    """Clients for the database of each organisation; None if it has references but no database."""
    without_database: dict[UUID, Client | None] = dict.fromkeys(
        await table_references.list_orgs_with_tables(connection)
    )
    return without_database | await tenant_clients(client)


def _make_entry(table: str, record: asyncpg.Record | None, table_row: Mapping[str, Any] | None) -> TableEntry:
    owners: Sequence[Mapping[str, object]] = json.loads(record["owners"]) if record is not None else ()
    return TableEntry(
        table=table,
        name=table.removeprefix(NAMED) if table.startswith(NAMED) else None,
        state=_table_state(table, record, table_row),
        rows=table_row["rows"] if table_row else 0,
        bytes=table_row["bytes"] if table_row else 0,
        references=record["refcount"] if record is not None else 0,
        owners=tuple(_describe_owner(owner) for owner in owners),
        created_at=record["created_at"] if record is not None else None,
    )


def _table_state(table: str, record: asyncpg.Record | None, table_row: Mapping[str, object] | None) -> str:
    if table.startswith(NAMED):
        return "named" if table_row else "missing"
    if record is None:
        return "unknown"
    if record["refcount"] <= 0:
        return "unused"
    return "live" if table_row else "missing"


def _describe_owner(owner: Mapping[str, object]) -> str:
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
class Inconsistency:
    """A violation of invariant I7 (a referenced table is missing) or I8 (an existing table has no reference)."""

    invariant: str
    table: str
    finding: str


async def find_inconsistencies(connection: Connection, client: Client, *, orphan_seconds: float) -> list[Inconsistency]:
    """Inconsistencies of all organisations. Attempts may refer to tables that they are about to create."""
    inconsistencies: list[Inconsistency] = []
    for org_id, org_client in (await _org_clients(connection, client)).items():
        prefix = "" if org_client is client else f"{tenant_endpoint(client.endpoint, org_id).database}."
        for entry in await list_tables(connection, org_client, org_id=org_id):
            is_being_created = all(owner.startswith(("attempt", "session")) for owner in entry.owners)
            if entry.state == "missing" and not is_being_created:
                finding = f"does not exist, but is the {', '.join(entry.owners)}"
                inconsistencies.append(Inconsistency("I7", prefix + entry.table, finding))
        unknown = [] if org_client is None else await find_orphans(connection, org_client, orphan_seconds)
        inconsistencies += [Inconsistency("I8", prefix + name, "exists, but has no reference") for name in unknown]
    return inconsistencies


async def forget_missing_names(connection: Connection, client: Client) -> int:
    """Delete names of tables that a context without PostgreSQL has dropped; returns how many."""
    count = 0
    for org_id, org_client in (await _org_clients(connection, client)).items():
        for entry in await list_tables(connection, org_client, org_id=org_id) if org_client else ():
            if entry.state == "missing" and entry.name:
                await table_references.unname_table(connection, _name_prefix(org_id) + entry.table)
                count += 1
    return count
