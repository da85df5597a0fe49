"""States of datasets with a freshness policy, and the causes of a delay, from the recent runs of definitions.

A dataset is late when its update is overdue. It will be late if the update that is expected next, by the medians of
the recent runs on the path to it, ends after it is due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo

from aaiclick.errors import headline
from aaiclick.store.catalog import freshness
from aaiclick.store.catalog.datasets import Reader
from aaiclick.store.catalog.freshness import DefinitionRun, FreshnessRow

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

FreshnessState = Literal["fresh", "late", "will be late"]
MAX_CAUSES = 10
PAGE_ROWS = 1_000
"""Datasets that are judged at once, with the runs of the definitions that they are computed by."""

FORECAST_SECONDS = 86_400.0
"""After now and the last scheduled start: datasets that are due later are not listed as `will be late`."""

MAX_COUNTED = 10_000

OVERRUN_FACTOR = 1.25
"""A run that takes longer than all recent ones is expected to take a quarter longer still."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """State of a dataset, when its next update is expected (None: unknown), and why it is or will be late."""

    state: FreshnessState
    expected_at: datetime | None
    causes: tuple[str, ...] = ()


@dataclass
class Producer:
    """A serving definition with its recent runs, newest first."""

    name: str
    activation: str
    inputs: list[str]
    next_run_at: datetime | None
    paused_at: datetime | None
    runs: list[DefinitionRun] = field(default_factory=list[DefinitionRun])

    @property
    def open_run(self) -> DefinitionRun | None:
        return next((run for run in self.runs if run.completed_at is None), None)

    @property
    def typical_duration(self) -> timedelta:
        """The median of the recent completed runs."""
        return timedelta(seconds=median(self._durations) if self._durations else 0)

    def expect_duration(self, elapsed: timedelta) -> timedelta:
        """Return the expected duration of a run that is open for so long: the median of the runs that took longer."""
        longer = [seconds for seconds in self._durations if seconds > elapsed.total_seconds()]
        if longer:
            return timedelta(seconds=median(longer))
        return elapsed * OVERRUN_FACTOR if self._durations else elapsed

    @cached_property
    def _durations(self) -> list[float]:
        return [
            (run.completed_at - run.started_at).total_seconds()
            for run in self.runs
            if run.status == "COMPLETED" and run.completed_at is not None and run.started_at is not None
        ]


class FreshnessForecaster:
    """Judges datasets by the recent runs of all serving definitions of an organisation."""

    def __init__(self, runs: Iterable[DefinitionRun], names: Mapping[str, str], *, shows_errors: bool) -> None:
        """`names` are the names of the datasets that the reader may read, by id; others are not named."""
        self._names = names
        self._shows_errors = shows_errors
        self._producers: dict[str, Producer] = {}
        self._expected: dict[str, datetime | None] = {}
        self._now: datetime | None = None
        by_definition: dict[object, list[DefinitionRun]] = defaultdict(list)
        for run in runs:
            by_definition[run.definition_id].append(run)
        for definition_runs in by_definition.values():
            first = definition_runs[0]
            producer = Producer(
                f"{first.dag}.{first.job}", first.activation, first.inputs, first.next_run_at, first.paused_at,
                [run for run in definition_runs if run.id is not None],
            )  # fmt: skip
            self._producers |= dict.fromkeys(first.outputs, producer)

    def judge(self, row: FreshnessRow) -> Forecast:
        """Return the state of a dataset; causes only if it is or will be late."""
        dataset = str(row.dataset_uuid)
        expected_at = self._expect_update(dataset, row.now)
        if row.is_late:
            return Forecast("late", expected_at, self._explain(dataset, row))
        if expected_at is not None and expected_at > row.due_at:
            return Forecast("will be late", expected_at, self._explain(dataset, row))
        return Forecast("fresh", expected_at)

    def _expect_update(self, dataset: str, now: datetime) -> datetime | None:
        """Return when the next update of a dataset is expected to end; None if no run is open or scheduled.

        Each dataset is judged once, after its inputs; a loop keeps chains of any length off the stack.
        """
        if now != self._now:
            self._now, self._expected = now, {}
        pending, entered = [dataset], set[str]()
        while pending:
            current = pending[-1]
            producer = self._producers.get(current)
            if current in self._expected:
                pending.pop()
            elif producer is not None and current not in entered and _depends_on_inputs(producer):
                entered.add(current)
                pending += [input_ for input_ in producer.inputs if input_ not in entered]
            else:
                self._expected[current] = None if producer is None else self._expect_run(producer, now)
                pending.pop()
        return self._expected[dataset]

    def _expect_run(self, producer: Producer, now: datetime) -> datetime | None:
        """Return when the next run of a producer is expected to end, by the expectations of its inputs."""
        if producer.paused_at is not None:
            return None
        run = producer.open_run
        if run is not None:
            started_at = run.started_at or now
            return max(now, started_at + producer.expect_duration(now - started_at))
        if producer.activation == "source":
            if producer.next_run_at is None:
                return None
            return max(now, producer.next_run_at) + producer.typical_duration
        expected = [self._expected.get(input_) for input_ in producer.inputs]
        starts = [moment for moment in expected if moment is not None]
        return min(starts) + producer.typical_duration if starts else None

    def _explain(self, dataset: str, row: FreshnessRow) -> tuple[str, ...]:
        """Return the chain of causes, from the dataset to the definition that has not run or has not ended."""
        causes: list[str] = []
        visited: set[str] = set()
        while dataset not in visited and len(causes) < MAX_CAUSES:
            visited.add(dataset)
            producer = self._producers.get(dataset)
            if producer is None:
                causes.append("a dataset that it reads is not produced by a serving version")
                break
            cause = self._explain_producer(producer, row)
            if cause is not None:
                causes.append(cause)
                break
            following = self._choose_input(producer, row.now)
            if following is None:
                causes.append(f"{producer.name} had no update of its inputs")
                break
            name = self._names.get(following)
            if name is None:
                causes.append(f"{producer.name} waits for a dataset that you may not read")
                break
            causes.append(f"{producer.name} waits for {name}")
            dataset = following
        return tuple(causes)

    def _explain_producer(self, producer: Producer, row: FreshnessRow) -> str | None:
        """Return why a definition itself delays the update; None if it waits for its inputs."""
        zone = row.timezone
        if producer.paused_at is not None:
            return f"{producer.name} is paused since {_format_time(producer.paused_at, zone)}"
        run = producer.open_run
        typical = producer.typical_duration
        usually = f", usually {_format_duration(typical)}" if typical else ""
        if run is not None and run.started_at is not None:
            return f"{producer.name} has run since {_format_time(run.started_at, zone)}{usually}"
        if run is not None and run.created_at is not None:
            return f"{producer.name} has waited for a worker since {_format_time(run.created_at, zone)}"
        last = producer.runs[0] if producer.runs else None
        if last is not None and last.status in ("FAILED", "DEAD_LETTER", "CANCELLED") and last.completed_at is not None:
            error = f": {headline(last.error)}" if last.error and self._shows_errors else ""
            return f"{producer.name} {_ENDINGS[last.status]} at {_format_time(last.completed_at, zone)}{error}"
        if producer.activation != "source":
            return None
        if producer.next_run_at is not None:
            return f"{producer.name} runs next at {_format_time(producer.next_run_at, zone)}{usually}"
        started = "" if last is None or last.created_at is None else f" since {_format_time(last.created_at, zone)}"
        return f"{producer.name} was not started{started}"

    def _choose_input(self, producer: Producer, now: datetime) -> str | None:
        """Return the input on the critical path: one that is expected first, or else the first one."""
        expected = {input_: self._expect_update(input_, now) for input_ in producer.inputs}
        moments = {input_: moment for input_, moment in expected.items() if moment is not None}
        return min(moments, key=lambda input_: moments[input_]) if moments else next(iter(producer.inputs), None)


async def list_forecasts(
    connection: Connection, reader: Reader, *, dataset: str | None = None, late: bool = False, limit: int
) -> list[tuple[FreshnessRow, Forecast]]:
    """Judge datasets with a policy, those that are due first; `late`: list those that are or will be late.

    Those are only searched among datasets that are due by the end of the time for which updates are predicted.
    """
    due_before = await freshness.get_forecast_end(connection, reader.org_id, FORECAST_SECONDS) if late else None
    page_rows = PAGE_ROWS if late else min(limit, PAGE_ROWS)
    judged: list[tuple[FreshnessRow, Forecast]] = []
    last: FreshnessRow | None = None
    while len(judged) < limit:
        rows = await freshness.list_freshness(
            connection, reader, dataset=dataset, due_before=due_before, after=last, limit=page_rows
        )
        if not rows:
            break
        last = rows[-1]
        forecaster = await load_forecaster(connection, reader, rows)
        forecasts = [(row, forecaster.judge(row)) for row in rows]
        judged += [(row, forecast) for row, forecast in forecasts if not late or forecast.state != "fresh"]
    return judged[:limit]


async def count_expected_late(connection: Connection) -> int:
    """Count datasets of all organisations that will be late, at most MAX_COUNTED of each."""
    count = 0
    for org_id in await freshness.list_orgs_with_policies(connection):
        listed = await list_forecasts(connection, Reader(org_id, None), late=True, limit=MAX_COUNTED)
        count += sum(forecast.state == "will be late" for _, forecast in listed)
    return count


async def load_forecaster(connection: Connection, reader: Reader, rows: Sequence[FreshnessRow]) -> FreshnessForecaster:
    """Load what is needed to judge these datasets: the runs of the definitions that they are computed by."""
    runs = await freshness.list_upstream_runs(connection, reader.org_id, [row.dataset_uuid for row in rows])
    inputs = {dataset for run in runs for dataset in run.inputs}
    names = await freshness.list_dataset_names(connection, reader, inputs)
    return FreshnessForecaster(runs, names, shows_errors=reader.roles is None)


def _depends_on_inputs(producer: Producer) -> bool:
    return producer.paused_at is None and producer.open_run is None and producer.activation != "source"


_ENDINGS = {"FAILED": "failed", "DEAD_LETTER": "failed", "CANCELLED": "was cancelled"}


def _format_time(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"


def _format_duration(duration: timedelta) -> str:
    seconds = round(duration.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    return f"{round(seconds / 60)} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"
