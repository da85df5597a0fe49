"""Events of datasets, and what they cause: from the outbox into tasks, each once, in order per dataset.

An event is a row of the outbox, written in the transaction that caused it and counted in its job (`open_events`): the
job does not end before all that it caused is done. A router takes the oldest ones, gives every definition that reads
the dataset a task per update or per partition, and deletes them, all in one transaction: a router that is killed has
changed nothing. One router works at a time, and ids of a dataset's events have the order of their commits, so
tasks are given out in the order of updates. What a task is known by (`dedupe_key`) makes a second one impossible.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from aaiclick import faults
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
    "definition_id", "org_id", "type", "entrypoint", "queue", "max_attempts", "timeout_seconds", "concurrency_key",
    "concurrency_limit", "readiness", "id", "job_id", "dedupe_key", "kwargs", "partitions",
)  # fmt: skip
COPIED_FROM = 50
"""Fewer are inserted by a statement, which also works behind the wall between organisations."""

BATCH = 4000
ONE_AT_A_TIME = frozenset({"range_aggregator", "alert_evaluate", "follower", "block_follower"})
"""Operators that remember: their tasks run one after the other."""


@dataclass(frozen=True, slots=True)
class Event:
    """A generation of a dataset was updated: these partitions of it ('' is the whole).

    While a version is filled, `build` is that version: nobody else hears of it. `only` names one definition.
    """

    org_id: UUID
    job_id: int
    dataset: UUID
    generation: UUID
    partitions: tuple[str, ...] = ("",)
    build: UUID | None = None
    only: UUID | None = None

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
    )
    return Counter(event.job_id for event in events)


@dataclass(slots=True)
class _Tasks:
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
    def of(cls, definition: Mapping[str, Any] | asyncpg.Record, org_id: UUID) -> _Tasks:
        limit = 1 if definition["operator"] in ONE_AT_A_TIME else definition["max_concurrency"]
        key = None if limit is None else f"definition:{definition['type']}"
        queue, ready = queue_of(definition["runtime"]), "READY" if key is None else "HELD"
        begins = f'{{"definition": "{definition["id"]}", "event": '
        return cls(definition["id"], org_id, queue, key, (
            definition["id"], org_id, definition["type"], ENTRYPOINT, begins, queue, definition["max_attempts"],
            definition["timeout_seconds"], key, limit, ready,
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
        """Forget the tasks that have one of these keys."""
        left = [n for n, key in enumerate(self.keys) if key not in keys]
        columns: list[list[Any]] = [self.places, self.jobs, self.keys, self.told, self.partitions]
        for column in columns:
            column[:] = [column[n] for n in left]


async def _insert(connection: Connection, found: Sequence[_Tasks], *, copied: bool = False) -> Counter[int]:
    """Insert tasks, let those go that may run, and wake workers; returns how many of each job there are.

    A task whose work was given out before is left out. There is none, since an event is routed once and a key names its
    event: so nothing is asked before, and only if that fails is it found out which.
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
        await _put(connection, found, ids, copied=copied)
    await connection.execute(statement("definitions_busy"), sorted(tasks.definition_id for tasks in found))
    ready = {tasks.queue for tasks in found if tasks.key is None}
    if keyed := {(tasks.org_id, tasks.key) for tasks in found if tasks.key is not None}:
        ready |= await admit(connection, keyed)
    await notify_ready(connection, ready)
    return Counter(chain.from_iterable(tasks.jobs for tasks in found))


async def _put(connection: Connection, found: Sequence[_Tasks], ids: Sequence[int], *, copied: bool) -> None:
    for tasks in found:
        mine = [ids[place] for place in tasks.places]
        if copied and len(mine) >= COPIED_FROM:
            await connection.copy_records_to_table("tasks", records=tasks.records(mine), columns=COLUMNS)
        else:
            columns = mine, tasks.jobs, tasks.keys, tasks.told, tasks.partitions
            await connection.execute(statement("insert_routed"), *tasks.same, *columns)


async def route(connection: Connection, *, batch: int = BATCH) -> int:
    """Route the oldest events; returns how many, 0 if there are none or another router is at work."""
    if not await connection.fetchval(statement("has_events")):
        return 0
    async with faults.transaction(connection, "route"):
        if not await connection.fetchval(statement("lock_router")):
            return 0
        updates = await connection.fetch(statement("take_events"), batch)
        handled = Counter[int](chain.from_iterable(update["jobs"] for update in updates))
        if not handled:
            return 0
        jobs = sorted(handled)
        open_jobs = {row["id"] for row in await connection.fetch(statement("open_jobs"), jobs)}
        tasks = _give_out(updates, open_jobs, await _consumers(connection, updates))
        given = await _insert(connection, tasks, copied=True)
        counts = [given[job] for job in jobs], [handled[job] for job in jobs]
        await connection.execute(statement("routed_jobs"), jobs, *counts)
    return handled.total()


async def _consumers(connection: Connection, updates: Sequence[asyncpg.Record]) -> dict[int, list[asyncpg.Record]]:
    """Who reads what was updated, by the place of the update."""
    sources = [json.loads(update["payload"]) for update in updates]
    rows = await connection.fetch(
        statement("consumers"),
        [update["org_id"] for update in updates],
        *([source.get(name) for source in sources] for name in ("dataset", "generation", "build", "only")),
    )
    found: dict[int, list[asyncpg.Record]] = {}
    for row in rows:
        found.setdefault(int(row["nth"]) - 1, []).append(row)
    return found


def _give_out(
    updates: Sequence[asyncpg.Record], open_jobs: Collection[int], consumers: Mapping[int, Sequence[asyncpg.Record]]
) -> list[_Tasks]:
    """The tasks of all who hear of updates, numbered in the order of the events."""
    found: dict[UUID, _Tasks] = {}
    events: list[tuple[int, int, str, list[tuple[_Tasks, Sequence[str] | None]]]] = []
    for n, hearing in consumers.items():
        update, said = updates[n], json.loads(updates[n]["payload"])
        build = {} if said.get("build") is None else {"build": said["build"]}
        begins = json.dumps({"kind": "update", "dataset": said["dataset"], **build})[:-1]
        ears = [
            (
                found.setdefault(definition["id"], _Tasks.of(definition, update["org_id"])),
                None if definition["execution_strategy"] == "PerUpdate" else said["partitions"],
            )
            for definition in hearing
        ]
        events += [(event, job, begins, ears) for event, job in zip(update["ids"], update["jobs"], strict=True)]
    events.sort(key=itemgetter(0))
    place = 0
    for event, job, begins, ears in events:
        if job not in open_jobs:
            continue
        told = f'{begins}, "update": "{event}"'
        for tasks, partitions in ears:
            if partitions is None:
                tasks.add(place, job, f"cursor:{event}", told + "}")
                place += 1
                continue
            for partition in partitions:
                of_it = f'{told}, "partition": {json.dumps(partition)}}}'
                tasks.add(place, job, f"partition:{event}:{partition}", of_it, partition)
                place += 1
    return [tasks for tasks in found.values() if tasks.places]


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
    tasks = _Tasks.of({**definition, "type": name}, org_id)
    tasks.add(0, job_id, None, json.dumps(trigger))
    await _insert(connection, [tasks])
    return job_id, True


async def add_source(
    connection: Connection, job_id: int, definition: asyncpg.Record, trigger: Mapping[str, Any], *, build: UUID
) -> None:
    """A task of a source in a job that fills a version."""
    name = f"{definition['dag_name']}.{definition['name']}"
    tasks = _Tasks.of({**definition, "type": name}, definition["org_id"])
    tasks.add(0, job_id, None, json.dumps({**trigger, "build": str(build)}))
    await _insert(connection, [tasks])
    await connection.execute(statement("routed_jobs"), [job_id], [1], [0])


async def add_tasks(
    connection: Connection,
    job_id: int,
    definition: Mapping[str, Any] | asyncpg.Record,
    work: Sequence[tuple[str, Mapping[str, Any], str | None]],
) -> None:
    """Tasks of one definition in a job that is open: each by its key, what it is told, and its partition."""
    tasks = _Tasks.of(definition, definition["org_id"])
    for place, (key, event, partition) in enumerate(work):
        tasks.add(place, job_id, key, json.dumps(event), partition)
    added = await _insert(connection, [tasks])
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
