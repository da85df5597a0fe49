"""`aaiclick chaos run`: break a whole installation of its own on purpose, and show that nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from aaiclick.chaos.run import Order, Report, percentile, run
from aaiclick.chaos.schedule import INTERVALS
from aaiclick.cli.output import note, output_option, print_records
from aaiclick.errors import EXIT_FAILED

SHOWN = 5


@click.group()
def chaos() -> None:
    """Break it on purpose."""


@chaos.command("run")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides what is submitted and what breaks when.")
@click.option("--tasks", type=click.IntRange(1), default=20_000, show_default=True, help="Tasks to submit, about.")
@click.option("--minutes", type=click.FloatRange(0.1), default=5.0, show_default=True, help="How long things break.")
@click.option(
    "--faults", default=",".join(INTERVALS), show_default=True,
    help="Kinds of faults, with commas; 'none' for a calm run.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Workers to run.")
@click.option("--keep", type=click.Path(path_type=Path), default=None, help="Directory for histories and logs, kept.")
@output_option
def run_command(
    seed: int, tasks: int, minutes: float, faults: str, workers: int, keep: Path | None, output: str
) -> int:
    """Start servers and workers of their own, submit tasks, break things, and check that nothing is lost.

    Nothing of yours is touched. Exit code 1 if anything was lost, done twice, out of order or left over.
    """
    kinds = [] if faults == "none" else [each.strip() for each in faults.split(",") if each.strip()]
    unknown = [each for each in kinds if each not in INTERVALS]
    if unknown:
        raise click.BadParameter(f"there is no fault {unknown[0]!r}; there are {', '.join(INTERVALS)}.")
    order = Order(seed, tasks, minutes * 60, kinds, workers, keep)
    report = asyncio.run(run(order, note))
    print_records(_records(report), output)
    for kind, found in report.verdict.faults.items():
        for finding in found[:SHOWN]:
            note(f"{kind}: {finding}")
        if len(found) > SHOWN:
            note(f"{kind}: … and {len(found) - SHOWN} more")
    if not report.came_to_rest:
        note("It did not come to rest: something is unfinished and does not go on.")
    for each in sorted(set(report.skipped)):
        note(f"Not done: {each}.")
    return 0 if report.clean else EXIT_FAILED


def _records(report: Report) -> list[dict[str, object]]:
    verdict = report.verdict
    recovery = [percentile(verdict.recovery_seconds, share) for share in (0.5, 0.99)]
    figures: dict[str, object] = {
        **{kind: len(found) for kind, found in verdict.faults.items()},
        "recovered": verdict.recovered,
        "tasks": verdict.tasks,
        "jobs": verdict.jobs,
        "seconds": round(report.seconds, 1),
        "tasks per second": round(verdict.tasks / report.seconds, 1),
        "recovery p50 / p99 seconds": " / ".join(f"{each:.1f}" for each in recovery),
        "tables swept": report.swept,
        "faults": ", ".join(f"{kind} {times}" for kind, times in sorted(report.strikes.items())) or "none",
    }
    return [{"what": what, "figure": figure} for what, figure in figures.items()]
