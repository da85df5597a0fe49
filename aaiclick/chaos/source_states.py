"""Checks of source states during faults: Running and Draining require a lease, Dead requires a pending attempt."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.errors import AaiclickError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.postgres_connections import connect

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

CHECK_SECONDS = 1.0
WRONG_SECONDS = 30.0
"""A state may be wrong until the reaper and the scheduler have run: lease, leader term and their intervals."""

WRONG = """
    SELECT d.dag_name || '.' || d.name AS name, d.status::text FROM job_definitions d
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(t.lease_token IS NOT NULL AND t.lease_expires_at > now()), false) AS live,
            coalesce(bool_or(t.lease_token IS NOT NULL), false) AS leased,
            coalesce(bool_or(t.failures > 0), false) AS retried
        FROM tasks t WHERE t.definition_id = d.id AND t.completed_at IS NULL) AS open
    WHERE d.activation = 'source' AND CASE d.status::text
        WHEN 'Running' THEN NOT open.live
        WHEN 'Draining' THEN NOT open.leased
        WHEN 'Dead' THEN open.live OR NOT (open.leased OR open.retried OR (d.source ->> 'kind' = 'always_on'
            AND EXISTS (SELECT FROM tasks f WHERE f.definition_id = d.id AND f.status IN ('FAILED', 'DEAD_LETTER'))))
        ELSE open.live END
    ORDER BY 1
"""
"""A source that is Running or Draining without a lease, Dead without a lost lease or a retry, or idle with a lease."""


async def find_wrong_states(connection: Connection) -> dict[str, str]:
    """Return sources with a state that contradicts their tasks, and that state."""
    return {row["name"]: row["status"] for row in await connection.fetch(WRONG)}


class SourceMonitor:
    """Polls the states of sources. An outage of PostgreSQL restarts the time limits."""

    def __init__(self, postgres: PostgresEndpoint, wrong_seconds: float = WRONG_SECONDS) -> None:
        self._postgres = postgres
        self._wrong_seconds = wrong_seconds
        self._since: dict[tuple[str, str], float] = {}
        self.findings: list[str] = []

    async def run(self) -> None:
        while True:
            with contextlib.suppress(AaiclickError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection = await connect(self._postgres)
                try:
                    while True:
                        self.check_states(await find_wrong_states(connection), time.monotonic())
                        await asyncio.sleep(CHECK_SECONDS)
                finally:
                    connection.terminate()
            self._since.clear()
            await asyncio.sleep(CHECK_SECONDS)

    async def wait_until_consistent(self) -> None:
        """Wait until every state is consistent after all work is done."""
        connection = await connect(self._postgres)
        deadline = time.monotonic() + self._wrong_seconds
        try:
            while states := await find_wrong_states(connection):
                if time.monotonic() > deadline:
                    self.findings += [
                        f"the source {name} is {status} after all work is done" for name, status in states.items()
                    ]
                    return
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            await connection.close()

    def check_states(self, states: dict[str, str], now: float) -> None:
        """Record a finding for each state that is wrong for longer than the limit."""
        self._since = {key: self._since.get(key, now) for key in states.items()}
        for (name, status), since in self._since.items():
            finding = (
                f"the source {name} is {status} for more than {self._wrong_seconds:g} s, which contradicts its tasks"
            )
            if now - since > self._wrong_seconds and finding not in self.findings:
                self.findings.append(finding)
