"""Audit of tables: compares the tables in ClickHouse with the references in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.runtime.inspect import ObjectInfo, list_objects
from aaiclick.data.runtime.tables import NAMED
from aaiclick.orchestration.loops.table_sweeper import created_at_ms, find_orphans, tenant_clients
from aaiclick.orchestration.tenant_databases import tenant_endpoint
from aaiclick.server_addresses import ClickHouseEndpoint
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tables import table_references
from aaiclick.store.tables.literal_results import StoredLiteral
from aaiclick.store.tables.table_references import RegisteredTable

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

PAGE = 5_000


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One Object.

    `state` is named, live, unused (to be dropped), unknown (to PostgreSQL), missing (in ClickHouse), or literal (stored
    with its task).
    """

    table_id: str
    name: str | None
    state: str
    rows: int
    bytes: int
    references: int
    owners: tuple[str, ...]
    created_at: datetime | None
    changed_at: datetime | None


async def list_tables(
    connection: Connection, client: ClickHouseClient | None, *, org_id: UUID = DEFAULT_ORG_ID
) -> list[TableEntry]:
    """All tables of an organisation by name.

    `client` uses the organisation's database; None if that does not exist.
    """
    records = {_plain_name(row.table_name, org_id): row async for row in _iterate_registered(connection, org_id)}
    infos = {} if client is None else {info.table: info async for info in _iterate_objects(client.endpoint)}
    return [_make_entry(name, records.get(name), infos.get(name)) for name in sorted({*records, *infos})]


async def describe_existing(connection: Connection, infos: Sequence[ObjectInfo], org_id: UUID) -> list[TableEntry]:
    """Tables that exist in ClickHouse, with their references."""
    names = [stored_name(info.table, org_id) for info in infos]
    rows = await table_references.list_tables(connection, org_id, names=names, limit=len(names))
    records = {_plain_name(row.table_name, org_id): row for row in rows}
    return [_make_entry(info.table, records.get(info.table), info) for info in infos]


async def describe_registered(
    endpoint: ClickHouseEndpoint, rows: Sequence[RegisteredTable], org_id: UUID
) -> list[TableEntry]:
    """Tables that PostgreSQL knows, with their sizes in ClickHouse."""
    records = {_plain_name(row.table_name, org_id): row for row in rows}
    objects = await list_objects(endpoint, names=list(records), limit=len(records)) if records else []
    infos = {info.table: info for info in objects}
    return [_make_entry(name, record, infos.get(name)) for name, record in records.items()]


def stored_name(table: str, org_id: UUID) -> str:
    """Name of a table in PostgreSQL: users choose the names of Objects, which may be the same in two organisations."""
    return table if org_id == DEFAULT_ORG_ID or not table.startswith(NAMED) else f"{org_id}.{table}"


def _plain_name(stored: str, org_id: UUID) -> str:
    return stored.removeprefix(f"{org_id}.")


async def _iterate_registered(connection: Connection, org_id: UUID) -> AsyncGenerator[RegisteredTable]:
    after = ""
    while rows := await table_references.list_tables(connection, org_id, after=after, limit=PAGE):
        for row in rows:
            yield row
        after = rows[-1].table_name


async def _iterate_objects(endpoint: ClickHouseEndpoint) -> AsyncGenerator[ObjectInfo]:
    after = ""
    while infos := await list_objects(endpoint, after=after, limit=PAGE):
        for info in infos:
            yield info
        after = infos[-1].table


async def _org_clients(connection: Connection, client: ClickHouseClient) -> dict[UUID, ClickHouseClient | None]:
    """Clients for the database of each organisation; None if it has references but no database."""
    without_database: dict[UUID, ClickHouseClient | None] = dict.fromkeys(
        await table_references.list_orgs_with_tables(connection)
    )
    return without_database | await tenant_clients(client)


def _make_entry(table: str, record: RegisteredTable | None, info: ObjectInfo | None) -> TableEntry:
    owners: Sequence[Mapping[str, object]] = () if record is None else json.loads(record.owners)
    milliseconds = created_at_ms(table)
    created_at = None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    return TableEntry(
        table_id=table,
        name=table.removeprefix(NAMED) if table.startswith(NAMED) else None,
        state=_table_state(table, record, info),
        rows=0 if info is None else info.rows,
        bytes=0 if info is None else info.bytes,
        references=0 if record is None else record.refcount,
        owners=tuple(_describe_owner(owner) for owner in owners),
        created_at=created_at if record is None else record.created_at,
        changed_at=None if info is None else info.changed,
    )


def make_literal_entry(literal: StoredLiteral, rows: int) -> TableEntry:
    """Entry of a result that is stored with its task; it has no table."""
    owner = {"owner": "RESULT", "id": str(literal.task_id), "job_id": literal.job_id}
    return TableEntry(
        table_id=literal.table_id,
        name=None,
        state="literal",
        rows=rows,
        bytes=len(literal.text),
        references=1,
        owners=(_describe_owner(owner),),
        created_at=literal.completed_at,
        changed_at=literal.completed_at,
    )


def _table_state(table: str, record: RegisteredTable | None, info: ObjectInfo | None) -> str:
    if table.startswith(NAMED):
        return "missing" if info is None else "named"
    if record is None:
        return "unknown"
    if record.refcount <= 0:
        return "unused"
    return "missing" if info is None else "live"


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


async def find_inconsistencies(
    connection: Connection, client: ClickHouseClient, *, orphan_seconds: float
) -> list[Inconsistency]:
    """Inconsistencies of all organisations. Attempts may refer to tables that they are about to create."""
    inconsistencies: list[Inconsistency] = []
    for org_id, org_client in (await _org_clients(connection, client)).items():
        prefix = "" if org_client is client else f"{tenant_endpoint(client.endpoint, org_id).database}."
        for entry in await list_tables(connection, org_client, org_id=org_id):
            is_being_created = all(owner.startswith(("attempt", "session")) for owner in entry.owners)
            if entry.state == "missing" and not is_being_created:
                finding = f"does not exist, but is the {', '.join(entry.owners)}"
                inconsistencies.append(Inconsistency("I7", prefix + entry.table_id, finding))
        unknown = [] if org_client is None else await find_orphans(connection, org_client, orphan_seconds)
        inconsistencies += [Inconsistency("I8", prefix + name, "exists, but has no reference") for name in unknown]
    return inconsistencies


async def forget_missing_names(connection: Connection, client: ClickHouseClient) -> int:
    """Delete names of tables that a context without PostgreSQL has dropped; returns how many."""
    count = 0
    for org_id, org_client in (await _org_clients(connection, client)).items():
        for entry in await list_tables(connection, org_client, org_id=org_id) if org_client else ():
            if entry.state == "missing" and entry.name:
                await table_references.unname_table(connection, stored_name(entry.table_id, org_id))
                count += 1
    return count
