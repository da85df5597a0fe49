"""Sweeper: drops old tables that PostgreSQL does not know.

References are written before their tables, so orphans are rare: PostgreSQL was restored from a backup, a process
lost its lease between writing the reference and CREATE, or a script outside of jobs was killed. An age of an hour and
a pass every five minutes are sufficient.

Tables of other applications are never dropped. A table must be named `t` and a number that can be a snowflake id, be
older than the threshold by PostgreSQL's clock (the id contains the time of creation), be unknown to PostgreSQL, and
not belong to a live session. It is then marked in PostgreSQL as being dropped and handled like any other table (see
`table_cleanup`): only one of several sweepers marks it, and after a crash the cleanup drops it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.data.runtime.clickhouse_client import ClickHouseClient, connect
from aaiclick.orchestration.loops.data_session_expiry import SILENT_SECONDS, live_sessions
from aaiclick.orchestration.loops.periodic import PeriodicLoop
from aaiclick.orchestration.loops.table_cleanup import drop_marked
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.snowflake import extract_timestamp
from aaiclick.store.clock import read_clock
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

NAMES_PER_QUERY = 5_000
FIRST_ID_MS = 1_735_689_600_000
"""Start of 2025, before the first snowflake id: smaller numbers are names such as `t20240131`."""

_NAME = re.compile(r"t([1-9]\d{0,18})")
_DATABASES = """
    SELECT name FROM system.databases
    WHERE startsWith(name, concat({own:String}, '_'))
      AND length(name) = length({own:String}) + 33 AND match(substring(name, length({own:String}) + 2), '^[0-9a-f]+$')
"""
_TABLES = """
    SELECT name, comment, metadata_modification_time > now() - toIntervalSecond({silent:UInt32}) AS young
    FROM {catalog}
    WHERE database = currentDatabase() AND match(name, '^t[1-9][0-9]*$')
"""


class TableSweeper(PeriodicLoop):
    """Drops tables `t{snowflake}` older than `max_age_seconds` that PostgreSQL does not know."""

    def __init__(
        self,
        max_age_seconds: float = 3600.0,
        poll_interval: float = 300.0,
        *,
        postgres: PostgresEndpoint | None = None,
        clickhouse: ClickHouseEndpoint | None = None,
    ) -> None:
        super().__init__(poll_interval, postgres=postgres, clickhouse=clickhouse)
        self.max_age_seconds = max_age_seconds

    async def run_once(self) -> int:
        """Run one pass; returns how many tables it dropped."""
        async with self._servers() as (connection, client):
            total = 0
            for org_id, org_client in (await tenant_clients(client)).items():
                tables = await find_orphans(connection, org_client, self.max_age_seconds)
                for start in range(0, len(tables), NAMES_PER_QUERY):
                    marked = await table_references.mark_orphan_tables(
                        connection, tables[start : start + NAMES_PER_QUERY], org_id
                    )
                    existing = await _list_tables(org_client) if marked else {}
                    await table_references.delete_tables(connection, [name for name in marked if name not in existing])
                    total += await drop_marked(
                        connection, client, {name: marked[name] for name in marked if name in existing}
                    )
            return total


async def tenant_clients(client: ClickHouseClient) -> dict[UUID, ClickHouseClient]:
    """Clients for the databases of all organisations, by organisation."""
    own = client.endpoint.database
    answer = await client.read_text(_DATABASES, {"own": own})
    names: list[str] = answer.column(0).to_pylist()
    tenants = {
        UUID(hex=name.removeprefix(f"{own}_")): await connect(client.endpoint.with_database(name)) for name in names
    }
    return {DEFAULT_ORG_ID: client} | tenants


async def find_orphans(connection: Connection, client: ClickHouseClient, max_age_seconds: float) -> list[str]:
    """Names of old tables that PostgreSQL does not know and that belong to no live session."""
    tables = await _list_tables(client)
    old = old_tables(tables, await read_clock(connection), max_age_seconds)
    unknown: list[str] = []
    for start in range(0, len(old), NAMES_PER_QUERY):
        part = old[start : start + NAMES_PER_QUERY]
        known_names = await table_references.find_known_tables(connection, part)
        unknown += [name for name in part if name not in known_names]
    return await _without_live_sessions(client, [tables[name] for name in unknown])


async def _list_tables(client: ClickHouseClient) -> dict[str, dict[str, object]]:
    """Rows of existing tables, by name."""
    answer = await client.read_text(client.layout.with_catalog(_TABLES), {"silent": int(SILENT_SECONDS)})
    return {row["name"]: row for row in answer.to_pylist()}


def old_tables(names: Mapping[str, object] | Sequence[str], now: datetime, max_age_seconds: float) -> list[str]:
    """Names of tables that were created more than `max_age_seconds` before `now`."""
    latest = now.timestamp() * 1000 - max_age_seconds * 1000
    return [name for name in names if (created := created_at_ms(name)) is not None and FIRST_ID_MS <= created < latest]


def created_at_ms(table_name: str) -> int | None:
    """Time of creation in Unix milliseconds, from a table name `t{snowflake}`."""
    match = _NAME.fullmatch(table_name)
    if match is None or (snowflake := int(match[1])) >= 1 << 63:
        return None
    return extract_timestamp(snowflake)


async def _without_live_sessions(client: ClickHouseClient, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Leave out tables of live sessions, and tables that are new by ClickHouse's clock.

    The session of a new table may have no marker yet, and the clock of the id may have been wrong.
    """
    sessions = {row["name"]: parse_session(row["comment"]) for row in rows}
    alive = await live_sessions(client, {session for session in sessions.values() if session is not None})
    return [
        row["name"]
        for row in rows
        if (session := sessions[row["name"]]) is None or (session not in alive and not row["young"])
    ]


def parse_session(comment: str) -> int | None:
    """Session id in the comment of a table."""
    with suppress(ValueError, TypeError, AttributeError):
        return int(json.loads(comment)["session"]) if '"session"' in comment else None
    return None
