"""Precision and recall of "will be late", on simulated runs with known outcomes.

    python -m bench.late_forecast [--days 400] [--seed 1]

Each of 20 DAGs runs daily: a source at 05:00 and two to four definitions after each other. Durations are log-normal
around the median of each definition. On one day of ten something goes wrong: workers are missing for a while, one
definition takes two to four times as long, or one fails and is started again after half an hour. The deadline is 15 to
60 minutes after the usual end. A forecast is made some minutes before the deadline, with the last ten runs; it is right
if the last dataset was updated after the deadline. Days that end before the forecast count as right predictions of
"not late".
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from aaiclick.catalog.freshness_forecast import FreshnessForecaster
from aaiclick.store.catalog.freshness import DefinitionRun, FreshnessRow

FIRST = datetime(2026, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)
LEADS = (60, 30, 15, 5)
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
        visible = [attempt for attempt in attempts[-12:] if attempt.created_at <= now][-10:]
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


def count_outcomes(days: int, seed: int) -> dict[int, Counter[tuple[bool, bool]]]:
    """Return the number of (predicted, late) by minutes before the deadline."""
    random_ = random.Random(seed)
    counts: dict[int, Counter[tuple[bool, bool]]] = {lead: Counter() for lead in LEADS}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("minutes before the deadline | days | late | predicted | precision | recall")
    for lead, counts in count_outcomes(options.days, options.seed).items():
        right, predicted = counts[True, True], counts[True, True] + counts[True, False]
        late = right + counts[False, True]
        print(f"{lead} | {sum(counts.values())} | {late} | {predicted} | {right / predicted:.2f} | {right / late:.2f}")


if __name__ == "__main__":
    main()
