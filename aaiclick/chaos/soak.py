"""Soak test: steady load for a long time, in which no metric may grow.

Finished jobs are deleted after seconds, so that the steady state of an installation with a retention of a month is
reached: rows in PostgreSQL, tables in ClickHouse and logs go as fast as they come. Metrics are sampled every few
seconds, and a line is fitted through each after a warm-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from aaiclick.chaos.environment import ChaosEnvironment
from aaiclick.chaos.run import workspace
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.store.postgres_connections import connect

KEEP_SECONDS = 20.0
WARM_SHARE = 0.4
"""Share of the time that is ignored, while caches fill and pools open."""
SAMPLES = 240
MIN_SECONDS = 600.0
"""A shorter test shows only the start-up; a trend would mean nothing."""
ENDLESS = 10**9
PER_SECOND = 60.0
"""Tasks per second, well below the capacity of two cores, so that the load is constant."""

MIN_SHARE = 0.9
"""Least share of the requested tasks that must be completed."""

CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
TUPLES = """
    SELECT sum(n_dead_tup)::float8 AS dead, sum(n_live_tup)::float8 AS live FROM pg_stat_user_tables
    WHERE schemaname = 'public'
"""
"""Without the tables of the chaos checker."""
COMPLETED = "SELECT count(*) FROM chaos.outcomes"
"""Includes tasks that were deleted since."""
TABLES = "SELECT count() AS n FROM system.tables WHERE database NOT IN ('system', 'information_schema')"


@dataclass(frozen=True)
class MetricLimit:
    """Allowed growth of a metric while it is watched: a share of its mean, plus an absolute amount."""

    unit: str
    share: float
    more: float


METRIC_LIMITS = {
    "memory": MetricLimit("MB", 0.15, 15.0),
    "file handles": MetricLimit("", 0.15, 15.0),
    "connections": MetricLimit("", 0.15, 10.0),
    "dead tuples": MetricLimit("", 0.5, 50_000.0),
    "live tuples": MetricLimit("", 0.5, 5_000.0),
    "ClickHouse tables": MetricLimit("", 0.5, 50.0),
    "logs": MetricLimit("MB", 0.15, 1.0),
}


@dataclass(frozen=True)
class Trend:
    """The trend of one metric."""

    metric: str
    subject: str
    first: float
    last: float
    gained: float
    """By the fitted line, after the warm-up."""

    per_hour: float
    grows: bool


@dataclass(frozen=True)
class SoakResult:
    """Result of a soak test."""

    trends: list[Trend]
    seconds: float
    tasks: int
    """Completed tasks."""

    per_second: float
    """Requested tasks per second."""

    @property
    def is_conclusive(self) -> bool:
        """Whether it was long enough for a trend."""
        return self.seconds >= MIN_SECONDS

    @property
    def min_tasks(self) -> int:
        return int(MIN_SHARE * self.per_second * self.seconds)

    @property
    def has_kept_up(self) -> bool:
        """Whether the requested load was processed; an idle system does not grow."""
        return not self.is_conclusive or self.tasks >= self.min_tasks

    @property
    def is_flat(self) -> bool:
        return not (self.is_conclusive and any(trend.grows for trend in self.trends))


Sample = dict[tuple[str, str], float]
"""(metric, subject) → value."""


async def run_soak(
    seconds: float,
    log: Callable[[str], None],
    *,
    seed: int = 1,
    workers: int = 2,
    per_second: float = PER_SECOND,
    keep: Path | None = None,
) -> SoakResult:
    """Load a separate installation for that long."""
    async with (
        workspace(keep) as directory,
        ChaosEnvironment(directory, workers, seed, keep_seconds=KEEP_SECONDS, per_second=per_second) as environment,
    ):
        await environment.warm_up()
        started_at, completed_before = time.monotonic(), await _count_completed(environment)
        load = asyncio.create_task(environment.run_load(ENDLESS))
        samples: list[tuple[float, Sample]] = []
        try:
            while (elapsed := time.monotonic() - started_at) < seconds:
                await asyncio.wait([load], timeout=seconds / SAMPLES)
                if load.done():
                    load.result()
                samples.append((elapsed, await _take_sample(environment)))
                if len(samples) % (SAMPLES // 12) == 0:
                    log(f"{elapsed:6.0f} s  {_format_sample(samples[-1][1])}")
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
        return SoakResult(
            fit_trends(samples),
            time.monotonic() - started_at,
            await _count_completed(environment) - completed_before,
            per_second=per_second,
        )


def fit_trends(samples: Sequence[tuple[float, Sample]]) -> list[Trend]:
    """Fit a line through each metric that exists throughout, ignoring the warm-up."""
    warm = samples[int(WARM_SHARE * len(samples)) :]
    common = set(warm[0][1]).intersection(*(figures for _, figures in warm))
    return [
        _fit_trend(metric, subject, [(time_, figures[metric, subject]) for time_, figures in warm])
        for metric, subject in sorted(common)
    ]


def _fit_trend(metric: str, subject: str, points: list[tuple[float, float]]) -> Trend:
    times, values = zip(*points, strict=True)
    slope = statistics.linear_regression(times, values).slope
    gained = slope * (times[-1] - times[0])
    allowed = METRIC_LIMITS[metric].share * statistics.fmean(values) + METRIC_LIMITS[metric].more
    return Trend(metric, subject, values[0], values[-1], gained, 3600 * slope, gained > allowed)


async def _count_completed(environment: ChaosEnvironment) -> int:
    connection = await connect(environment.servers.postgres)
    try:
        return await connection.fetchval(COMPLETED)
    finally:
        await connection.close()


async def _take_sample(environment: ChaosEnvironment) -> Sample:
    sample = await asyncio.to_thread(_sample_processes, environment)
    connection = await connect(environment.servers.postgres)
    try:
        sample["connections", "PostgreSQL"] = float(await connection.fetchval(CONNECTIONS))
        tuples = await connection.fetchrow(TUPLES)
        assert tuples is not None  # noqa: S101
        sample["dead tuples", "PostgreSQL"], sample["live tuples", "PostgreSQL"] = tuples["dead"], tuples["live"]
    finally:
        await connection.close()
    clickhouse = await connect_clickhouse(environment.servers.clickhouse)
    sample["ClickHouse tables", "ClickHouse"] = (await clickhouse.read_text(TABLES)).to_pylist()[0]["n"]
    sample["logs", "all"] = await asyncio.to_thread(_log_bytes, environment.directory) / 1e6
    return sample


def _sample_processes(environment: ChaosEnvironment) -> Sample:
    """Return metrics of each process, and the mean of each role, which also covers replaced processes."""
    sample: Sample = {}
    roles: dict[tuple[str, str], list[float]] = {}
    for role, name, processes in _list_processes(environment):
        figures: list[tuple[int, int]] = []
        for process in processes:
            with contextlib.suppress(psutil.Error):  # a child process may have ended
                figures.append((anonymous_bytes(process), process.num_fds()))
        if figures:
            sample["memory", name] = sum(memory for memory, _ in figures) / 1e6
            sample["file handles", name] = sum(handles for _, handles in figures)
            for metric in ("memory", "file handles") if role else ():
                roles.setdefault((metric, role), []).append(sample[metric, name])
    return {(metric, f"each {role}"): statistics.fmean(figures) for (metric, role), figures in roles.items()} | sample


def _list_processes(environment: ChaosEnvironment) -> list[tuple[str, str, list[psutil.Process]]]:
    """Return role, name and processes.

    aaiclick processes are listed one by one, so that long-lived ones keep their name; those of a database together.
    """
    processes: list[tuple[str, str, list[psutil.Process]]] = []
    for program in (*environment.workers, environment.server):
        for index, process in enumerate(program.processes()):
            part = "process" if index else "supervisor" if program in environment.workers else "itself"
            processes.append(
                (f"{program.name} {part}", f"{program.name} {program.number}, {part} {process.pid}", [process])
            )
    for name, pid in environment.servers.pids().items():
        with contextlib.suppress(psutil.Error):
            server = psutil.Process(pid)
            processes.append(("", name, [server, *server.children(recursive=True)]))
    return processes


def _log_bytes(directory: Path) -> int:
    """Return the size of the logs of tasks and databases; output of programs belongs to their starter."""
    total = 0
    for path in (*directory.glob("logs of */*.log*"), *directory.glob("home/logs/*.log*")):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _format_sample(sample: Sample) -> str:
    sums: dict[str, float] = {}
    for (metric, subject), figure in sample.items():
        if not subject.startswith("each "):
            sums[metric] = sums.get(metric, 0.0) + figure
    return ", ".join(f"{metric} {figure:,.0f}" for metric, figure in sums.items())


def anonymous_bytes(process: psutil.Process) -> int:
    """Return the memory that a process has allocated, including memory shared with forked processes.

    Mapped files are left out, since their share depends on other processes.
    """
    info = process.memory_info()
    shared = getattr(info, "shared", None)
    return process.memory_full_info().uss if shared is None else info.rss - shared
