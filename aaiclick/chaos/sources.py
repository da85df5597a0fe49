"""States of sources while things break: Running and Draining need a lease, Dead needs an attempt to come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import asyncpg

from aaiclick.errors import AaiclickError
from aaiclick.store.engine import connect
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

LOOK_SECONDS = 1.0
WRONG_SECONDS = 30.0
"""A state may be wrong until the reaper and the scheduler have run: a lease, a term of the leader, and their pauses."""

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


async def wrong_states(connection: Connection) -> dict[str, str]:
    """Sources whose state does not fit their tasks, with the state."""
    return {row["name"]: row["status"] for row in await connection.fetch(WRONG)}


class SourceWatch:
    """Looks at the states of sources again and again. PostgreSQL may be killed meanwhile: then the time starts over."""

    def __init__(self, postgres: PostgresTarget, wrong_seconds: float = WRONG_SECONDS) -> None:
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
                        self.judge(await wrong_states(connection), time.monotonic())
                        await asyncio.sleep(LOOK_SECONDS)
                finally:
                    connection.terminate()
            self._since.clear()
            await asyncio.sleep(LOOK_SECONDS)

    async def until_right(self) -> None:
        """When all has come to rest, every state fits."""
        connection = await connect(self._postgres)
        deadline = time.monotonic() + self._wrong_seconds
        try:
            while states := await wrong_states(connection):
                if time.monotonic() > deadline:
                    self.findings += [f"the source {name} is {status} at rest" for name, status in states.items()]
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await connection.close()

    def judge(self, states: dict[str, str], now: float) -> None:
        """A state that is wrong for longer than it may be is a finding."""
        self._since = {key: self._since.get(key, now) for key in states.items()}
        for (name, status), since in self._since.items():
            finding = f"the source {name} is {status} for more than {self._wrong_seconds:g} s, unlike its tasks"
            if now - since > self._wrong_seconds and finding not in self.findings:
                self.findings.append(finding)
