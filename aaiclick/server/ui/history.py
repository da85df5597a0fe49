"""The last hour and day of an org's figures, looked at every few seconds by this server while it runs.

Kept in memory: what was before the server started is not known, and the charts leave it empty. An org is looked at once
somebody has opened its overview, until nobody has for a day.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from aaiclick.server.problems import translate
from aaiclick.server.service import Service
from aaiclick.store import ui_reads
from aaiclick.store.words import DEFAULT_ORG_ID

log = logging.getLogger("aaiclick.server")

STEP_SECONDS = 10.0
KEPT_HOUR = 360
EVERY = 24
KEPT_DAY = 360
GIVEN_UP_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. Counts of workers are totals over everybody; they are known for the operator's org alone."""

    at: datetime
    ready: int
    running: int
    dead: int
    workers: int
    oldest_seconds: float
    completed: int | None
    failed: int | None


@dataclass
class Kept:
    hour: deque[Sample] = field(default_factory=lambda: deque[Sample](maxlen=KEPT_HOUR))
    day: deque[Sample] = field(default_factory=lambda: deque[Sample](maxlen=KEPT_DAY))
    looks: int = 0
    wanted: float = field(default_factory=time.monotonic)


class History:
    """Looks, and remembers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._orgs: dict[UUID, Kept] = {DEFAULT_ORG_ID: Kept()}

    async def of(self, org_id: UUID, span: timedelta) -> list[Sample]:
        """Samples of an org, oldest first; the first call looks at once."""
        kept = self._orgs.setdefault(org_id, Kept())
        kept.wanted = time.monotonic()
        if not kept.hour:
            await self.look(org_id)
        return list(kept.day if span > timedelta(hours=1) else kept.hour)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            long_ago = time.monotonic() - GIVEN_UP_SECONDS
            for org_id in [org for org, kept in self._orgs.items() if org != DEFAULT_ORG_ID and kept.wanted < long_ago]:
                del self._orgs[org_id]
            for org_id in list(self._orgs):
                try:
                    await self.look(org_id)
                except Exception as error:
                    if translate(error) is None:
                        raise
                    log.warning("figures of the overview: PostgreSQL is away")
            await asyncio.sleep(STEP_SECONDS)

    async def look(self, org_id: UUID) -> None:
        async with self._service.tenant(org_id) as connection:
            now = await ui_reads.figures_now(connection, org_id)
            totals = await ui_reads.worker_totals(connection) if org_id == DEFAULT_ORG_ID else None
        oldest = (now["now"] - now["oldest_at"]).total_seconds() if now["oldest_at"] else 0.0
        sample = Sample(
            now["now"], now["ready"], now["running"], now["dead"], now["workers"], max(0.0, oldest),
            None if totals is None else totals["completed"], None if totals is None else totals["failed"],
        )  # fmt: skip
        kept = self._orgs.setdefault(org_id, Kept())
        kept.hour.append(sample)
        if kept.looks % EVERY == 0:
            kept.day.append(sample)
        kept.looks += 1


def rates(samples: list[Sample]) -> list[tuple[datetime, float | None]]:
    """Tasks completed a second between samples. Workers report with their heartbeats: a report is spread over the time
    since the one before it; where a total falls (a worker's row was forgotten) the line breaks.
    """
    found: list[tuple[datetime, float | None]] = []
    before: Sample | None = None
    for sample in samples:
        if sample.completed is None:
            continue
        if before is not None and before.completed is not None:
            gained = sample.completed - before.completed
            if gained == 0 and (sample.at - before.at) < timedelta(seconds=35):
                continue
            seconds = max(0.001, (sample.at - before.at).total_seconds())
            found.append((sample.at, None if gained < 0 else gained / seconds))
        before = sample
    return found
