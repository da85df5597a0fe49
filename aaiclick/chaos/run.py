"""One chaos run: start everything, apply load, inject scheduled faults, wait until idle, and check the result.

Throughput under faults is compared with a baseline run of the same load without faults, just before.
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

from aaiclick.chaos.checker import check_run, find_violations
from aaiclick.chaos.environment import ChaosEnvironment
from aaiclick.chaos.fault_schedule import make_schedule
from aaiclick.chaos.faults import FaultInjector
from aaiclick.chaos.observability_check import find_missing_lines
from aaiclick.chaos.result import MAX_RECOVERY_SECONDS, CheckResult
from aaiclick.chaos.source_states import SourceMonitor
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.loops.table_sweeper import TableSweeper
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tables.table_references import release_jobs
from aaiclick.tempdirs import temporary_directory

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

IDLE_SECONDS = 300.0
"""Timeout until all work is done after the last fault."""
MIN_RATIO = 0.5
FINISHED_JOBS = "SELECT id FROM jobs WHERE completed_at IS NOT NULL"


@dataclass(frozen=True)
class RunOptions:
    """Options of a run."""

    seed: int
    tasks: int
    seconds: float
    faults: Collection[str]
    workers: int = 2
    keep: Path | None = None
    calm_tasks: int = 0
    """Tasks of the baseline run without faults."""


@dataclass
class ChaosReport:
    """Result of a run."""

    result: CheckResult
    faults: Counter[str]
    seconds: float
    became_idle: bool
    swept: int
    warm_up_tasks: int = 0
    """Tasks of the warm-up, before the measurement."""

    skipped: set[str] = field(default_factory=set[str])
    began: float = 0.0
    calm: ChaosReport | None = None

    @property
    def is_clean(self) -> bool:
        """Whether every guarantee held, also in the baseline run."""
        return self.result.is_clean and self.became_idle and (self.calm is None or self.calm.is_clean)

    @property
    def tasks_per_second(self) -> float:
        return (self.result.tasks - self.warm_up_tasks) / self.seconds

    @property
    def ratio(self) -> float | None:
        """Throughput relative to the baseline run."""
        return None if self.calm is None else self.tasks_per_second / self.calm.tasks_per_second

    @property
    def bulk_per_second(self) -> float:
        """Throughput until 99 % were done, as in a long run; the last few wait for leases and retries."""
        ends = [at for at in self.result.ends if at > self.began]
        count = int(0.99 * len(ends))
        return count / (ends[count - 1] - self.began) if count else 0.0

    def recovery_seconds(self, share: float) -> float | None:
        """Return the quantile of recovery times of tasks of killed processes."""
        recoveries = self.result.recoveries
        return recoveries[min(len(recoveries) - 1, int(share * len(recoveries)))].seconds if recoveries else None

    @property
    def meets_targets(self) -> bool:
        """Whether throughput and recovery meet their targets."""
        recovery = self.recovery_seconds(0.99)
        return (self.ratio is None or self.ratio >= MIN_RATIO) and (
            recovery is None or recovery <= MAX_RECOVERY_SECONDS
        )


async def run_chaos(options: RunOptions, log: Callable[[str], None]) -> ChaosReport:
    """Run everything in a directory that is removed unless it is to be kept."""
    async with workspace(options.keep) as directory:
        calm = None
        if options.calm_tasks and options.faults:
            log(f"Baseline run of {options.calm_tasks:,} tasks, without faults.")
            baseline = replace(options, tasks=options.calm_tasks, faults=(), calm_tasks=0)
            calm = await _run_once(baseline, directory / "calm", log)
            log(f"Baseline: {calm.tasks_per_second:.0f} tasks/s. Now with faults.")
        report = await _run_once(options, directory / "broken" if calm else directory, log)
        return replace(report, calm=calm)


@contextlib.asynccontextmanager
async def workspace(keep: Path | None) -> AsyncGenerator[Path]:
    """A directory for servers, histories and logs."""
    with temporary_directory("aaiclick-chaos-") if keep is None else contextlib.nullcontext(keep) as directory:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory


async def _run_once(options: RunOptions, directory: Path, log: Callable[[str], None]) -> ChaosReport:
    async with ChaosEnvironment(directory, options.workers, options.seed) as environment:
        await environment.warm_up()
        injector = FaultInjector(environment, log)
        monitor = environment.make_monitor()
        sources = SourceMonitor(environment.servers.postgres)
        monitors = [asyncio.create_task(monitor.run()), asyncio.create_task(sources.run())]
        started_at = time.monotonic()
        load = asyncio.create_task(environment.run_load(options.tasks))
        fault_task = asyncio.create_task(injector.run(make_schedule(options.seed, options.seconds, options.faults)))
        is_idle = await _wait_until_idle(environment, load, started_at + options.seconds)
        fault_task.cancel()
        await asyncio.gather(fault_task, return_exceptions=True)
        if not is_idle:
            log("Faults have ended; waiting until all work is done.")
            await environment.restore()
            is_idle = await _wait_until_idle(environment, load, time.monotonic() + IDLE_SECONDS)
        seconds = time.monotonic() - started_at
        errors = await stop_load(load)
        for task in monitors:
            task.cancel()
        await asyncio.gather(*monitors, return_exceptions=True)
        await sources.wait_until_consistent()
        await monitor.wait_until_healthy()
        await monitor.close()
        log(f"{'Idle' if is_idle else 'Not idle'} after {seconds:.1f} s; checking the result.")
        report = await _check_result(environment, injector, seconds, is_idle)
        report.result.unexpected += [*errors, *monitor.findings, *sources.findings]
        return replace(report, began=started_at)


async def _wait_until_idle(environment: ChaosEnvironment, load: asyncio.Task[None], deadline: float) -> bool:
    """Wait until all is submitted and done, or the deadline; return whether all is done."""
    while (remaining := deadline - time.monotonic()) > 0:
        if load.done():
            if await environment.wait_until_idle(min(remaining, 1.0)):
                return True
        else:
            await asyncio.wait([load], timeout=min(remaining, 1.0))
    return False


async def stop_load(load: asyncio.Task[None]) -> list[str]:
    """Stop the clients; return errors that a client did not expect, such as a missing job."""
    load.cancel()
    await asyncio.wait([load])
    if load.cancelled() or load.exception() is None:
        return []
    error = load.exception()
    errors = cast("ExceptionGroup[Exception]", error).exceptions if isinstance(error, ExceptionGroup) else [error]
    return [f"unexpected error of a client: {type(error).__name__}: {error}" for error in errors]


async def _check_result(
    environment: ChaosEnvironment, injector: FaultInjector, seconds: float, is_idle: bool
) -> ChaosReport:
    remaining = await environment.stop_workers()
    result, swept = await check_databases(
        environment.servers.postgres, environment.servers.clickhouse, environment.history, calm=not injector.counts
    )
    result.violated += [f"process {pid} outlived its worker" for pid in remaining]
    result.lost += find_missing_lines(environment.history)
    return ChaosReport(result, injector.counts, seconds, is_idle, swept, environment.warm_up_tasks, environment.skipped)


async def check_databases(
    postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint, history: Path, *, calm: bool
) -> tuple[CheckResult, int]:
    """Check the databases; return the result and the number of tables without a reference.

    References of finished jobs are released on the way, to check that nothing is left then. A table that was dropped
    too early is only detected before that.
    """
    connection = await connect(postgres)
    try:
        client = await connect_clickhouse(clickhouse)
        violations = [
            violation for violation in await find_violations(connection, client) if not violation.startswith("I8")
        ]
        swept = await _release_tables(connection, postgres, clickhouse)
        result = await check_run(connection, client, history)
    finally:
        await connection.close()
    if calm and swept:
        violations.append(f"I8: {swept} tables had no reference, without any fault")
    result.violated = list(dict.fromkeys([*violations, *result.violated]))
    return result, swept


async def _release_tables(connection: Connection, postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint) -> int:
    """Release the references of finished jobs and drop unreferenced tables; return how many were unknown."""
    await release_jobs(connection, [row["id"] for row in await connection.fetch(FINISHED_JOBS)])
    await PgCleanupWorker(reclaim_seconds=0, postgres=postgres, clickhouse=clickhouse).run_once()
    sweeper = TableSweeper(0, postgres=postgres, clickhouse=clickhouse)
    return sum([await sweeper.run_once() for _ in range(2)])
