"""Backfill and catch-up: what of a range has not run, and running that.

A cron source has times, a job per partition has the partitions of its input. `plan` says what there is of them between
two ends, both included, and what came of those that ran; `begin` starts the others. Once more starts nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aaiclick.catalog.running import storage
from aaiclick.catalog.running.reuse import is_memoized, made_by, made_of
from aaiclick.catalog.running.work import Place, Work, find_work
from aaiclick.data.client import Client
from aaiclick.errors import ConflictError, LimitError, NotFoundError, RequestError
from aaiclick.orchestration.schedule import Schedule, parse_schedule
from aaiclick.store import catalog_backfill as store
from aaiclick.store import catalog_runs
from aaiclick.store.catalog_datasets import VersionRange
from aaiclick.store.clock import clock
from aaiclick.store.words import JobStatus

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

MOST = 1_000
"""Runs of one backfill."""

MOMENT = timedelta(microseconds=1)
A_DAY = timedelta(days=1)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST_DAY = date.max
COMPLETED = JobStatus.COMPLETED.value

T = TypeVar("T")
OpenClickHouse = Callable[[], Awaitable[Client]]


@dataclass(frozen=True, slots=True)
class Step:
    """One time or partition; with how it stands if it ran, and the job that ran it if that is still known."""

    name: str
    wanted: store.Wanted
    job_id: int | None = None
    status: str | None = None

    @property
    def runs(self) -> bool:
        return self.status is None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a backfill would do: `steps`, oldest first, at most `limit` of them at the same time."""

    definition: asyncpg.Record
    steps: tuple[Step, ...]
    limit: int | None
    bounds: VersionRange | None = None
    """The range that it fills: partitions that are whole numbers, or times in seconds since 1970."""

    @property
    def job_name(self) -> str:
        return self.definition["name"]

    @property
    def to_run(self) -> list[Step]:
        return [step for step in self.steps if step.runs]


async def plan(
    connection: Connection,
    clickhouse: OpenClickHouse,
    org_id: UUID,
    dag_name: str,
    job_name: str | None,
    first: str,
    last: str,
) -> Plan:
    """What there is between two ends: times as ISO 8601, in the source's zone if they name none; or partitions."""
    definition = await _find(connection, org_id, dag_name, job_name)
    if definition["activation"] == "source":
        return await _times(connection, definition, first, last)
    return await _partitions(connection, await clickhouse(), definition, first, last)


async def begin(connection: Connection, planned: Plan) -> list[int]:
    """Start what is planned and has not run; returns the jobs."""
    wanted = [step.wanted for step in planned.to_run]
    if not wanted:
        return []
    return await store.start(connection, planned.definition, wanted, limit=planned.limit, bounds=planned.bounds)


def can_be_filled(definition: asyncpg.Record) -> bool:
    """Whether the runs of a definition are known by times or partitions."""
    if definition["activation"] == "source":
        return json.loads(definition["source"])["kind"] == "cron"
    return definition["execution_strategy"] == "PerPartition"


async def _find(connection: Connection, org_id: UUID, dag_name: str, job_name: str | None) -> asyncpg.Record:
    found = await store.definitions_of(connection, org_id, dag_name, job_name)
    if not found:
        what = f"There is no DAG {dag_name!r:.80}"
        what = f"The DAG {dag_name!r:.80} has no job {job_name!r:.80}" if job_name else what
        raise NotFoundError(f"{what}.", remedy="'aaiclick dag versions' lists the DAGs.")
    able = [row for row in found if can_be_filled(row)]
    if not able:
        what = f"{dag_name}.{job_name} is" if job_name else f"The jobs of {dag_name} are"
        raise RequestError(
            f"{what} neither started by a schedule nor run per partition.",
            remedy="'aaiclick dag trigger' starts a source, 'aaiclick datasets rematerialize' makes a dataset anew.",
        )
    if len(able) > 1:
        names = ", ".join(row["name"] for row in able)
        raise ConflictError(f"Several jobs of {dag_name!r} can be backfilled: {names}.", remedy="Name one with --job.")
    return able[0]


async def _times(connection: Connection, definition: asyncpg.Record, first: str, last: str) -> Plan:
    source: dict[str, Any] = json.loads(definition["source"])
    schedule = parse_schedule(source["schedule"], source["timezone"])
    now = await clock(connection)
    times = times_between(schedule, first, last, now)
    wanted = [
        store.Wanted(f"cron:{each.isoformat()}", {"kind": "backfill", "nominal": each.isoformat()}) for each in times
    ]
    known = await store.jobs_started(connection, definition, [each.key for each in wanted])
    limit = definition["max_concurrency"] if source["overlap"] else 1
    steps = tuple(_step(str(each.event["nominal"]), each, known) for each in wanted)
    bounds = VersionRange(int(times[0].timestamp()), int(times[-1].timestamp())) if times else None
    return Plan(definition, steps, limit, bounds)


def times_between(schedule: Schedule, first: str, last: str, now: datetime) -> list[datetime]:
    """Nominal times between two ends, both included; those to come are left to the schedule."""
    start, end = _moment(first, schedule, is_end=False), _moment(last, schedule, is_end=True)
    if end < start:
        raise _reversed(first, last)
    end = min(end, now)
    after = schedule.runs_after(start - MOMENT)
    return _bounded(list(islice(takewhile(lambda each: each <= end, after), MOST + 1)))


def _moment(text: str, schedule: Schedule, *, is_end: bool) -> datetime:
    """A moment; a day is its first one, or its last."""
    try:
        try:
            day = date.fromisoformat(text)
        except ValueError:
            found = datetime.fromisoformat(text)
        else:
            found = datetime.combine(day, time.max if is_end else time.min)
        found = found if found.tzinfo else found.replace(tzinfo=schedule.zone)
        if is_end and found.date() == LAST_DAY:
            return found.replace(tzinfo=UTC)  # in another zone it may lie beyond all there are; it is to come anyway
        found = found.astimezone(UTC)
        if found - FIRST < A_DAY:
            raise RequestError(f"{text!r:.60} is too long ago.", remedy="Begin at a day on which it could have run.")
        return found.astimezone(schedule.zone)
    except OverflowError:
        raise RequestError(
            f"{text!r:.60} lies beyond the times there are.", remedy="Begin at a day on which it could have run."
        ) from None
    except ValueError:
        raise RequestError(
            f"{text!r:.60} is neither a day nor a time.", remedy="Write 2026-01-31 or 2026-01-31T06:00."
        ) from None


def _reversed(first: str, last: str) -> RequestError:
    return RequestError(
        f"The range ends ({last!r:.60}) before it begins ({first!r:.60}).", remedy="Give the earlier end first."
    )


async def _partitions(
    connection: Connection, clickhouse: Client, definition: asyncpg.Record, first: str, last: str
) -> Plan:
    work = await find_work(connection, definition["id"])
    driver = next((each for each in work.inputs.values() if each.layout and each.layout.partition_by), None)
    if driver is None or driver.layout is None or driver.layout.partition_by is None:
        raise ConflictError(
            f"No input of {definition['type']} has partitions yet.", remedy="Its first update makes them."
        )
    found = await storage.partitions(clickhouse, driver.layout.partition_by, driver.physical().select())
    keys = partitions_between(found, first, last)
    held = await catalog_runs.partitions_of(connection, driver.generation, keys)
    wanted: list[store.Wanted] = []
    for key in keys:
        content = held[key]["recorded_ticket"] if key in held else driver.updated_at
        event = {"kind": "backfill", "dataset": str(driver.dataset), "partition": key}
        wanted.append(store.Wanted(f"backfill:{driver.generation}:{key}:{content}", event, key))
    known = await store.tasks_given_out(connection, definition, [each.key for each in wanted])
    left = [str(each.partition) for each in wanted if each.key not in known]
    current = await _current(connection, definition, work, driver, left)
    steps = tuple(
        _step(key, each, known) if each.key in known else Step(key, each, *current.get(key, (None, None)))
        for key, each in zip(keys, wanted, strict=True)
    )
    ends = first, last
    whole = all(_is_number(each) and abs(int(each)) < 1 << 63 for each in ends)
    bounds = VersionRange(int(first), int(last)) if whole else None
    return Plan(definition, steps, definition["max_concurrency"], bounds)


class _Books:
    """What is known of generations, asked for once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._partitions: dict[UUID, dict[str, Mapping[str, Any]]] = {}
        self._digests: dict[UUID, str] = {}

    async def partitions(self, generation: UUID, keys: Sequence[str] | None = None) -> dict[str, Mapping[str, Any]]:
        if generation not in self._partitions:
            found = await catalog_runs.partitions_of(self._connection, generation)
            self._partitions[generation] = {key: dict(row) for key, row in found.items()}
        known = self._partitions[generation]
        return known if keys is None else {key: known[key] for key in keys if key in known}

    async def input_digest(self, generation: UUID) -> str:
        if generation not in self._digests:
            self._digests[generation] = await catalog_runs.input_digest(self._connection, generation)
        return self._digests[generation]


async def _current(
    connection: Connection, definition: asyncpg.Record, work: Work, driver: Place, keys: Sequence[str]
) -> dict[str, tuple[int | None, str]]:
    """Job and status of those partitions that ordinary runs have taken as they are.

    What was made says what it was made of; where that is not known, the tasks say what they read.
    """
    books = _Books(connection)
    if work.mode == "slice" and is_memoized(work):
        found: dict[str, set[int]] = {}
        for key in keys:
            of_these = await made_of(books, work, driver.name, key)
            by = None if of_these is None else await made_by(books, work, key, of_these)
            if by is not None:
                found[key] = by
        jobs = await store.jobs_of(connection, {task for by in found.values() for task in by})
        return {key: (jobs.get(max(by)), COMPLETED) for key, by in found.items()}
    held = await books.partitions(driver.generation)
    changed = {key: held[key]["updated_at"] if key in held else driver.updated_at for key in keys}
    read = await store.partitions_read(
        connection, definition, driver.dataset, {key: at for key, at in changed.items() if at is not None}
    )
    return {key: (row["id"], row["status"]) for key, row in read.items()}


def partitions_between(keys: set[str], first: str, last: str) -> list[str]:
    """Partitions between two ends, both included and in order: whole numbers by their size, anything else as text."""
    if _is_number(first) and _is_number(last):
        low, high = int(first), int(last)
        if high < low:
            raise _reversed(first, last)
        numbers = {int(key): key for key in keys if _is_number(key)}
        return _bounded([numbers[each] for each in sorted(numbers) if low <= each <= high])
    if last < first:
        raise _reversed(first, last)
    return _bounded([key for key in sorted(keys) if first <= key <= last])


def _is_number(text: str) -> bool:
    return len(text) <= 40 and text.removeprefix("-").isdecimal() and text.isascii()


def _bounded(found: list[T]) -> list[T]:
    if len(found) > MOST:
        raise LimitError(f"There are more than {MOST} runs in this range.", remedy="Take a shorter one at a time.")
    return found


def _step(name: str, wanted: store.Wanted, known: dict[str, asyncpg.Record]) -> Step:
    row = known.get(wanted.key)
    return Step(name, wanted) if row is None else Step(name, wanted, row["id"], row["status"])
