"""Metrics of `/metrics` in Prometheus' text format, counted from the database.

Counters include rows that were deleted and tasks that were restarted, so they never decrease. Labels are bounded: at
most QUEUES_SHOWN queues and the existing workers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric

from aaiclick.catalog.freshness_forecast import count_expected_late
from aaiclick.store.enums import BUCKETS, AttemptOutcome, Severity
from aaiclick.store.metrics import MetricRows, load_metrics

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

MIN_TTL_SECONDS = 5.0
TTL_FACTOR = 20
"""The metrics are cached for 20 times as long as counting them takes."""


async def scrape_metrics(connection: Connection, *, worker_timeout_seconds: float) -> bytes:
    """Count the metrics and render them in Prometheus' text format."""
    rows = await load_metrics(connection, worker_timeout_seconds=worker_timeout_seconds)
    return render_metrics(replace(rows, expected_late_datasets=await count_expected_late(connection)))


def render_metrics(metrics: MetricRows) -> bytes:
    """Render metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(metrics))  # pyright: ignore[reportArgumentType]
    return generate_latest(registry)


class MetricsCollector:
    """Turns the counts into metric families of prometheus_client."""

    def __init__(self, metrics: MetricRows) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        jobs = [*metrics.jobs, *_retired_rows(metrics, "job", "job_reopened")]
        ended = _by_status(jobs)
        created = _total_count([*metrics.jobs, *_retired_rows(metrics, "job")])
        yield CounterMetricFamily("jobs_created", "Jobs that were submitted.", created)
        yield CounterMetricFamily("jobs_completed", "Jobs that completed.", ended["COMPLETED"])
        yield CounterMetricFamily("jobs_failed", "Jobs that failed.", ended["FAILED"])
        yield CounterMetricFamily("jobs_cancelled", "Jobs that were cancelled.", ended["CANCELLED"])
        yield _duration_histogram("job_duration_seconds", "From the start of a completed job to its end.", jobs)
        past = _retired_rows(metrics, "task", "task_reopened")
        tasks = _by_status([*(row for row in metrics.tasks if not row["retried"]), *past])
        created = _total_count([*metrics.tasks, *_retired_rows(metrics, "task")])
        failed = tasks["FAILED"] + tasks["DEAD_LETTER"]
        yield CounterMetricFamily("tasks_created", "Tasks that were submitted or enqueued.", created)
        yield CounterMetricFamily("tasks_completed", "Tasks that completed.", tasks["COMPLETED"])
        yield CounterMetricFamily("tasks_failed", "Tasks that failed for good, dead letters included.", failed)
        yield _attempts_metric(metrics, tasks["COMPLETED"])
        took = [*metrics.tasks, *past]
        yield _duration_histogram("task_duration_seconds", "From the start of a completed task to its end.", took)
        depth = GaugeMetricFamily("task_queue_depth", "Tasks that wait for a worker.", labels=["queue"])
        for row in metrics.queues:
            depth.add_metric([row["queue"]], row["ready"])
        yield depth
        yield GaugeMetricFamily("events_pending", "Events that wait for the router.", metrics.events["Pending"])
        yield GaugeMetricFamily("events_failed", "Events that could not be routed.", metrics.events["Failed"])
        incidents = GaugeMetricFamily("incidents_open", "Open incidents by severity.", labels=["severity"])
        counts = {row["severity"]: row["count"] for row in metrics.incidents}
        for severity in get_args(Severity):
            incidents.add_metric([severity], counts.get(severity, 0))
        yield incidents
        yield GaugeMetricFamily("datasets_late", "Datasets with an overdue update.", metrics.late_datasets)
        yield GaugeMetricFamily(
            "datasets_expected_late",
            "Datasets that are not late yet, with an update that is expected too late.",
            metrics.expected_late_datasets,
        )
        yield GaugeMetricFamily("jobs_overdue", "Unfinished jobs after their deadline.", metrics.overdue_jobs)
        yield GaugeMetricFamily(
            "data_tests_blocked", "Data tests that blocked the last update of their partition.", metrics.blocked_tests
        )
        active = sum(row["active"] for row in metrics.workers)
        yield GaugeMetricFamily("workers_active", "Workers with a heartbeat in time.", active)
        yield _execution_summary(metrics)
        age = GaugeMetricFamily(
            "worker_heartbeat_age", "Seconds since the last heartbeat of a worker.", labels=["worker"]
        )
        for row in metrics.workers:
            age.add_metric([str(row["id"])], max(0.0, row["age"]))
        yield age


def _retired_rows(metrics: MetricRows, *row_kinds: str) -> list[asyncpg.Record]:
    return [row for row in metrics.deleted if row["kind"] in row_kinds]


def _total_count(rows: Iterable[asyncpg.Record]) -> int:
    return sum(row["count"] for row in rows)


def _attempts_metric(metrics: MetricRows, completed: int) -> CounterMetricFamily:
    """Attempts by outcome. A completed task has one successful attempt; every other attempt has a row."""
    counts = _by_status([*metrics.attempts, *_retired_rows(metrics, "attempt")])
    counts["COMPLETED"] += completed
    family = CounterMetricFamily("task_attempts", "Attempts that ended, by outcome.", labels=["outcome"])
    for outcome in sorted({"COMPLETED", *AttemptOutcome, *counts}):
        family.add_metric([outcome.lower()], counts[outcome])
    return family


def _by_status(rows: Iterable[asyncpg.Record]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row["status"]] += row["count"]
    return counts


def _duration_histogram(name: str, documentation: str, rows: Iterable[Any]) -> HistogramMetricFamily:
    """Histogram of durations. `width_bucket` n means at least the n-th bound; Prometheus counts are cumulative."""
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
    return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=seconds)


def _execution_summary(metrics: MetricRows) -> SummaryMetricFamily:
    """Durations of completed tasks by worker."""
    counts: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    for row in [*metrics.tasks, *_retired_rows(metrics, "task", "task_reopened")]:
        if row["bucket"] is not None:
            counts[row["worker_id"]] += row["count"]
            seconds[row["worker_id"]] += row["seconds"]
    family = SummaryMetricFamily(
        "worker_task_execution_time", "Seconds that completed tasks took, by worker.", labels=["worker"]
    )
    for row in metrics.workers:
        family.add_metric([str(row["id"])], counts[row["id"]], seconds[row["id"]])
    return family
