"""Precision and recall of "will be late", on recorded and on simulated runs with known outcomes.

    python -m bench.late_forecast [--days 400] [--seed 1] [--recording tests/unit/catalog/recorded_runs.json]

The recording (`bench.record_runs`) has runs of seconds. The deadline is half of the usual duration after the usual end.

Simulated: each of 20 DAGs runs daily: a source at 05:00 and two to four definitions after each other. Durations are
log-normal around the median of each definition. On one day of ten something goes wrong: workers are missing for a
while, one definition takes two to four times as long, or one fails and is started again after half an hour. The
deadline is 15 to 60 minutes after the usual end. A forecast is made some minutes before the deadline, with the last
ten runs; it is right if the last dataset was updated after the deadline. Days that end before the forecast count as
right predictions of "not late".
"""

from __future__ import annotations

import argparse
import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from aaiclick.catalog.freshness_forecast import FreshnessForecaster
from aaiclick.store.catalog.freshness import DefinitionRun, FreshnessRow

FIRST = datetime(2026, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)
LEADS = (60.0, 30.0, 15.0, 5.0)
RECORDED_LEADS = (3.0, 2.0, 1.0, 0.5)
RECORDING = Path(__file__).parents[1] / "tests/unit/catalog/recorded_runs.json"
TROUBLES = ("no workers", "slow", "failure")


@dataclass(frozen=True)
class Attempt:
    created_at: datetime
    started_at: datetime
    completed_at: datetime
    failed: bool = False


@dataclass
class Pipeline:
    """A chain of definitions with their attempts, oldest first."""

    medians: list[float]
    margin: float
    attempts: list[list[Attempt]] = field(default_factory=list[list[Attempt]])

    def run_day(self, random_: random.Random, start: datetime) -> datetime:
        """Simulate a day; return when the last dataset was updated."""
        trouble = random_.choice(TROUBLES) if random_.random() < 0.1 else None
        troubled = random_.randrange(len(self.medians))
        moment = start
        for number, usual in enumerate(self.medians):
            minutes = usual * random_.lognormvariate(0, 0.25)
            created_at = moment
            if number == troubled and trouble == "no workers":
                moment += timedelta(minutes=random_.uniform(10, 120))
            if number == troubled and trouble == "slow":
                minutes *= random_.uniform(2, 4)
            if number == troubled and trouble == "failure":
                end = moment + timedelta(minutes=minutes * random_.random())
                self.attempts[number].append(Attempt(created_at, moment, end, failed=True))
                moment = created_at = end + timedelta(minutes=30)
            end = moment + timedelta(minutes=minutes)
            self.attempts[number].append(Attempt(created_at, moment, end))
            moment = end
        return moment


def list_runs(pipeline: Pipeline, now: datetime, next_run_at: datetime) -> list[DefinitionRun]:
    """Return what the database shows at a moment."""
    runs: list[DefinitionRun] = []
    for number, attempts in enumerate(pipeline.attempts):
        count = bisect_right(attempts, now, key=lambda attempt: attempt.created_at)
        visible = attempts[max(0, count - 10) : count]
        for attempt in reversed(visible):
            started, ended = attempt.started_at <= now, attempt.completed_at <= now
            status = ("FAILED" if attempt.failed else "COMPLETED") if ended else "RUNNING" if started else "PENDING"
            runs.append(
                DefinitionRun(
                    UUID(int=number), "dag", f"job{number}", "reactive" if number else "source",
                    [f"{number - 1}"] if number else [], [f"{number}"], None if number else next_run_at, None, 1,
                    status, attempt.created_at, attempt.started_at if started else None,
                    attempt.completed_at if ended else None, None,
                )
            )  # fmt: skip
    return runs


def count_outcomes(days: int, seed: int) -> dict[float, Counter[tuple[bool, bool]]]:
    """Return the number of (predicted, late) by minutes before the deadline."""
    random_ = random.Random(seed)
    counts: dict[float, Counter[tuple[bool, bool]]] = {lead: Counter() for lead in LEADS}
    for _ in range(20):
        medians = [random_.uniform(2, 40) for _ in range(random_.randint(3, 5))]
        pipeline = Pipeline(medians, random_.uniform(15, 60), [[] for _ in medians])
        due_after = timedelta(minutes=sum(medians) + pipeline.margin)
        for day in range(days):
            start = FIRST + day * DAY
            updated_at = pipeline.run_day(random_, start)
            due_at = start + due_after
            for lead in LEADS if day >= 10 else ():
                now = due_at - timedelta(minutes=lead)
                predicted = updated_at > now and _is_predicted(pipeline, due_at, now, start + DAY)
                counts[lead][predicted, updated_at > due_at] += 1
    return counts


def _is_predicted(pipeline: Pipeline, due_at: datetime, now: datetime, next_run_at: datetime) -> bool:
    last = str(len(pipeline.medians) - 1)
    row = FreshnessRow(last, last, "dag", "job", None, "07:00", "UTC", "*", None, due_at, now)  # pyright: ignore[reportArgumentType]
    runs = list_runs(pipeline, now, next_run_at)
    return FreshnessForecaster(runs, {}, shows_errors=True).judge(row).state == "will be late"


def load_recording(path: Path) -> tuple[timedelta, list[Pipeline]]:
    """Load a recording: the time between two runs, and the DAGs."""
    recording: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    pipelines: list[Pipeline] = []
    for steps in recording["dags"]:
        attempts = [[_parse_attempt(times) for times in sorted(step)] for step in steps]
        seconds = [
            median((a.completed_at - a.created_at).total_seconds() for a in step if not a.failed) for step in attempts
        ]
        pipelines.append(Pipeline(seconds, sum(seconds) / 2, attempts))
    return timedelta(milliseconds=recording["period_ms"]), pipelines


def _parse_attempt(times: Sequence[int]) -> Attempt:
    created_at, started_at, completed_at = (FIRST + timedelta(milliseconds=value) for value in times[:3])
    return Attempt(created_at, started_at, completed_at, bool(times[3]))


def judge_recording(path: Path) -> dict[float, Counter[tuple[bool, bool]]]:
    """Return the number of (predicted, late) by seconds before the deadline; the first ten runs are not judged."""
    period, pipelines = load_recording(path)
    counts: dict[float, Counter[tuple[bool, bool]]] = {lead: Counter() for lead in RECORDED_LEADS}
    for pipeline in pipelines:
        updates = sorted(attempt.completed_at for attempt in pipeline.attempts[-1] if not attempt.failed)
        due_after = timedelta(seconds=sum(pipeline.medians) + pipeline.margin)
        for number in range(10, round((updates[-1] - FIRST) / period) - 1):
            due_at = FIRST + number * period + due_after
            update = next(moment for moment in updates if moment > due_at - period)
            for lead in RECORDED_LEADS:
                now = due_at - timedelta(seconds=lead)
                next_run_at = FIRST + ((now - FIRST) // period + 1) * period
                predicted = update > now and _is_predicted(pipeline, due_at, now, next_run_at)
                counts[lead][predicted, update > due_at] += 1
    return counts


def measure_quality(counts: Counter[tuple[bool, bool]]) -> tuple[float, float]:
    """Return precision and recall."""
    right = counts[True, True]
    return right / (right + counts[True, False]), right / (right + counts[False, True])


def print_quality(heading: str, outcomes: Mapping[float, Counter[tuple[bool, bool]]]) -> None:
    print(f"{heading} | judged | late | predicted | precision | recall")
    for lead, counts in outcomes.items():
        precision, recall = measure_quality(counts)
        late, predicted = (sum(n for key, n in counts.items() if key[index]) for index in (1, 0))
        print(f"{lead:g} | {sum(counts.values())} | {late} | {predicted} | {precision:.2f} | {recall:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    options = parser.parse_args()
    print_quality("recorded: seconds before the deadline", judge_recording(options.recording))
    print_quality("simulated: minutes before the deadline", count_outcomes(options.days, options.seed))


if __name__ == "__main__":
    main()
