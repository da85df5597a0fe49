"""The sweeper: tables that nobody knows are dropped once they are old.

References are written before their tables, so an orphan is rare: PostgreSQL was restored from a backup, a process was
held up between its reference and its CREATE for so long that it lost its lease, or a script that counted by itself was
killed. An hour is then soon enough, and looking at all tables every five minutes cheap enough.

What is not ours is never touched: a table must be named `t` and a number that can be a snowflake id, be older than the
threshold by the database's clock (the id says when it was made), be unknown to PostgreSQL, and not belong to a living
context outside of PostgreSQL. It is then made known as being dropped, and from there on ends like any other
(see `cleanup`): of two sweepers one gets it, and a crash leaves it to the cleanup.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.data.client import Client, connect
from aaiclick.orchestration.loops.cleanup import drop_marked
from aaiclick.orchestration.loops.periodic import Periodic
from aaiclick.orchestration.loops.sessions import SILENT_SECONDS, live_sessions
from aaiclick.snowflake import extract_timestamp
from aaiclick.store import tables
from aaiclick.store.clock import clock
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

NAMES_AT_ONCE = 5_000
FIRST_ID_MS = 1_735_689_600_000
"""2025: no id was made before. A number that would have been is somebody's `t20240131`."""

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


class TableSweeper(Periodic):
    """Drops tables `t{snowflake}` older than `max_age_seconds` that nobody knows."""

    def __init__(
        self,
        max_age_seconds: float = 3600.0,
        poll_interval: float = 300.0,
        *,
        postgres: PostgresTarget | None = None,
        clickhouse: ClickHouseTarget | None = None,
    ) -> None:
        super().__init__(poll_interval, postgres=postgres, clickhouse=clickhouse)
        self.max_age_seconds = max_age_seconds

    async def run_once(self) -> int:
        """One pass; returns how many tables it dropped."""
        async with self._servers() as (connection, client):
            total = 0
            for org_id, of_org in (await tenant_clients(client)).items():
                found = await orphans(connection, of_org, self.max_age_seconds)
                for start in range(0, len(found), NAMES_AT_ONCE):
                    mine = await tables.mark_orphans(connection, found[start : start + NAMES_AT_ONCE], org_id)
                    left = await _listed(of_org) if mine else {}
                    await tables.forget_tables(connection, [name for name in mine if name not in left])
                    total += await drop_marked(connection, client, {name: mine[name] for name in mine if name in left})
            return total


async def tenant_clients(client: Client) -> dict[UUID, Client]:
    """The databases of all orgs, by the org."""
    own = client.target.database
    answer: Any = await client.read_text(_DATABASES, {"own": own})
    names: list[str] = answer.column(0).to_pylist()
    others = {
        UUID(hex=name.removeprefix(f"{own}_")): await connect(client.target.with_database(name)) for name in names
    }
    return {DEFAULT_ORG_ID: client} | others


async def orphans(connection: Connection, client: Client, max_age_seconds: float) -> list[str]:
    """Tables that are ours, old and unknown."""
    found = await _listed(client)
    old = old_tables(found, await clock(connection), max_age_seconds)
    unknown: list[str] = []
    for start in range(0, len(old), NAMES_AT_ONCE):
        part = old[start : start + NAMES_AT_ONCE]
        known = await tables.known_tables(connection, part)
        unknown += [name for name in part if name not in known]
    return await _of_nobody(client, [found[name] for name in unknown])


async def _listed(client: Client) -> dict[str, dict[str, Any]]:
    """What is there now. Another sweeper may have dropped and forgotten what was there a moment ago."""
    answer: Any = await client.read_text(client.layout.listing(_TABLES), {"silent": int(SILENT_SECONDS)})
    return {row["name"]: row for row in answer.to_pylist()}


def old_tables(names: Mapping[str, Any] | Sequence[str], now: datetime, max_age_seconds: float) -> list[str]:
    """Those whose name says that they were made more than `max_age_seconds` before `now`."""
    latest = now.timestamp() * 1000 - max_age_seconds * 1000
    return [name for name in names if (made := made_at_ms(name)) is not None and FIRST_ID_MS <= made < latest]


def made_at_ms(table_name: str) -> int | None:
    """When a table was made, as Unix milliseconds, if its name is `t{snowflake}`."""
    match = _NAME.fullmatch(table_name)
    if match is None or (snowflake := int(match[1])) >= 1 << 63:
        return None
    return extract_timestamp(snowflake)


async def _of_nobody(client: Client, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Without the tables of contexts that live. A table of a context is spared also while it is young by ClickHouse's
    clock: its context need not have a marker yet, and the clock that named it may have been wrong.
    """
    sessions = {row["name"]: session_of(row["comment"]) for row in rows}
    alive = await live_sessions(client, {session for session in sessions.values() if session is not None})
    return [
        row["name"]
        for row in rows
        if (session := sessions[row["name"]]) is None or (session not in alive and not row["young"])
    ]


def session_of(comment: str) -> int | None:
    """The session that a table's comment names."""
    with suppress(ValueError, TypeError, AttributeError):
        return int(json.loads(comment)["session"]) if '"session"' in comment else None
    return None
