"""`aaiclick chaos`: break a whole installation of its own on purpose, and show that nothing is lost; or load one for
long, and show that nothing grows.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop

from aaiclick.chaos.run import LEAST_RATIO, Order, Report, run
from aaiclick.chaos.schedule import INTERVALS
from aaiclick.chaos.soak import KINDS, LEAST_SECONDS, PER_SECOND, Soaked, Trend, soak
from aaiclick.chaos.verdict import MOST_RECOVERY_SECONDS
from aaiclick.cli.kinds import Number
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.errors import EXIT_FAILED

T = TypeVar("T")
SHOWN = 5


@click.group()
def chaos() -> None:
    """Break it on purpose."""


@chaos.command("run")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides what is submitted and what breaks when.")
@click.option("--tasks", type=click.IntRange(1), default=20_000, show_default=True, help="Tasks to submit, about.")
@click.option(
    "--minutes",
    type=Number(0.1),
    default=5.0,
    show_default=True,
    help="How long things break, at most: it ends when all tasks are done.",
)
@click.option(
    "--faults", default=",".join(INTERVALS), show_default=True,
    help="Kinds of faults, with commas; 'none' for a calm run.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Workers to run.")
@click.option(
    "--calm-tasks", type=click.IntRange(0), default=0, show_default=True,
    help="First a calm run of so many tasks, to compare the throughput with.",
)  # fmt: skip
@click.option("--bars", is_flag=True, help="Exit code 1 also if it was too slow: throughput, recovery.")
@click.option("--keep", type=click.Path(path_type=Path), default=None, help="Directory for histories and logs, kept.")
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
    """Start servers and workers of their own, submit tasks, break things, and check that nothing is lost.

    Nothing of yours is touched. Exit code 1 if anything was lost, done twice, out of order or left over.
    """
    kinds = [] if faults == "none" else [each.strip() for each in faults.split(",") if each.strip()]
    unknown = [each for each in kinds if each not in INTERVALS]
    if unknown:
        raise click.BadParameter(f"there is no fault {unknown[0]!r}; there are {', '.join(INTERVALS)}.")
    order = Order(seed, tasks, minutes * 60, kinds, workers, keep, calm_tasks)
    report = _run(run(order, note))
    print_records(_records(report), output)
    for each in (report.calm, report):
        if each is not None:
            _tell(each)
    return 0 if report.clean and (report.bars_met or not bars) else EXIT_FAILED


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Whoever ends it, nothing of it is left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started to ignore it
    signal.signal(signal.SIGTERM, _interrupt)
    for name in ("asyncio", "asyncpg"):  # what they mutter about connections that were cut is what was ordered
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return uvloop.run(work)


def _interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _tell(report: Report) -> None:
    for kind, found in report.verdict.faults.items():
        for finding in found[:SHOWN]:
            note(f"{kind}: {finding}")
        if len(found) > SHOWN:
            note(f"{kind}: … and {len(found) - SHOWN} more")
    for each in report.verdict.slow:
        note(f"slow: {each}")
    if not report.came_to_rest:
        note("It did not come to rest: something is unfinished and does not go on.")
    for each in sorted(report.skipped):
        note(f"Not done: {each}.")


def _records(report: Report) -> list[dict[str, object]]:
    verdict = report.verdict
    records = [_record(kind, len(found), 0, not found) for kind, found in verdict.faults.items()]
    records.append(_record("came to rest", "yes" if report.came_to_rest else "no", "yes", report.came_to_rest))
    if report.calm is not None and report.ratio is not None:
        slow = report.ratio < LEAST_RATIO
        records += [
            _record("found in the calm run", sum(map(len, report.calm.verdict.faults.values())), 0, report.calm.clean),
            _record("calm tasks per second", round(report.calm.tasks_per_second, 1)),
            _record("throughput, of calm", round(report.ratio, 2), f">= {LEAST_RATIO}", not slow),
            _record("… until 99 % were done", round(report.bulk_per_second / report.calm.bulk_per_second, 2)),
        ]
    p50, p99 = report.recovery_seconds(0.5), report.recovery_seconds(0.99)
    if p50 is not None and p99 is not None:
        bar = f"<= {MOST_RECOVERY_SECONDS:g}"
        records += [
            _record("recovery p50 seconds", round(p50, 1)),
            _record("recovery p99 seconds", round(p99, 1), bar, p99 <= MOST_RECOVERY_SECONDS),
        ]
    figures: dict[str, object] = {
        "tasks per second": round(report.tasks_per_second, 1),
        "seconds": round(report.seconds, 1),
        "tasks": verdict.tasks,
        "jobs": verdict.jobs,
        "recovered": verdict.recovered,
        "recoveries after a kill": len(verdict.recoveries),
        "… struck again meanwhile": verdict.struck_again,
        "tables swept": report.swept,
        "faults": ", ".join(f"{kind} {times}" for kind, times in sorted(report.strikes.items())) or "none",
    }
    return [*records, *(_record(what, figure) for what, figure in figures.items())]


def _record(what: str, figure: object, bar: object = "", met: bool | None = None) -> dict[str, object]:
    return {"what": what, "figure": figure, "bar": bar, "met": "" if met is None else "yes" if met else "NO"}


@chaos.command("soak")
@click.option("--minutes", type=Number(0.1), default=60.0, show_default=True, help="How long.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides what is submitted.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Workers to run.")
@click.option(
    "--rate", type=Number(1), default=PER_SECOND, show_default=True,
    help="Tasks a second; what the machine cannot keep up with is no steady load.",
)  # fmt: skip
@click.option("--keep", type=click.Path(path_type=Path), default=None, help="Directory for histories and logs, kept.")
@output_option
def soak_command(minutes: float, seed: int, workers: int, rate: float, keep: Path | None, output: str) -> int:
    """Load servers and workers of their own steadily, and check that nothing grows.

    Memory and file handles of each process, connections, rows, dead tuples, ClickHouse tables, logs. Nothing of yours
    is touched. Exit code 1 if a figure grows, or if less than nine tenths of the load were done. What is shorter than
    ten minutes is not judged.
    """
    soaked = _run(soak(minutes * 60, note, seed=seed, workers=workers, per_second=rate, keep=keep))
    print_records([_trend_record(trend, soaked.judged) for trend in soaked.trends], output)
    note(_summary(soaked))
    return 0 if soaked.flat and soaked.kept_up else EXIT_FAILED


def _summary(soaked: Soaked) -> str:
    rate = f"{soaked.tasks:,} tasks in {soaked.seconds:,.0f} s"
    if not soaked.judged:
        return f"{rate}: too short to judge, a line can be fitted from {LEAST_SECONDS / 60:.0f} minutes on."
    if not soaked.kept_up:
        return f"{rate}, and not {soaked.least_tasks:,}: too little was done to say that nothing grows."
    growing = [f"{trend.kind} of {trend.of}" for trend in soaked.trends if trend.grows]
    return f"{rate}: it grows: {'; '.join(growing)}." if growing else f"{rate}: nothing grows."


def _trend_record(trend: Trend, judged: bool) -> dict[str, object]:
    kind = KINDS[trend.kind]
    unit = f" {kind.unit}" if kind.unit else ""
    return {
        "figure": trend.kind + unit,
        "of": trend.of,
        "first": round(trend.first, 1),
        "last": round(trend.last, 1),
        "gained": round(trend.gained, 2),
        "grows": "" if not judged else "YES" if trend.grows else "no",
    }
