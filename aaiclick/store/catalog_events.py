"""Emit events of datasets into the outbox, and insert the tasks of definitions.

An event is a row of the outbox, written in the transaction that caused it and counted in its job (`open_events`): the
job does not end before its events are routed (`event_routing`). `dedupe_key` identifies the work of a task: a
definition has one task per key.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store.claims import notify_ready
from aaiclick.store.dispatches import queue_of
from aaiclick.store.slots import admit
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

EVENT_CHANNEL = "aaiclick_events"
"""Notified when there are events to route."""

ENTRYPOINT = "aaiclick.catalog.running.task.run_definition"
"""What every task of a definition runs."""

COLUMNS = (
    "definition_id", "org_id", "type", "entrypoint", "queue", "max_attempts", "timeout_seconds", "lease_seconds",
    "concurrency_key", "concurrency_limit", "readiness", "id", "job_id", "dedupe_key", "kwargs", "partitions",
)  # fmt: skip
COPIED_FROM = 50
"""Fewer are inserted by a statement, which also works behind the wall between organisations."""

ONE_AT_A_TIME = frozenset({"range_aggregator", "alert_evaluate", "follower", "block_follower"})
"""Operators that remember: their tasks run one after the other."""


@dataclass(frozen=True, slots=True)
class Event:
    """A generation of a dataset was updated: these partitions of it ('' is the whole).

    While a version is filled, `build` is that version: nobody else hears of it. `only` names one definition. `cursor`
    identifies the update: events with the same one make one task per definition, however often they are emitted.
    """

    org_id: UUID
    job_id: int
    dataset: UUID
    generation: UUID
    partitions: tuple[str, ...] = ("",)
    build: UUID | None = None
    only: UUID | None = None
    cursor: str | None = None

    def payload(self) -> str:
        fields: dict[str, Any] = {
            "dataset": str(self.dataset),
            "generation": str(self.generation),
            "partitions": self.partitions,
        }
        if self.build is not None:
            fields["build"] = str(self.build)
        if self.only is not None:
            fields["only"] = str(self.only)
        return json.dumps(fields)


async def emit(connection: Connection, events: Sequence[Event]) -> Counter[int]:
    """Put events into the outbox, in the caller's transaction; returns how many of each job, for it to count."""
    if not events:
        return Counter()
    await connection.execute(statement("lock_events"), [str(event.generation) for event in events])
    await connection.fetchval(
        statement("emit_events"),
        [event.org_id for event in events],
        [event.job_id for event in events],
        [str(event.generation) for event in events],
        [event.payload() for event in events],
        [event.cursor for event in events],
    )
    return Counter(event.job_id for event in events)


@dataclass(slots=True)
class TaskBatch:
    """Tasks of one definition to insert, column by column: thousands come at once, and most of them is the same."""

    definition_id: UUID
    org_id: UUID
    queue: str
    key: str | None
    same: tuple[Any, ...]
    """What is the same of all, in the order of the statement; it begins with definition and org."""

    places: list[int] = field(default_factory=list[int])
    """Which of the ids are theirs."""

    jobs: list[int] = field(default_factory=list[int])
    keys: list[str | None] = field(default_factory=list[str | None])
    told: list[str] = field(default_factory=list[str])
    """The event of each, as JSON."""

    partitions: list[str | None] = field(default_factory=list[str | None])

    @classmethod
    def of(cls, definition: Mapping[str, Any] | asyncpg.Record, org_id: UUID) -> TaskBatch:
        limit = 1 if definition["operator"] in ONE_AT_A_TIME else definition["max_concurrency"]
        key = None if limit is None else f"definition:{definition['type']}"
        queue, ready = queue_of(definition["runtime"]), "READY" if key is None else "HELD"
        begins = f'{{"definition": "{definition["id"]}", "event": '
        return cls(definition["id"], org_id, queue, key, (
            definition["id"], org_id, definition["type"], ENTRYPOINT, begins, queue, definition["max_attempts"],
            definition["timeout_seconds"], definition["heartbeat_timeout_seconds"], key, limit, ready,
        ))  # fmt: skip

    def add(self, place: int, job_id: int, key: str | None, told: str, partition: str | None = None) -> None:
        self.places.append(place)
        self.jobs.append(job_id)
        self.keys.append(key)
        self.told.append(told)
        self.partitions.append(partition)

    def records(self, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """The rows, as COPY takes them."""
        definition, org, kind, entrypoint, begins, *more = self.same
        kwargs = [f"{begins}{told}}}" for told in self.told]
        partitions = [None if each is None else [each] for each in self.partitions]
        ours = map(repeat, (definition, org, kind, entrypoint, *more))
        return zip(*ours, ids, self.jobs, self.keys, kwargs, partitions, strict=False)

    def leave_out(self, keys: set[str]) -> None:
        """Drop the tasks that have one of these keys, and all but the first of those that share one."""
        seen: set[str | None] = {*keys}
        left: list[int] = []
        for n, key in enumerate(self.keys):
            if key is None or key not in seen:
                left.append(n)
                seen.add(key)
        columns: list[list[Any]] = [self.places, self.jobs, self.keys, self.told, self.partitions]
        for column in columns:
            column[:] = [column[n] for n in left]


async def insert_tasks(connection: Connection, found: Sequence[TaskBatch], *, copied: bool = False) -> Counter[int]:
    """Insert tasks, let those go that may run, and wake workers; returns how many of each job there are.

    A task whose key is known is left out. Duplicates are rare, so they are looked for only after the insert failed.
    """
    if not found:
        return Counter()
    ids = get_snowflake_ids(sum(len(tasks.places) for tasks in found))
    try:
        async with connection.transaction():
            await _put(connection, found, ids, copied=copied)
    except asyncpg.UniqueViolationError:
        for tasks in found:
            known = await connection.fetch(statement("known_dedupe_keys"), tasks.definition_id, tasks.keys)
            tasks.leave_out({row["dedupe_key"] for row in known})
        found = [tasks for tasks in found if tasks.places]
        await _put(connection, found, ids, copied=copied)
    await connection.execute(statement("definitions_busy"), sorted(tasks.definition_id for tasks in found))
    ready = {tasks.queue for tasks in found if tasks.key is None}
    if keyed := {(tasks.org_id, tasks.key) for tasks in found if tasks.key is not None}:
        ready |= await admit(connection, keyed)
    await notify_ready(connection, ready)
    return Counter(chain.from_iterable(tasks.jobs for tasks in found))


async def _put(connection: Connection, found: Sequence[TaskBatch], ids: Sequence[int], *, copied: bool) -> None:
    for tasks in found:
        mine = [ids[place] for place in tasks.places]
        if copied and len(mine) >= COPIED_FROM:
            await connection.copy_records_to_table("tasks", records=tasks.records(mine), columns=COLUMNS)
        else:
            columns = mine, tasks.jobs, tasks.keys, tasks.told, tasks.partitions
            await connection.execute(statement("insert_routed"), *tasks.same, *columns)


async def fire(
    connection: Connection,
    definition: Mapping[str, Any] | asyncpg.Record,
    trigger: Mapping[str, Any],
    *,
    idempotency_key: str | None = None,
) -> tuple[int, bool]:
    """Start a source: a job with one task, in the caller's transaction. The job of an idempotency key is made once.

    Returns its id, and whether it is new.
    """
    job_id, name = get_snowflake_id(), f"{definition['dag_name']}.{definition['name']}"
    org_id: UUID = definition["org_id"]
    inserted = await connection.fetchval(
        statement("insert_job"), job_id, org_id, name, None, 1, idempotency_key, definition["id"],
        definition["dag_version_id"], json.dumps(trigger),
    )  # fmt: skip
    if inserted is None:
        return int(await connection.fetchval(statement("job_by_key"), org_id, name, idempotency_key)), False
    tasks = TaskBatch.of({**definition, "type": name}, org_id)
    tasks.add(0, job_id, None, json.dumps(trigger))
    await insert_tasks(connection, [tasks])
    return job_id, True


async def add_source(
    connection: Connection, job_id: int, definition: asyncpg.Record, trigger: Mapping[str, Any], *, build: UUID
) -> None:
    """A task of a source in a job that fills a version."""
    name = f"{definition['dag_name']}.{definition['name']}"
    tasks = TaskBatch.of({**definition, "type": name}, definition["org_id"])
    tasks.add(0, job_id, None, json.dumps({**trigger, "build": str(build)}))
    await insert_tasks(connection, [tasks])
    await connection.execute(statement("routed_jobs"), [job_id], [1], [0])


async def add_tasks(
    connection: Connection,
    job_id: int,
    definition: Mapping[str, Any] | asyncpg.Record,
    work: Sequence[tuple[str, Mapping[str, Any], str | None]],
) -> None:
    """Tasks of one definition in a job that is open: each by its key, what it is told, and its partition."""
    tasks = TaskBatch.of(definition, definition["org_id"])
    for place, (key, event, partition) in enumerate(work):
        tasks.add(place, job_id, key, json.dumps(event), partition)
    added = await insert_tasks(connection, [tasks])
    await connection.execute(statement("routed_jobs"), [job_id], [added[job_id]], [0])


async def open_job(
    connection: Connection, org_id: UUID, name: str, dag_version_id: UUID | None, trigger: Mapping[str, Any]
) -> int:
    """A job without tasks, for events to fill; the caller emits them in the same transaction."""
    job_id = get_snowflake_id()
    await connection.fetchval(
        statement("insert_job"), job_id, org_id, name, None, 0, None, None, dag_version_id, json.dumps(trigger)
    )
    return job_id


async def count_events(connection: Connection, events: Counter[int]) -> None:
    """Let jobs know of events that were emitted for them outside of a completion."""
    jobs = sorted(events)
    await connection.execute(statement("routed_jobs"), jobs, [0] * len(jobs), [-events[job] for job in jobs])
