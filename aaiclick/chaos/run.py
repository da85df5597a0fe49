"""One chaos run: start everything, load it, break it by the schedule, let it come to rest, and judge.

Throughput under faults is told beside that of a calm run of the same load, by the same process just before.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aaiclick.chaos.checker import judge, violations
from aaiclick.chaos.scene import Scene
from aaiclick.chaos.schedule import schedule
from aaiclick.chaos.sources import SourceWatch
from aaiclick.chaos.strikes import Strikes
from aaiclick.chaos.verdict import MOST_RECOVERY_SECONDS, Verdict
from aaiclick.chaos.watch import missing_lines
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.sweeper import TableSweeper
from aaiclick.scratch import scratch_directory
from aaiclick.store.engine import connect
from aaiclick.store.tables import release_jobs
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

REST_SECONDS = 300.0
"""How long everything may take to come to rest once the faults have ended."""
LEAST_RATIO = 0.5
OVER = "SELECT id FROM jobs WHERE completed_at IS NOT NULL"


@dataclass(frozen=True)
class Order:
    """What to do."""

    seed: int
    tasks: int
    seconds: float
    faults: Collection[str]
    workers: int = 2
    keep: Path | None = None
    calm_tasks: int = 0
    """Tasks of a calm run before, to compare with."""


@dataclass
class Report:
    """What happened."""

    verdict: Verdict
    strikes: Counter[str]
    seconds: float
    came_to_rest: bool
    swept: int
    warmed_up_by: int = 0
    """Tasks before the clock ran."""

    skipped: set[str] = field(default_factory=set[str])
    began: float = 0.0
    calm: Report | None = None

    @property
    def clean(self) -> bool:
        """Whether every guarantee held, also in the calm run before."""
        return self.verdict.clean and self.came_to_rest and (self.calm is None or self.calm.clean)

    @property
    def tasks_per_second(self) -> float:
        return (self.verdict.tasks - self.warmed_up_by) / self.seconds

    @property
    def ratio(self) -> float | None:
        """Of the throughput of the calm run."""
        return None if self.calm is None else self.tasks_per_second / self.calm.tasks_per_second

    @property
    def bulk_per_second(self) -> float:
        """Until 99 % were done: what a long run comes to, since the last few wait for leases and retries."""
        ends = [at for at in self.verdict.ends if at > self.began]
        count = int(0.99 * len(ends))
        return count / (ends[count - 1] - self.began) if count else 0.0

    def recovery_seconds(self, share: float) -> float | None:
        """How long tasks of a killed process took to begin again, of that share of them at most."""
        found = self.verdict.recoveries
        return found[min(len(found) - 1, int(share * len(found)))].seconds if found else None

    @property
    def bars_met(self) -> bool:
        """Whether it was also fast enough."""
        recovery = self.recovery_seconds(0.99)
        return (self.ratio is None or self.ratio >= LEAST_RATIO) and (
            recovery is None or recovery <= MOST_RECOVERY_SECONDS
        )


async def run(order: Order, say: Callable[[str], None]) -> Report:
    """Do all of it, in a directory that is removed unless it is to be kept."""
    async with workspace(order.keep) as directory:
        calm = None
        if order.calm_tasks and order.faults:
            say(f"A calm run of {order.calm_tasks:,} tasks, to compare with.")
            quiet = replace(order, tasks=order.calm_tasks, faults=(), calm_tasks=0)
            calm = await _run(quiet, directory / "calm", say)
            say(f"Calm: {calm.tasks_per_second:.0f} tasks/s. Now the same, broken.")
        report = await _run(order, directory / "broken" if calm else directory, say)
        return replace(report, calm=calm)


@contextlib.asynccontextmanager
async def workspace(keep: Path | None) -> AsyncGenerator[Path]:
    """A directory for servers, histories and logs."""
    with scratch_directory("aaiclick-chaos-") if keep is None else contextlib.nullcontext(keep) as directory:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory


async def _run(order: Order, directory: Path, say: Callable[[str], None]) -> Report:
    async with Scene(directory, order.workers, order.seed) as scene:
        await scene.warm_up()
        strikes = Strikes(scene, say)
        watch = scene.watch()
        sources = SourceWatch(scene.servers.postgres)
        watching = [asyncio.create_task(watch.run()), asyncio.create_task(sources.run())]
        began = time.monotonic()
        load = asyncio.create_task(scene.load(order.tasks))
        breaking = asyncio.create_task(strikes.run(schedule(order.seed, order.seconds, order.faults)))
        rested = await _wait(scene, load, began + order.seconds)
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        if not rested:
            say("Faults have ended; everything may come to rest.")
            await scene.calm()
            rested = await _wait(scene, load, time.monotonic() + REST_SECONDS)
        seconds = time.monotonic() - began
        refused = await end_load(load)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await sources.until_right()
        await watch.until_healthy()
        await watch.close()
        say(f"{'At rest' if rested else 'Not at rest'} after {seconds:.1f} s; looking at what is there.")
        report = await _judge(scene, strikes, seconds, rested)
        report.verdict.unexpected += [*refused, *watch.findings, *sources.findings]
        return replace(report, began=began)


async def _wait(scene: Scene, load: asyncio.Task[None], deadline: float) -> bool:
    """Until all is submitted and done, or the time is over; whether all is done."""
    while (left := deadline - time.monotonic()) > 0:
        if load.done():
            if await scene.rests(min(left, 1.0)):
                return True
        else:
            await asyncio.wait([load], timeout=min(left, 1.0))
    return False


async def end_load(load: asyncio.Task[None]) -> list[str]:
    """Clients submit no more; what one was told that it could not expect, such as that its job is not there."""
    load.cancel()
    await asyncio.wait([load])
    if load.cancelled() or load.exception() is None:
        return []
    errors = cast("ExceptionGroup[Exception]", load.exception()).exceptions
    return [f"a client was told: {type(error).__name__}: {error}" for error in errors]


async def _judge(scene: Scene, strikes: Strikes, seconds: float, rested: bool) -> Report:
    left = await scene.stop_workers()
    verdict, swept = await look(
        scene.servers.postgres, scene.servers.clickhouse, scene.history, calm=not strikes.counts
    )
    verdict.violated += [f"process {pid} outlived its worker" for pid in left]
    verdict.lost += missing_lines(scene.history)
    return Report(verdict, strikes.counts, seconds, rested, swept, scene.warmed_up_by, scene.skipped)


async def look(
    postgres: PostgresTarget, clickhouse: ClickHouseTarget, history: Path, *, calm: bool
) -> tuple[Verdict, int]:
    """Judge what is there, and how many tables nobody knew.

    What every job holds is let go of on the way, to see that nothing is left then. A table that was dropped too early
    shows only before that.
    """
    connection = await connect(postgres)
    try:
        client = await connect_clickhouse(clickhouse)
        before = [each for each in await violations(connection, client) if not each.startswith("I8")]
        swept = await _let_go(connection, postgres, clickhouse)
        verdict = await judge(connection, client, history)
    finally:
        await connection.close()
    if calm and swept:
        before.append(f"I8: {swept} tables were known to nobody, though nothing broke")
    verdict.violated = list(dict.fromkeys([*before, *verdict.violated]))
    return verdict, swept


async def _let_go(connection: Connection, postgres: PostgresTarget, clickhouse: ClickHouseTarget) -> int:
    """Jobs that are over hold nothing any more, and what nobody holds is dropped; returns what nobody knew."""
    await release_jobs(connection, [row["id"] for row in await connection.fetch(OVER)])
    await PgCleanupWorker(reclaim_seconds=0, postgres=postgres, clickhouse=clickhouse).run_once()
    sweeper = TableSweeper(0, postgres=postgres, clickhouse=clickhouse)
    return sum([await sweeper.run_once() for _ in range(2)])
