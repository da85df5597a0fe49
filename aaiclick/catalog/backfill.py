"""Backfill and catch-up: what of a range has not run, and running that.

A cron source has times, a job per partition has the partitions of its input. `plan` says what there is of them between
two ends, both included, and what came of those that ran; `begin` starts the others. Once more starts nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from aaiclick.catalog.running import storage
from aaiclick.catalog.running.work import find_work
from aaiclick.data.client import Client
from aaiclick.errors import ConflictError, LimitError, NotFoundError, RequestError
from aaiclick.orchestration.schedule import Schedule, parse_schedule
from aaiclick.store import catalog_backfill as store
from aaiclick.store import catalog_dags, catalog_runs

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

MOST = 1_000
"""Runs of one backfill."""

MOMENT = timedelta(microseconds=1)

T = TypeVar("T")
OpenClickHouse = Callable[[], Awaitable[Client]]


@dataclass(frozen=True, slots=True)
class Step:
    """One time or partition; with the job that ran it and how that stands, if one did."""

    name: str
    wanted: store.Wanted
    job_id: int | None = None
    status: str | None = None

    @property
    def runs(self) -> bool:
        return self.job_id is None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a backfill would do: `steps`, oldest first, at most `limit` of them at the same time."""

    definition: asyncpg.Record
    steps: tuple[Step, ...]
    limit: int | None

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
    return await store.start(connection, planned.definition, wanted, limit=planned.limit) if wanted else []


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
    now = await catalog_dags.database_now(connection)
    times = times_between(schedule, first, last, now)
    wanted = [
        store.Wanted(f"cron:{each.isoformat()}", {"kind": "backfill", "nominal": each.isoformat()}) for each in times
    ]
    known = await store.jobs_started(connection, definition, [each.key for each in wanted])
    limit = definition["max_concurrency"] if source["overlap"] else 1
    return Plan(definition, tuple(_step(str(each.event["nominal"]), each, known) for each in wanted), limit)


def times_between(schedule: Schedule, first: str, last: str, now: datetime) -> list[datetime]:
    """Nominal times between two ends, both included; those to come are left to the schedule."""
    start, end = _moment(first, schedule, is_end=False), min(_moment(last, schedule, is_end=True), now)
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
        return found.astimezone(schedule.zone)
    except (ValueError, OverflowError):
        raise RequestError(
            f"{text!r:.60} is neither a day nor a time.", remedy="Write 2026-01-31 or 2026-01-31T06:00."
        ) from None


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
    steps = tuple(_step(str(each.partition), each, known) for each in wanted)
    return Plan(definition, steps, definition["max_concurrency"])


def partitions_between(keys: set[str], first: str, last: str) -> list[str]:
    """Partitions between two ends, both included and in order: whole numbers by their size, anything else as text."""
    if _is_number(first) and _is_number(last):
        low, high = int(first), int(last)
        numbers = {int(key): key for key in keys if _is_number(key)}
        return _bounded([numbers[each] for each in sorted(numbers) if low <= each <= high])
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
