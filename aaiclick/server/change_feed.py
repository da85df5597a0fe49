"""Feed of job changes for server-sent events: one poll of the database serves all subscribers.

While there are subscribers, one connection polls the unfinished jobs of their orgs, on notifications of new work and
otherwise every POLL_SECONDS, and compares them with the previous poll. (Notifying from the statements that complete
tasks would make each of them slower.) Changes go into one ring buffer per org. A subscriber is a position in that
buffer, so that a thousand of them cost little more than their sockets.

A stream begins with `ready`; every later change is sent. An event's id is EPOCH-NUMBER. A subscriber that reconnects
with an id that is still in the buffer receives the events that it missed; otherwise `reset` replaces `ready`, and the
subscriber has to reload. A buffer is dropped IDLE_BUFFER_SECONDS after its last subscriber.
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

from aaiclick.server.sse import ServerSentEvent
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.queue import READY_CHANNEL
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

log = logging.getLogger("aaiclick.server")

POLL_SECONDS = 1.0
MIN_PAUSE_SECONDS = 0.1
PAUSE_FACTOR = 10
"""A poll that takes one second is followed by a pause of ten."""

BUFFERED_EVENTS = 2_000
IDLE_BUFFER_SECONDS = 60.0
ID_OVERLAP = 60_000 << 22
"""Ids are generated before they are committed: a poll includes those of the last minute."""

TICK_SECONDS = 5.0
_JOB_FIELDS = ("name", "status", "total_tasks", "open_tasks", "failed_tasks", "cancelled_tasks", "paused")


@dataclass
class EventBuffer:
    """Ring buffer of the last changes of one org.

    Event numbers are shared by all buffers; `dropped` is the highest number that is no longer in this one.
    """

    dropped: int
    last: int
    events: deque[tuple[int, ServerSentEvent]] = field(
        default_factory=lambda: deque[tuple[int, ServerSentEvent]](maxlen=BUFFERED_EVENTS)
    )
    subscribers: int = 0
    idle_since: float = 0.0
    states: dict[int, tuple[Any, ...]] = field(default_factory=dict[int, tuple[Any, ...]])
    ended: set[int] = field(default_factory=set[int])
    is_initialised: bool = False

    def add(self, number: int, event: ServerSentEvent) -> None:
        if len(self.events) == BUFFERED_EVENTS:
            self.dropped = self.events[0][0]
        self.events.append((number, event))
        self.last = number


class ChangeFeed:
    """Polls jobs and sends their changes to subscribers."""

    def __init__(self, endpoint: PostgresEndpoint, closing: asyncio.Event) -> None:
        self._endpoint = endpoint
        self._closing = closing
        self._epoch = uuid4().hex[:12]
        self._buffers: dict[UUID, EventBuffer] = {}
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._number = 0

    # --- subscribers --------------------------------------------------------------------------------------------------

    async def subscribe(
        self, org_id: UUID, last_event_id: str | None, job_id: int | None
    ) -> AsyncGenerator[ServerSentEvent | None]:
        """Yield changes of an org's jobs (or of one job) from now on, or from `last_event_id`."""
        buffer = self._add_subscriber(org_id)
        try:
            await self._wait_until(lambda: buffer.is_initialised, forever=True)
            position = self._resume_position(buffer, last_event_id)
            if position is None:
                position = buffer.last
                yield ServerSentEvent("ready" if last_event_id is None else "reset", {}, self._event_id(position))
            while not self._closing.is_set():
                if position < buffer.dropped:
                    position = buffer.last
                    yield ServerSentEvent("reset", {}, self._event_id(position))
                for number, event in list(buffer.events):
                    if number > position and (job_id is None or event.data["id"] == str(job_id)):
                        yield event
                    position = max(position, number)
                yield None
                await self._wait_until(lambda reached=position: buffer.last > reached)
        finally:
            buffer.subscribers -= 1
            buffer.idle_since = time.monotonic()

    def _add_subscriber(self, org_id: UUID) -> EventBuffer:
        if org_id not in self._buffers:
            self._number += 1  # so that ids of an earlier buffer of this org are not valid in this one
            self._buffers[org_id] = EventBuffer(self._number, self._number)
        self._wake.set()
        self._buffers[org_id].subscribers += 1
        return self._buffers[org_id]

    def _resume_position(self, buffer: EventBuffer, last_event_id: str | None) -> int | None:
        epoch, _, number = (last_event_id or "").partition("-")
        if epoch != self._epoch or not number.isdecimal() or len(number) > 18:
            return None
        return int(number) if buffer.dropped <= int(number) <= buffer.last else None

    async def _wait_until(self, condition: Callable[[], bool], *, forever: bool = False) -> None:
        """Wait for a condition, at most TICK_SECONDS unless `forever`, so that keep-alives can be sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if forever else TICK_SECONDS), self._changed:
                await self._changed.wait_for(lambda: condition() or self._closing.is_set())

    async def wake_all(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _event_id(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    # --- polling ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Poll while there are subscribers, until cancelled."""
        connection: Connection | None = None
        while True:
            self._drop_idle_buffers()
            if not self._buffers:
                if connection is not None:
                    connection.terminate()
                    connection = None
                await self._wake.wait()
            self._wake.clear()
            started = time.monotonic()
            try:
                if connection is None or connection.is_closed():
                    connection = await connect(self._endpoint)
                    await connection.add_listener(READY_CHANNEL, self._on_notification)
                await self.poll(connection)
            except CONNECTION_ERRORS as error:
                log.warning("change feed: PostgreSQL is unreachable (%s)", type(error).__name__)
                if connection is not None:
                    connection.terminate()
                connection = None
            poll_seconds = time.monotonic() - started
            await asyncio.sleep(max(MIN_PAUSE_SECONDS, PAUSE_FACTOR * poll_seconds))
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()

    def _drop_idle_buffers(self) -> None:
        oldest = time.monotonic() - IDLE_BUFFER_SECONDS
        idle = [
            org_id for org_id, buffer in self._buffers.items() if not buffer.subscribers and buffer.idle_since < oldest
        ]
        for org_id in idle:
            del self._buffers[org_id]

    def _on_notification(self, *_: object) -> None:
        self._wake.set()

    async def poll(self, connection: Connection) -> None:
        """Poll once; differences from the previous poll become events."""
        buffers = dict(self._buffers)
        unfinished = [job_id for buffer in buffers.values() for job_id in buffer.states]
        horizon = get_snowflake_id() - ID_OVERLAP
        rows = await connection.fetch(statement("list_changed_jobs"), list(buffers), unfinished, horizon)
        rows_by_org: dict[UUID, list[asyncpg.Record]] = {org_id: [] for org_id in buffers}
        for row in rows:
            rows_by_org[row["org_id"]].append(row)
        for org_id, buffer in buffers.items():
            self._add_changes(buffer, rows_by_org[org_id], horizon)
        await self.wake_all()

    def _add_changes(self, buffer: EventBuffer, rows: list[asyncpg.Record], horizon: int) -> None:
        states: dict[int, tuple[object, ...]] = {}
        buffer.ended = {job_id for job_id in buffer.ended if job_id > horizon}
        for row in sorted(rows, key=lambda row: row["id"]):
            job_id, state = row["id"], tuple(row[name] for name in _JOB_FIELDS)
            has_ended = row["status"] in ("COMPLETED", "FAILED", "CANCELLED")
            has_changed = buffer.states.get(job_id) != state and not (has_ended and job_id in buffer.ended)
            if has_ended:
                buffer.ended.add(job_id)
            else:
                states[job_id] = state
                buffer.ended.discard(job_id)
            if has_changed and buffer.is_initialised:
                self._number += 1
                fields = dict(zip(_JOB_FIELDS, state, strict=True))
                buffer.add(
                    self._number, ServerSentEvent("job", {"id": str(job_id), **fields}, self._event_id(self._number))
                )
        buffer.states, buffer.is_initialised = states, True
