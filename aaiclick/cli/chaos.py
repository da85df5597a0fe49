"""`aaiclick chaos`: fault injection and soak tests of a separate installation."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import click
import uvloop

from aaiclick.chaos.fault_schedule import INTERVALS
from aaiclick.chaos.result import MAX_RECOVERY_SECONDS
from aaiclick.chaos.run import MIN_RATIO, ChaosReport, RunOptions, run_chaos
from aaiclick.chaos.soak import METRIC_LIMITS, MIN_SECONDS, PER_SECOND, SoakResult, Trend, run_soak
from aaiclick.cli.output import output_option, print_message, print_records
from aaiclick.cli.param_types import Number
from aaiclick.errors import EXIT_FAILED

T = TypeVar("T")
MAX_EXAMPLES = 5


@click.group()
def chaos() -> None:
    """Test a separate installation with injected faults or steady load.

    \b
    aaiclick chaos run
    """


@chaos.command("run")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the workload and the faults.")
@click.option(
    "--tasks", type=click.IntRange(1), default=20_000, show_default=True, help="Approximate number of tasks to submit."
)
@click.option(
    "--minutes",
    type=Number(0.1),
    default=5.0,
    show_default=True,
    help="Maximum duration of the faults; the run ends when all tasks are done.",
)
@click.option(
    "--faults", default=",".join(INTERVALS), show_default=True,
    help="Kinds of faults, separated by commas; 'none' for a run without faults.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Workers to run.")
@click.option(
    "--calm-tasks", type=click.IntRange(0), default=0, show_default=True,
    help="Tasks of a first run without faults, to compare the throughput with.",
)  # fmt: skip
@click.option("--bars", is_flag=True, help="Exit code 1 also if throughput or recovery time misses its target.")
@click.option(
    "--keep", type=click.Path(path_type=Path), default=None, help="Directory in which histories and logs are kept."
)
@output_option
def run_command(
    seed: int,
    tasks: int,
    minutes: float,
    faults: str,
    workers: int,
    calm_tasks: int,
    bars: bool,
    keep: Path | None,
    output: str,
) -> int:
    """Start separate servers and workers, submit tasks, inject faults, and check that nothing is lost.

    Your own installation is not used. Exit code 1 if a task was lost, repeated, out of order or left over.
    """
    fault_kinds = (
        [] if faults == "none" else [kind_name.strip() for kind_name in faults.split(",") if kind_name.strip()]
    )
    unknown = [kind_name for kind_name in fault_kinds if kind_name not in INTERVALS]
    if unknown:
        raise click.BadParameter(f"unknown fault {unknown[0]!r}; choose from {', '.join(INTERVALS)}.")
    options = RunOptions(seed, tasks, minutes * 60, fault_kinds, workers, keep, calm_tasks)
    report = _run_interruptible(run_chaos(options, print_message))
    print_records(_build_records(report), output)
    for kind_name in (report.calm, report):
        if kind_name is not None:
            _print_findings(kind_name)
    return 0 if report.is_clean and (report.meets_targets or not bars) else EXIT_FAILED


def _run_interruptible(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine so that SIGINT and SIGTERM interrupt it and its clean-up runs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with SIGINT ignored
    signal.signal(signal.SIGTERM, _interrupt)
    for name in ("asyncio", "asyncpg"):  # their warnings about lost connections are expected
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return uvloop.run(coroutine)


def _interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _print_findings(report: ChaosReport) -> None:
    for check, findings in report.result.findings_by_kind.items():
        for finding in findings[:MAX_EXAMPLES]:
            print_message(f"{check}: {finding}")
        if len(findings) > MAX_EXAMPLES:
            print_message(f"{check}: … and {len(findings) - MAX_EXAMPLES} more")
    for slow_recovery in report.result.slow:
        print_message(f"slow: {slow_recovery}")
    if not report.became_idle:
        print_message("The queue did not become idle: unfinished tasks make no progress.")
    for fault in sorted(report.skipped):
        print_message(f"Skipped: {fault}.")


def _build_records(report: ChaosReport) -> list[dict[str, object]]:
    result = report.result
    records = [
        _build_record(name, len(findings), 0, not findings) for name, findings in result.findings_by_kind.items()
    ]
    records.append(_build_record("became idle", "yes" if report.became_idle else "no", "yes", report.became_idle))
    if report.calm is not None and report.ratio is not None:
        slow = report.ratio < MIN_RATIO
        records += [
            _build_record(
                "findings of the calm run",
                sum(map(len, report.calm.result.findings_by_kind.values())),
                0,
                report.calm.is_clean,
            ),
            _build_record("calm tasks per second", round(report.calm.tasks_per_second, 1)),
            _build_record("throughput relative to calm run", round(report.ratio, 2), f">= {MIN_RATIO}", not slow),
            _build_record(
                "… until 99 % of tasks were done", round(report.bulk_per_second / report.calm.bulk_per_second, 2)
            ),
        ]
    p50, p99 = report.recovery_seconds(0.5), report.recovery_seconds(0.99)
    if p50 is not None and p99 is not None:
        target = f"<= {MAX_RECOVERY_SECONDS:g}"
        records += [
            _build_record("recovery p50 seconds", round(p50, 1)),
            _build_record("recovery p99 seconds", round(p99, 1), target, p99 <= MAX_RECOVERY_SECONDS),
        ]
    metrics: dict[str, object] = {
        "tasks per second": round(report.tasks_per_second, 1),
        "seconds": round(report.seconds, 1),
        "tasks": result.tasks,
        "jobs": result.jobs,
        "incidents": result.incidents,
        "messages about incidents": result.messages,
        "recovered": result.recovered,
        "recoveries after a kill": len(result.recoveries),
        "… hit by another fault": result.faulted_again,
        "tables swept": report.swept,
        "faults": ", ".join(f"{name} {times}" for name, times in sorted(report.faults.items())) or "none",
    }
    return [*records, *(_build_record(metric, value) for metric, value in metrics.items())]


def _build_record(metric: str, value: object, target: object = "", met: bool | None = None) -> dict[str, object]:
    return {"what": metric, "figure": value, "bar": target, "met": "" if met is None else "yes" if met else "NO"}


@chaos.command("soak")
@click.option("--minutes", type=Number(0.1), default=60.0, show_default=True, help="Duration.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the workload.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Workers to run.")
@click.option(
    "--rate", type=Number(1), default=PER_SECOND, show_default=True,
    help="Tasks per second; choose a rate that the machine can sustain.",
)  # fmt: skip
@click.option(
    "--keep", type=click.Path(path_type=Path), default=None, help="Directory in which histories and logs are kept."
)
@output_option
def soak_command(minutes: float, seed: int, workers: int, rate: float, keep: Path | None, output: str) -> int:
    """Run separate servers and workers under steady load, and check that resource use does not grow.

    Checks memory and file handles of each process, connections, rows, dead tuples, ClickHouse tables and logs. Your
    own installation is not used. Exit code 1 if a metric grows, or if less than 90 % of the load was processed. Runs
    of less than ten minutes give no verdict.
    """
    result = _run_interruptible(
        run_soak(minutes * 60, print_message, seed=seed, workers=workers, per_second=rate, keep=keep)
    )
    print_records([_trend_record(trend, result.is_conclusive) for trend in result.trends], output)
    print_message(_summarize_soak(result))
    return 0 if result.is_flat and result.has_kept_up else EXIT_FAILED


def _summarize_soak(result: SoakResult) -> str:
    rate = f"{result.tasks:,} tasks in {result.seconds:,.0f} s"
    if not result.is_conclusive:
        return f"{rate}: too short for a verdict; run at least {MIN_SECONDS / 60:.0f} minutes."
    if not result.has_kept_up:
        return f"{rate}, less than the required {result.min_tasks:,}: no verdict on growth."
    growing = [f"{trend.metric} of {trend.subject}" for trend in result.trends if trend.grows]
    return f"{rate}: growing: {'; '.join(growing)}." if growing else f"{rate}: no metric grows."


def _trend_record(trend: Trend, judged: bool) -> dict[str, object]:
    limits = METRIC_LIMITS[trend.metric]
    unit = f" {limits.unit}" if limits.unit else ""
    return {
        "figure": trend.metric + unit,
        "of": trend.subject,
        "first": round(trend.first, 1),
        "last": round(trend.last, 1),
        "gained": round(trend.gained, 2),
        "grows": "" if not judged else "YES" if trend.grows else "no",
    }
