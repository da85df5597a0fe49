"""Events of datasets, and what they cause: from the outbox into tasks, each once, in order per dataset.

An event is a row of the outbox, written in the transaction that caused it and counted in its job (`open_events`): the
job does not end before all that it caused is done. A router takes the oldest ones, gives every definition that reads
the dataset a task per update or per partition, and marks them as done, all in one transaction: a router that is killed
has changed nothing. One router works at a time, and ids of a dataset's events have the order of their commits, so
tasks are given out in the order of updates. What a task is known by (`dedupe_key`) makes a second one impossible.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from aaiclick import faults
from aaiclick.snowflake import get_snowflake_id
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
    "id", "org_id", "job_id", "definition_id", "dedupe_key", "type", "entrypoint", "kwargs", "queue", "max_attempts",
    "timeout_seconds", "concurrency_key", "concurrency_limit", "readiness", "partitions",
)  # fmt: skip
PARTITIONS = COLUMNS.index("partitions")
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
class _Routed:
    """Tasks to insert, column by column."""

    rows: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    definitions: dict[UUID, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = field(
        default_factory=dict[UUID, tuple[str, tuple[Any, ...], tuple[Any, ...]]]
    )
    """Of each definition, what is the same in all of its tasks: thousands come at once."""

    def add(
        self,
        definition: Mapping[str, Any] | asyncpg.Record,
        org_id: UUID,
        job_id: int,
        dedupe_key: str | None,
        told: str,
        partition: str | None = None,
    ) -> int:
        """A task of a definition; `told` is the event as JSON."""
        task_id, definition_id = get_snowflake_id(), definition["id"]
        same = self.definitions.get(definition_id)
        if same is None:
            same = self.definitions[definition_id] = _same(definition)
        said, before, after = same
        partitions = None if partition is None else [partition]
        self.rows.append(
            (task_id, org_id, job_id, definition_id, dedupe_key, *before, f"{said}{told}}}", *after, partitions)
        )
        return task_id


def _same(definition: Mapping[str, Any] | asyncpg.Record) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
    """The beginning of what its tasks are told, and their columns before and after that."""
    limit = 1 if definition["operator"] in ONE_AT_A_TIME else definition["max_concurrency"]
    key = None if limit is None else f"definition:{definition['type']}"
    queue, ready = queue_of(definition["runtime"]), "READY" if key is None else "HELD"
    after = queue, definition["max_attempts"], definition["timeout_seconds"], key, limit, ready
    return f'{{"definition": "{definition["id"]}", "event": ', (definition["type"], ENTRYPOINT), after


async def _insert(connection: Connection, routed: _Routed, *, copied_from: int = COPIED_FROM) -> Counter[int]:
    """Insert tasks, let those go that may run, and wake workers; returns how many of each job there are.

    A task whose work was given out before is left out. There is none, since an event is routed once and a key names its
    event: so nothing is asked before, and only if that fails is it found out which.
    """
    if not routed.rows:
        return Counter()
    rows = routed.rows
    try:
        async with connection.transaction():
            await _put(connection, rows, copied_from)
    except asyncpg.UniqueViolationError:
        known = await connection.fetch(
            statement("known_dedupe_keys"), [row[3] for row in rows], [row[4] for row in rows]
        )
        taken = {(row["definition_id"], row["dedupe_key"]) for row in known}
        rows = [row for row in rows if (row[3], row[4]) not in taken]
        await _put(connection, rows, copied_from)
    await connection.execute(statement("definitions_busy"), sorted(routed.definitions))
    ready = {row[8] for row in rows if row[11] is None}
    if keyed := {(row[1], row[11]) for row in rows if row[11] is not None}:
        ready |= await admit(connection, keyed)
    await notify_ready(connection, ready)
    return Counter(row[2] for row in rows)


async def _put(connection: Connection, rows: Sequence[tuple[Any, ...]], copied_from: int) -> None:
    if len(rows) >= copied_from:
        await connection.copy_records_to_table("tasks", records=rows, columns=COLUMNS)
    elif rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        columns[PARTITIONS] = [None if each is None else each[0] for each in columns[PARTITIONS]]
        await connection.execute(statement("insert_routed"), *columns)


async def route(connection: Connection, *, batch: int = BATCH) -> int:
    """Route the oldest events; returns how many, 0 if there are none or another router is at work."""
    if not await connection.fetchval(statement("has_events")):
        return 0
    async with faults.transaction(connection, "route"):
        if not await connection.fetchval(statement("lock_router")):
            return 0
        events = sorted(await connection.fetch(statement("take_events"), batch), key=lambda event: event["id"])
        if not events:
            return 0
        open_jobs = {row["id"] for row in await connection.fetch(statement("open_jobs"), [e["job_id"] for e in events])}
        consumers = await _consumers(connection, events)
        routed = _Routed()
        for event in events:
            if event["job_id"] in open_jobs:
                for definition in consumers.get(_source(event), ()):
                    _give_out(routed, definition, event)
        tasks = await _insert(connection, routed)
        handled = Counter(event["job_id"] for event in events)
        jobs = sorted(handled)
        await connection.execute(
            statement("routed_jobs"), jobs, [tasks[job] for job in jobs], [handled[job] for job in jobs]
        )
    return len(events)


def _source(event: asyncpg.Record) -> tuple[Any, ...]:
    return event["org_id"], event["dataset"], event["generation"], event["build"], event["only"]


async def _consumers(
    connection: Connection, events: Sequence[asyncpg.Record]
) -> dict[tuple[Any, ...], list[asyncpg.Record]]:
    """Who reads what was updated; a batch has few different sources, and each is looked up once."""
    sources = list(dict.fromkeys(_source(event) for event in events))
    rows = await connection.fetch(statement("consumers"), *(list(column) for column in zip(*sources, strict=True)))
    found: dict[tuple[Any, ...], list[asyncpg.Record]] = {}
    for row in rows:
        found.setdefault(sources[int(row["nth"]) - 1], []).append(row)
    return found


def _give_out(routed: _Routed, definition: asyncpg.Record, event: asyncpg.Record) -> None:
    told = f'{_beginning(event["dataset"], event["build"])}, "update": "{event["id"]}"'
    if definition["execution_strategy"] == "PerUpdate":
        routed.add(definition, event["org_id"], event["job_id"], f"cursor:{event['id']}", told + "}")
        return
    for partition in json.loads(event["partitions"]):
        key = f"partition:{event['id']}:{partition}"
        of_partition = f'{told}, "partition": {json.dumps(partition)}}}'
        routed.add(definition, event["org_id"], event["job_id"], key, of_partition, partition)


@lru_cache(maxsize=1024)
def _beginning(dataset: str, build: str | None) -> str:
    """What tasks are told of an update, as JSON without its end: all but the number is the same for thousands."""
    said = {"kind": "update", "dataset": dataset}
    return json.dumps(said if build is None else {**said, "build": build})[:-1]


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
    routed = _Routed()
    routed.add({**definition, "type": name}, org_id, job_id, None, json.dumps(trigger))
    await _insert(connection, routed)
    return job_id, True


async def add_source(
    connection: Connection, job_id: int, definition: asyncpg.Record, trigger: Mapping[str, Any], *, build: UUID
) -> None:
    """A task of a source in a job that fills a version."""
    routed = _Routed()
    name = f"{definition['dag_name']}.{definition['name']}"
    event = {**trigger, "build": str(build)}
    routed.add({**definition, "type": name}, definition["org_id"], job_id, None, json.dumps(event))
    await _insert(connection, routed)
    await connection.execute(statement("routed_jobs"), [job_id], [1], [0])


async def add_tasks(
    connection: Connection,
    job_id: int,
    definition: Mapping[str, Any] | asyncpg.Record,
    work: Sequence[tuple[str, Mapping[str, Any], str | None]],
) -> None:
    """Tasks of one definition in a job that is open: each by its key, what it is told, and its partition."""
    routed = _Routed()
    for key, event, partition in work:
        routed.add(definition, definition["org_id"], job_id, key, json.dumps(event), partition)
    added = await _insert(connection, routed, copied_from=len(work) + 1)
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
