"""Live changes of jobs: one look at the database serves every listener.

While anybody listens, one connection looks at the jobs of the orgs that are listened to, as soon as PostgreSQL notifies
of new work and otherwise every LOOK_SECONDS, and compares with what it saw before. (Notifying from the statements that
complete tasks would cost each of them; a look costs what there is unfinished, whoever listens.) Changes go into one
ring per org. A listener is a position in that ring, so a thousand of them hold nothing but their sockets.

A stream begins with `ready`: from there on every change is heard. An event's id is EPOCH-NUMBER. Who comes back with
one that the ring still has gets what was missed; else `reset` comes instead of `ready`: things may have changed
unseen, and the listener reads them anew. A ring outlives its last listener by KEPT_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from aaiclick.server.away import AWAY
from aaiclick.server.sse import Event
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import connect
from aaiclick.store.queue import READY_CHANNEL
from aaiclick.store.statements import statement
from aaiclick.targets import PostgresTarget

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

log = logging.getLogger("aaiclick.server")

LOOK_SECONDS = 1.0
SOONEST_SECONDS = 0.1
SHARE = 10
"""A look that takes a second is followed by ten without one."""

KEPT = 2_000
KEPT_SECONDS = 60.0
OVERLAP = 60_000 << 22
"""Ids are made before they are committed: a look goes back a minute."""

TICK_SECONDS = 5.0
_SHOWN = ("name", "status", "total_tasks", "open_tasks", "failed_tasks", "cancelled_tasks", "paused")


@dataclass
class Ring:
    """The last changes of one org. All rings count together; `forgotten` is the last number this one does not have."""

    forgotten: int
    last: int
    events: deque[tuple[int, Event]] = field(default_factory=lambda: deque[tuple[int, Event]](maxlen=KEPT))
    listeners: int = 0
    deserted: float = 0.0
    known: dict[int, tuple[Any, ...]] = field(default_factory=dict[int, tuple[Any, ...]])
    ended: set[int] = field(default_factory=set[int])
    looked: bool = False

    def add(self, number: int, event: Event) -> None:
        if len(self.events) == KEPT:
            self.forgotten = self.events[0][0]
        self.events.append((number, event))
        self.last = number


class Live:
    """Looks, and hands out what changed."""

    def __init__(self, target: PostgresTarget, closing: asyncio.Event) -> None:
        self._target = target
        self._closing = closing
        self._epoch = uuid4().hex[:12]
        self._rings: dict[UUID, Ring] = {}
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._number = 0

    # --- listeners ----------------------------------------------------------------------------------------------------

    async def listen(self, org_id: UUID, last_event_id: str | None, job_id: int | None) -> AsyncGenerator[Event | None]:
        """Changes of an org's jobs (or of one job) from now on, or from where the listener left off."""
        ring = self._join(org_id)
        try:
            await self._wait(lambda: ring.looked, patient=True)
            position = self._position(ring, last_event_id)
            if position is None:
                position = ring.last
                yield Event("ready" if last_event_id is None else "reset", {}, self._id(position))
            while not self._closing.is_set():
                if position < ring.forgotten:
                    position = ring.last
                    yield Event("reset", {}, self._id(position))
                for number, event in list(ring.events):
                    if number > position and (job_id is None or event.data["id"] == str(job_id)):
                        yield event
                    position = max(position, number)
                yield None
                await self._wait(lambda reached=position: ring.last > reached)
        finally:
            ring.listeners -= 1
            ring.deserted = time.monotonic()

    def _join(self, org_id: UUID) -> Ring:
        if org_id not in self._rings:
            self._number += 1  # so that no id of an earlier ring of this org is one of this
            self._rings[org_id] = Ring(self._number, self._number)
        self._wake.set()
        self._rings[org_id].listeners += 1
        return self._rings[org_id]

    def _position(self, ring: Ring, last_event_id: str | None) -> int | None:
        epoch, _, number = (last_event_id or "").partition("-")
        if epoch != self._epoch or not number.isdecimal() or len(number) > 18:
            return None
        return int(number) if ring.forgotten <= int(number) <= ring.last else None

    async def _wait(self, enough: Callable[[], bool], *, patient: bool = False) -> None:
        """Until there is something, or long enough to say that we are still here."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if patient else TICK_SECONDS), self._changed:
                await self._changed.wait_for(lambda: enough() or self._closing.is_set())

    async def wake_all(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _id(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    # --- the look -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look while somebody listens, until cancelled."""
        connection: Connection | None = None
        while True:
            self._drop_deserted()
            if not self._rings:
                if connection is not None:
                    connection.terminate()
                    connection = None
                await self._wake.wait()
            self._wake.clear()
            started = time.monotonic()
            try:
                if connection is None or connection.is_closed():
                    connection = await connect(self._target)
                    await connection.add_listener(READY_CHANNEL, self._on_notice)
                await self.look(connection)
            except AWAY as error:
                log.warning("live changes: PostgreSQL is away (%s)", type(error).__name__)
                if connection is not None:
                    connection.terminate()
                connection = None
            took = time.monotonic() - started
            await asyncio.sleep(max(SOONEST_SECONDS, SHARE * took))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    def _drop_deserted(self) -> None:
        long_ago = time.monotonic() - KEPT_SECONDS
        for org_id in [key for key, ring in self._rings.items() if not ring.listeners and ring.deserted < long_ago]:
            del self._rings[org_id]

    def _on_notice(self, *_: object) -> None:
        self._wake.set()

    async def look(self, connection: Connection) -> None:
        """One look: what differs from the last one becomes events."""
        rings = dict(self._rings)
        unfinished = [job_id for ring in rings.values() for job_id in ring.known]
        horizon = get_snowflake_id() - OVERLAP
        rows = await connection.fetch(statement("live_jobs"), list(rings), unfinished, horizon)
        fresh: dict[UUID, list[asyncpg.Record]] = {org_id: [] for org_id in rings}
        for row in rows:
            fresh[row["org_id"]].append(row)
        for org_id, ring in rings.items():
            self._compare(ring, fresh[org_id], horizon)
        await self.wake_all()

    def _compare(self, ring: Ring, rows: list[asyncpg.Record], horizon: int) -> None:
        present: dict[int, tuple[Any, ...]] = {}
        ring.ended = {job_id for job_id in ring.ended if job_id > horizon}
        for row in sorted(rows, key=lambda row: row["id"]):
            job_id, state = row["id"], tuple(row[name] for name in _SHOWN)
            over = row["status"] in ("COMPLETED", "FAILED", "CANCELLED")
            news = ring.known.get(job_id) != state and not (over and job_id in ring.ended)
            if over:
                ring.ended.add(job_id)
            else:
                present[job_id] = state
                ring.ended.discard(job_id)
            if news and ring.looked:
                self._number += 1
                shown = dict(zip(_SHOWN, state, strict=True))
                ring.add(self._number, Event("job", {"id": str(job_id), **shown}, self._id(self._number)))
        ring.known, ring.looked = present, True
