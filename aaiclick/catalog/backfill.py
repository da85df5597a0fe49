"""Backfill and catch-up: plan and start the runs of a range that have not run yet.

A cron source runs at times, a definition with PerPartition runs for the partitions of its input. `plan_backfill` lists
them between two bounds, both included, with the status of those that ran; `start_backfill` starts the others. Repeating
it starts nothing twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aaiclick.catalog.execution import dataset_tables
from aaiclick.catalog.execution.definition_context import DatasetLocation, DefinitionContext, load_definition
from aaiclick.catalog.execution.memoize import compute_inputs_hash, find_reusable_tasks, is_memoized
from aaiclick.cron import NominalTimes, parse_schedule
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.errors import ConflictError, LimitError, NotFoundError, RequestError
from aaiclick.store.catalog import backfill as store
from aaiclick.store.catalog import definition_runs as catalog_runs
from aaiclick.store.catalog.datasets import VersionRange
from aaiclick.store.clock import read_clock
from aaiclick.store.enums import JobStatus

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection

MAX_RUNS = 1_000
"""Most runs of one backfill."""

ONE_MICROSECOND = timedelta(microseconds=1)
ONE_DAY = timedelta(days=1)
MIN_TIME = datetime.min.replace(tzinfo=UTC)
MAX_DAY = date.max
COMPLETED = JobStatus.COMPLETED.value

T = TypeVar("T")
OpenClickHouse = Callable[[], Awaitable[ClickHouseClient]]


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """One time or partition; with the status of its run, and the job if that is still known."""

    name: str
    request: store.BackfillRun
    job_id: int | None = None
    status: str | None = None

    @property
    def runs(self) -> bool:
        return self.status is None


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """The steps of a backfill, oldest first; at most `limit` of them run at the same time."""

    definition: asyncpg.Record
    steps: tuple[BackfillStep, ...]
    limit: int | None
    bounds: VersionRange | None = None
    """The range to fill: partitions that are integers, or times in seconds since 1970."""

    @property
    def job_name(self) -> str:
        return self.definition["name"]

    @property
    def to_run(self) -> list[BackfillStep]:
        return [step for step in self.steps if step.runs]


async def plan_backfill(
    connection: Connection,
    clickhouse: OpenClickHouse,
    org_id: UUID,
    dag_name: str,
    job_name: str | None,
    first: str,
    last: str,
) -> BackfillPlan:
    """Plan the runs between two bounds: ISO 8601 times (in the source's time zone by default) or partitions."""
    definition = await _find_definition(connection, org_id, dag_name, job_name)
    if definition["activation"] == "source":
        return await _plan_times(connection, definition, first, last)
    return await _plan_partitions(connection, await clickhouse(), definition, first, last)


async def start_backfill(connection: Connection, planned: BackfillPlan) -> list[int]:
    """Start the planned steps that have not run; return the job ids."""
    requests = [step.request for step in planned.to_run]
    if not requests:
        return []
    return await store.start_backfill(
        connection, planned.definition, requests, limit=planned.limit, bounds=planned.bounds
    )


def can_backfill(definition: asyncpg.Record) -> bool:
    """Return whether the runs of a definition are identified by times or partitions."""
    if definition["activation"] == "source":
        return json.loads(definition["source"])["kind"] == "cron"
    return definition["execution_strategy"] == "PerPartition"


async def _find_definition(connection: Connection, org_id: UUID, dag_name: str, job_name: str | None) -> asyncpg.Record:
    definitions = await store.list_serving_definitions(connection, org_id, dag_name, job_name)
    if not definitions:
        what = f"There is no DAG {dag_name!r:.80}"
        what = f"The DAG {dag_name!r:.80} has no definition {job_name!r:.80}" if job_name else what
        raise NotFoundError(f"{what}.", remedy="'aaiclick dag ls' lists the DAGs.")
    candidates = [row for row in definitions if can_backfill(row)]
    if not candidates:
        what = f"{dag_name}.{job_name} is" if job_name else f"The definitions of {dag_name} are"
        raise RequestError(
            f"{what} neither started by a schedule nor run per partition.",
            remedy="'aaiclick dag trigger' starts a source, 'aaiclick datasets rematerialize' rebuilds a dataset.",
        )
    if len(candidates) > 1:
        names = ", ".join(row["name"] for row in candidates)
        raise ConflictError(
            f"Several definitions of {dag_name!r} can be backfilled: {names}.", remedy="Name one with --job."
        )
    return candidates[0]


async def _plan_times(connection: Connection, definition: asyncpg.Record, first: str, last: str) -> BackfillPlan:
    source: dict[str, Any] = json.loads(definition["source"])
    schedule = parse_schedule(source["schedule"], source["timezone"])
    now = await read_clock(connection)
    # in a thread, since rare times are looked for day by day
    times = await asyncio.to_thread(list_times_between, schedule, first, last, now)
    requests = [
        store.BackfillRun(f"cron:{nominal.isoformat()}", {"kind": "backfill", "nominal": nominal.isoformat()})
        for nominal in times
    ]
    started = await store.find_started_jobs(connection, definition, [request.key for request in requests])
    limit = definition["max_concurrency"] if source["overlap"] == "allow" else 1
    steps = tuple(_make_step(str(request.event["nominal"]), request, started) for request in requests)
    bounds = VersionRange(int(times[0].timestamp()), int(times[-1].timestamp())) if times else None
    return BackfillPlan(definition, steps, limit, bounds)


def list_times_between(schedule: NominalTimes, first: str, last: str, now: datetime) -> list[datetime]:
    """Return the nominal times between two bounds, both included; future ones are left to the schedule."""
    start, end = _parse_time(first, schedule, is_end=False), _parse_time(last, schedule, is_end=True)
    if end < start:
        raise _reversed_range(first, last)
    end = min(end, now)
    after = schedule.runs_after(start - ONE_MICROSECOND)
    return _check_count(list(islice(takewhile(lambda time_: time_ <= end, after), MAX_RUNS + 1)))


def _parse_time(text: str, schedule: NominalTimes, *, is_end: bool) -> datetime:
    """Parse a time or a day; a day stands for its first or its last moment."""
    try:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            parsed = datetime.fromisoformat(text)
        else:
            parsed = datetime.combine(day, time.max if is_end else time.min)
        parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=schedule.zone)
        if is_end and parsed.date() == MAX_DAY:
            return parsed.replace(tzinfo=UTC)  # converting it would overflow; it lies in the future anyway
        parsed = parsed.astimezone(UTC)
        if parsed - MIN_TIME < ONE_DAY:
            raise RequestError(f"{text!r:.60} is too early.", remedy="Begin at a day on which it could have run.")
        return parsed.astimezone(schedule.zone)
    except OverflowError:
        raise RequestError(
            f"{text!r:.60} is out of range.", remedy="Begin at a day on which it could have run."
        ) from None
    except ValueError:
        raise RequestError(
            f"{text!r:.60} is neither a day nor a time.", remedy="Write 2026-01-31 or 2026-01-31T06:00."
        ) from None


def _reversed_range(first: str, last: str) -> RequestError:
    return RequestError(
        f"The range ends ({last!r:.60}) before it begins ({first!r:.60}).", remedy="Give the earlier end first."
    )


async def _plan_partitions(
    connection: Connection, clickhouse: ClickHouseClient, definition: asyncpg.Record, first: str, last: str
) -> BackfillPlan:
    context = await load_definition(connection, definition["id"])
    driver = next(
        (location for location in context.inputs.values() if location.layout and location.layout.partition_by), None
    )
    if driver is None or driver.layout is None or driver.layout.partition_by is None:
        raise ConflictError(
            f"No input of {definition['type']} has partitions yet.", remedy="They are created by its first update."
        )
    partitions = await dataset_tables.list_partitions(
        clickhouse, driver.layout.partition_by, driver.physical().select()
    )
    keys = filter_partitions(partitions, first, last)
    recorded = await catalog_runs.load_partitions(connection, driver.generation, keys)
    requests: list[store.BackfillRun] = []
    for key in keys:
        content = recorded[key].recorded_ticket if key in recorded else driver.updated_at
        event = {"kind": "backfill", "dataset": str(driver.dataset), "partition": key}
        requests.append(store.BackfillRun(f"backfill:{driver.generation}:{key}:{content}", event, key))
    started = await store.find_tasks_by_dedupe_key(connection, definition, [request.key for request in requests])
    remaining = [str(request.partition) for request in requests if request.key not in started]
    current = await _find_current_runs(connection, definition, context, driver, remaining)
    steps = tuple(
        _make_step(key, request, started)
        if request.key in started
        else BackfillStep(key, request, *current.get(key, (None, None)))
        for key, request in zip(keys, requests, strict=True)
    )
    ends = first, last
    whole = all(_is_number(end) and abs(int(end)) < 1 << 63 for end in ends)
    bounds = VersionRange(int(first), int(last)) if whole else None
    return BackfillPlan(definition, steps, definition["max_concurrency"], bounds)


class _GenerationCache:
    """Caches partitions and digests of generations."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._partitions: dict[UUID, dict[str, catalog_runs.Partition]] = {}
        self._digests: dict[UUID, str] = {}

    async def list_partitions(
        self, generation: UUID, keys: Sequence[str] | None = None
    ) -> dict[str, catalog_runs.Partition]:
        if generation not in self._partitions:
            self._partitions[generation] = await catalog_runs.load_partitions(self._connection, generation)
        partitions = self._partitions[generation]
        return partitions if keys is None else {key: partitions[key] for key in keys if key in partitions}

    async def input_digest(self, generation: UUID) -> str:
        if generation not in self._digests:
            self._digests[generation] = await catalog_runs.load_input_digest(self._connection, generation)
        return self._digests[generation]


async def _find_current_runs(
    connection: Connection,
    definition: asyncpg.Record,
    context: DefinitionContext,
    driver: DatasetLocation,
    keys: Sequence[str],
) -> dict[str, tuple[int | None, str]]:
    """Return job and status of partitions that ordinary runs have already processed in their current state.

    Memoized outputs record the hash of their inputs; for others, the tasks record the partitions that they read.
    """
    cache = _GenerationCache(connection)
    if context.mode == "slice" and is_memoized(context):
        task_ids_by_key: dict[str, set[int]] = {}
        for key in keys:
            inputs_hash = await compute_inputs_hash(cache, context, driver.name, key)
            task_ids = None if inputs_hash is None else await find_reusable_tasks(cache, context, key, inputs_hash)
            if task_ids is not None:
                task_ids_by_key[key] = task_ids
        jobs = await store.load_job_ids(
            connection, {task for task_ids in task_ids_by_key.values() for task in task_ids}
        )
        return {key: (jobs.get(max(task_ids)), COMPLETED) for key, task_ids in task_ids_by_key.items()}
    recorded = await cache.list_partitions(driver.generation)
    changed = {key: recorded[key].updated_at if key in recorded else driver.updated_at for key in keys}
    runs_by_key = await store.find_partition_readers(
        connection,
        definition,
        driver.dataset,
        {key: updated_at for key, updated_at in changed.items() if updated_at is not None},
    )
    return {key: (row["id"], row["status"]) for key, row in runs_by_key.items()}


def filter_partitions(keys: set[str], first: str, last: str) -> list[str]:
    """Return the partitions between two bounds, both included, sorted: integers by value, anything else as text."""
    if _is_number(first) and _is_number(last):
        low, high = int(first), int(last)
        if high < low:
            raise _reversed_range(first, last)
        numbers = {int(key): key for key in keys if _is_number(key)}
        return _check_count([numbers[number] for number in sorted(numbers) if low <= number <= high])
    if last < first:
        raise _reversed_range(first, last)
    return _check_count([key for key in sorted(keys) if first <= key <= last])


def _is_number(text: str) -> bool:
    return len(text) <= 40 and text.removeprefix("-").isdecimal() and text.isascii()


def _check_count(runs: list[T]) -> list[T]:
    if len(runs) > MAX_RUNS:
        raise LimitError(f"There are more than {MAX_RUNS} runs in this range.", remedy="Choose a shorter range.")
    return runs


def _make_step(name: str, request: store.BackfillRun, started: dict[str, asyncpg.Record]) -> BackfillStep:
    row = started.get(request.key)
    return BackfillStep(name, request) if row is None else BackfillStep(name, request, row["id"], row["status"])
