"""A soak: steady load for a long time, in which nothing may grow.

Finished work is forgotten after seconds here, so that an installation which keeps it for a month is seen in its steady
state: what comes in goes out again, in PostgreSQL, in ClickHouse and among the logs. Figures are taken every few
seconds; a line is fitted through each once things have warmed up.
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

from aaiclick.chaos.run import workspace
from aaiclick.chaos.scene import Scene
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.store.engine import connect

KEEP_SECONDS = 20.0
WARM_SHARE = 0.4
"""Caches fill and pools open at first: so much of the time is not looked at."""
SAMPLES = 240
LEAST_SECONDS = 600.0
"""What is shorter shows how an installation starts, not whether it grows: a line through that says nothing."""
ENDLESS = 10**9
PER_SECOND = 60.0
"""Tasks a second, well below what two cores can do: a load that follows the machine's mood would grow with it."""

LEAST_SHARE = 0.9
"""Of the tasks that were asked for, to be completed."""

CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
TUPLES = """
    SELECT sum(n_dead_tup)::float8 AS dead, sum(n_live_tup)::float8 AS live FROM pg_stat_user_tables
    WHERE schemaname = 'public'
"""
"""Not what the checker of chaos writes down beside it."""
COMPLETED = "SELECT count(*) FROM chaos.outcomes"
"""Also those that are forgotten by now."""
TABLES = "SELECT count() AS n FROM system.tables WHERE database NOT IN ('system', 'information_schema')"


@dataclass(frozen=True)
class Kind:
    """How far from flat a kind of figure may be: what it may gain while it is watched, of its mean and beyond that."""

    unit: str
    share: float
    more: float


KINDS = {
    "memory": Kind("MB", 0.15, 15.0),
    "file handles": Kind("", 0.15, 15.0),
    "connections": Kind("", 0.15, 10.0),
    "dead tuples": Kind("", 0.5, 50_000.0),
    "live tuples": Kind("", 0.5, 5_000.0),
    "ClickHouse tables": Kind("", 0.5, 50.0),
    "logs": Kind("MB", 0.15, 1.0),
}


@dataclass(frozen=True)
class Trend:
    """What became of one figure."""

    kind: str
    of: str
    first: float
    last: float
    gained: float
    """By the line through it, over the time that counts."""

    per_hour: float
    grows: bool


@dataclass(frozen=True)
class Soaked:
    """What was seen."""

    trends: list[Trend]
    seconds: float
    tasks: int
    """Completed."""

    per_second: float
    """Asked for."""

    @property
    def judged(self) -> bool:
        """Whether it was long enough for a line to tell anything."""
        return self.seconds >= LEAST_SECONDS

    @property
    def least_tasks(self) -> int:
        return int(LEAST_SHARE * self.per_second * self.seconds)

    @property
    def kept_up(self) -> bool:
        """Whether the load was there: what stands still does not grow."""
        return not self.judged or self.tasks >= self.least_tasks

    @property
    def flat(self) -> bool:
        return not (self.judged and any(trend.grows for trend in self.trends))


Sample = dict[tuple[str, str], float]
"""(kind, of what) → figure."""


async def soak(
    seconds: float,
    say: Callable[[str], None],
    *,
    seed: int = 1,
    workers: int = 2,
    per_second: float = PER_SECOND,
    keep: Path | None = None,
) -> Soaked:
    """Load an installation of its own for that long."""
    async with (
        workspace(keep) as directory,
        Scene(directory, workers, seed, keep_seconds=KEEP_SECONDS, per_second=per_second) as scene,
    ):
        await scene.warm_up()
        began, before = time.monotonic(), await _completed(scene)
        load = asyncio.create_task(scene.load(ENDLESS))
        samples: list[tuple[float, Sample]] = []
        try:
            while (at := time.monotonic() - began) < seconds:
                await asyncio.wait([load], timeout=seconds / SAMPLES)
                if load.done():
                    load.result()
                samples.append((at, await _sample(scene)))
                if len(samples) % (SAMPLES // 12) == 0:
                    say(f"{at:6.0f} s  {_said(samples[-1][1])}")
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
        return Soaked(
            trends(samples), time.monotonic() - began, await _completed(scene) - before, per_second=per_second
        )


def trends(samples: Sequence[tuple[float, Sample]]) -> list[Trend]:
    """A line through each figure that is there throughout; what was before things were warm does not count."""
    counted = samples[int(WARM_SHARE * len(samples)) :]
    always = set(counted[0][1]).intersection(*(figures for _, figures in counted))
    return [_trend(kind, of, [(at, figures[kind, of]) for at, figures in counted]) for kind, of in sorted(always)]


def _trend(kind: str, of: str, points: list[tuple[float, float]]) -> Trend:
    times, values = zip(*points, strict=True)
    slope = statistics.linear_regression(times, values).slope
    gained = slope * (times[-1] - times[0])
    allowed = KINDS[kind].share * statistics.fmean(values) + KINDS[kind].more
    return Trend(kind, of, values[0], values[-1], gained, 3600 * slope, gained > allowed)


async def _completed(scene: Scene) -> int:
    connection = await connect(scene.servers.postgres)
    try:
        return await connection.fetchval(COMPLETED)
    finally:
        await connection.close()


async def _sample(scene: Scene) -> Sample:
    found = await asyncio.to_thread(_of_processes, scene)
    connection = await connect(scene.servers.postgres)
    try:
        found["connections", "PostgreSQL"] = float(await connection.fetchval(CONNECTIONS))
        tuples = await connection.fetchrow(TUPLES)
        assert tuples is not None  # noqa: S101
        found["dead tuples", "PostgreSQL"], found["live tuples", "PostgreSQL"] = tuples["dead"], tuples["live"]
    finally:
        await connection.close()
    clickhouse = await connect_clickhouse(scene.servers.clickhouse)
    found["ClickHouse tables", "ClickHouse"] = (await clickhouse.read_text(TABLES)).to_pylist()[0]["n"]
    found["logs", "of everybody"] = await asyncio.to_thread(_log_bytes, scene.directory) / 1e6
    return found


def _of_processes(scene: Scene) -> Sample:
    """Of each that is there throughout, and of each role on average: one that is replaced midway counts in that."""
    found: Sample = {}
    roles: dict[tuple[str, str], list[float]] = {}
    for role, name, processes in _processes(scene):
        figures: list[tuple[int, int]] = []
        for each in processes:
            with contextlib.suppress(psutil.Error):  # a server's child may have ended by now
                figures.append((anonymous_bytes(each), each.num_fds()))
        if figures:
            found["memory", name] = sum(memory for memory, _ in figures) / 1e6
            found["file handles", name] = sum(handles for _, handles in figures)
            for kind in ("memory", "file handles") if role else ():
                roles.setdefault((kind, role), []).append(found[kind, name])
    return {(kind, f"each {role}"): statistics.fmean(figures) for (kind, role), figures in roles.items()} | found


def _processes(scene: Scene) -> list[tuple[str, str, list[psutil.Process]]]:
    """Role, name and processes. Ours one by one: those that are there throughout have the same name each time. A
    database's together, which keeps its name.
    """
    found: list[tuple[str, str, list[psutil.Process]]] = []
    for program in (*scene.workers, scene.server):
        for n, process in enumerate(program.processes()):
            part = "process" if n else "supervisor" if program in scene.workers else "itself"
            found.append(
                (f"{program.name} {part}", f"{program.name} {program.number}, {part} {process.pid}", [process])
            )
    for name, pid in scene.servers.pids().items():
        with contextlib.suppress(psutil.Error):
            server = psutil.Process(pid)
            found.append(("", name, [server, *server.children(recursive=True)]))
    return found


def _log_bytes(directory: Path) -> int:
    """Of tasks and of the databases; what programs say on their streams is kept by whoever starts them."""
    total = 0
    for path in (*directory.glob("logs of */*.log*"), *directory.glob("home/logs/*.log*")):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _said(sample: Sample) -> str:
    sums: dict[str, float] = {}
    for (kind, of), figure in sample.items():
        if not of.startswith("each "):
            sums[kind] = sums.get(kind, 0.0) + figure
    return ", ".join(f"{kind} {figure:,.0f}" for kind, figure in sums.items())


def anonymous_bytes(process: psutil.Process) -> int:
    """What a process has allocated, shared with those forked from it or not. Not what it has mapped of files: how much
    of a library is its own depends on who else has it mapped.
    """
    known = process.memory_info()
    shared = getattr(known, "shared", None)
    return process.memory_full_info().uss if shared is None else known.rss - shared
