"""The figures of `/metrics`, in Prometheus' form: counted from the database, kept for a moment.

They are what the tables say, and what was deleted from them or has started over: counters only rise.
Labels are bounded: at most QUEUES_SHOWN queues and the workers that are there.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric

from aaiclick.store.figures import Figures, count_all
from aaiclick.store.words import BUCKETS, AttemptOutcome

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

KEEP_SECONDS = 5.0
SHARE = 20
"""Counting takes at most a twentieth of the time: the larger the tables, the rarer."""


class Scraped:
    """What a scrape gets."""

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[Connection]], worker_timeout_seconds: float
    ) -> None:
        self._connect = connect
        self._worker_timeout_seconds = worker_timeout_seconds
        self._lock = asyncio.Lock()
        self._text = b""
        self._good_until = float("-inf")

    async def text(self) -> bytes:
        """The figures, at most KEEP_SECONDS old (or twenty times as old as counting them takes)."""
        async with self._lock:
            if time.monotonic() > self._good_until:
                started = time.monotonic()
                async with self._connect() as connection:
                    found = await count_all(connection, worker_timeout_seconds=self._worker_timeout_seconds)
                self._text = render(found)
                self._good_until = time.monotonic() + max(KEEP_SECONDS, SHARE * (time.monotonic() - started))
            return self._text


def render(figures: Figures) -> bytes:
    """Figures as text in Prometheus' format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(figures))  # pyright: ignore[reportArgumentType]
    return generate_latest(registry)


class _Collector:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        jobs = [*figures.jobs, *_past(figures, "job", "job_reopened")]
        ended = _by_status(jobs)
        created = _total([*figures.jobs, *_past(figures, "job")])
        yield CounterMetricFamily("jobs_created", "Jobs that were submitted.", created)
        yield CounterMetricFamily("jobs_completed", "Jobs that completed.", ended["COMPLETED"])
        yield CounterMetricFamily("jobs_failed", "Jobs that failed.", ended["FAILED"])
        yield CounterMetricFamily("jobs_cancelled", "Jobs that were cancelled.", ended["CANCELLED"])
        yield _histogram("job_duration_seconds", "From the start of a completed job to its end.", jobs)
        past = _past(figures, "task", "task_reopened")
        tasks = _by_status([*(row for row in figures.tasks if not row["retried"]), *past])
        created = _total([*figures.tasks, *_past(figures, "task")])
        failed = tasks["FAILED"] + tasks["DEAD_LETTER"]
        yield CounterMetricFamily("tasks_created", "Tasks that were submitted or enqueued.", created)
        yield CounterMetricFamily("tasks_completed", "Tasks that completed.", tasks["COMPLETED"])
        yield CounterMetricFamily("tasks_failed", "Tasks that failed for good, dead letters included.", failed)
        yield _attempts(figures, tasks["COMPLETED"])
        took = [*figures.tasks, *past]
        yield _histogram("task_duration_seconds", "From the start of a completed task to its end.", took)
        depth = GaugeMetricFamily("task_queue_depth", "Tasks that wait for a worker.", labels=["queue"])
        for row in figures.queues:
            depth.add_metric([row["queue"]], row["ready"])
        yield depth
        yield GaugeMetricFamily("events_pending", "Events that wait for the router.", figures.events["Pending"])
        yield GaugeMetricFamily("events_failed", "Events that could not be routed.", figures.events["Failed"])
        active = sum(row["active"] for row in figures.workers)
        yield GaugeMetricFamily("workers_active", "Workers with a heartbeat in time.", active)
        yield _execution(figures)
        age = GaugeMetricFamily(
            "worker_heartbeat_age", "Seconds since the last heartbeat of a worker.", labels=["worker"]
        )
        for row in figures.workers:
            age.add_metric([str(row["id"])], max(0.0, row["age"]))
        yield age


def _past(figures: Figures, *kinds: str) -> list[asyncpg.Record]:
    return [row for row in figures.past if row["kind"] in kinds]


def _total(rows: Iterable[asyncpg.Record]) -> int:
    return sum(row["count"] for row in rows)


def _attempts(figures: Figures, completed: int) -> CounterMetricFamily:
    """A task that completed had one attempt that did; the others left a row each."""
    counts = _by_status([*figures.attempts, *_past(figures, "attempt")])
    counts["COMPLETED"] += completed
    family = CounterMetricFamily("task_attempts", "Attempts that ended, by outcome.", labels=["outcome"])
    for outcome in sorted({"COMPLETED", *AttemptOutcome, *counts}):
        family.add_metric([outcome.lower()], counts[outcome])
    return family


def _by_status(rows: Iterable[asyncpg.Record]) -> dict[str, int]:
    counted: dict[str, int] = defaultdict(int)
    for row in rows:
        counted[row["status"]] += row["count"]
    return counted


def _histogram(name: str, words: str, rows: Iterable[Any]) -> HistogramMetricFamily:
    """`width_bucket` n means: at least the n-th bound. Prometheus counts what is at most a bound, cumulatively."""
    counts, seconds = [0] * (len(BUCKETS) + 1), 0.0
    for row in rows:
        if row["bucket"] is not None:
            counts[row["bucket"]] += row["count"]
            seconds += row["seconds"]
    bounds = [*(f"{bound:g}" for bound in BUCKETS), "+Inf"]
    total, buckets = 0, list[tuple[str, float]]()
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(name, words, buckets=buckets, sum_value=seconds)


def _execution(figures: Figures) -> SummaryMetricFamily:
    """How long the tasks took that each worker completed."""
    counts: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    for row in [*figures.tasks, *_past(figures, "task", "task_reopened")]:
        if row["bucket"] is not None:
            counts[row["worker_id"]] += row["count"]
            seconds[row["worker_id"]] += row["seconds"]
    family = SummaryMetricFamily(
        "worker_task_execution_time", "Seconds that completed tasks took, by worker.", labels=["worker"]
    )
    for row in figures.workers:
        family.add_metric([str(row["id"])], counts[row["id"]], seconds[row["id"]])
    return family
