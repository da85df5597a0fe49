"""In-memory metrics of the last hour and day per organisation, for the charts of the overview.

Sampling of an organisation starts when its overview is opened and stops after a day without a view.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from aaiclick.server.app_state import AppState
from aaiclick.server.problem_responses import translate_error
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.ui import job_queries

log = logging.getLogger("aaiclick.server")

SAMPLE_INTERVAL_SECONDS = 10.0
HOUR_SAMPLES = 360
DAY_STRIDE = 24
DAY_SAMPLES = 360
IDLE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Metrics of one organisation at one time; worker totals are for the whole installation (default org only)."""

    at: datetime
    ready: int
    running: int
    dead: int
    workers: int
    oldest_seconds: float
    completed: int | None
    failed: int | None


@dataclass
class OrgSamples:
    hour: deque[Sample] = field(default_factory=lambda: deque[Sample](maxlen=HOUR_SAMPLES))
    day: deque[Sample] = field(default_factory=lambda: deque[Sample](maxlen=DAY_SAMPLES))
    sample_count: int = 0
    last_read: float = field(default_factory=time.monotonic)


class MetricsHistory:
    """Samples the metrics of organisations with a recently viewed overview."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state
        self._orgs: dict[UUID, OrgSamples] = {DEFAULT_ORG_ID: OrgSamples()}

    async def get_samples(self, org_id: UUID, span: timedelta) -> list[Sample]:
        """Return the samples of an organisation, oldest first; the first call takes one."""
        org_samples = self._orgs.setdefault(org_id, OrgSamples())
        org_samples.last_read = time.monotonic()
        if not org_samples.hour:
            await self.take_sample(org_id)
        return list(org_samples.day if span > timedelta(hours=1) else org_samples.hour)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            idle_before = time.monotonic() - IDLE_SECONDS
            for org_id in [
                org
                for org, org_samples in self._orgs.items()
                if org != DEFAULT_ORG_ID and org_samples.last_read < idle_before
            ]:
                del self._orgs[org_id]
            for org_id in list(self._orgs):
                try:
                    await self.take_sample(org_id)
                except Exception as error:
                    if translate_error(error) is None:
                        raise
                    log.warning("metrics of the overview were not sampled: PostgreSQL is unreachable")
            await asyncio.sleep(SAMPLE_INTERVAL_SECONDS)

    async def take_sample(self, org_id: UUID) -> None:
        async with self._app_state.tenant_connection(org_id) as connection:
            now = await job_queries.load_org_counts(connection, org_id)
            totals = await job_queries.load_worker_totals(connection) if org_id == DEFAULT_ORG_ID else None
        oldest = (now["now"] - now["oldest_at"]).total_seconds() if now["oldest_at"] else 0.0
        sample = Sample(
            now["now"], now["ready"], now["running"], now["dead"], now["workers"], max(0.0, oldest),
            None if totals is None else totals["completed"], None if totals is None else totals["failed"],
        )  # fmt: skip
        org_samples = self._orgs.setdefault(org_id, OrgSamples())
        org_samples.hour.append(sample)
        if org_samples.sample_count % DAY_STRIDE == 0:
            org_samples.day.append(sample)
        org_samples.sample_count += 1


def completion_rates(samples: list[Sample]) -> list[tuple[datetime, float | None]]:
    """Compute the tasks completed per second between samples.

    Workers report with their heartbeats, so a count is spread over the time since the previous report. Where a total
    falls, since a worker's row was deleted, the value is None.
    """
    rates_by_time: list[tuple[datetime, float | None]] = []
    previous: Sample | None = None
    for sample in samples:
        if sample.completed is None:
            continue
        if previous is not None and previous.completed is not None:
            gained = sample.completed - previous.completed
            if gained == 0 and (sample.at - previous.at) < timedelta(seconds=35):
                continue
            seconds = max(0.001, (sample.at - previous.at).total_seconds())
            rates_by_time.append((sample.at, None if gained < 0 else gained / seconds))
        previous = sample
    return rates_by_time
