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

from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store.engine.claims import notify_ready
from aaiclick.store.engine.concurrency_keys import admit_held_tasks
from aaiclick.store.engine.new_jobs import NewJob, insert_job
from aaiclick.store.engine.runtime_dispatches import runtime_queue
from aaiclick.store.statements import statement
from aaiclick.store.task_options import OPTION_COLUMNS, TaskOptions

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

    DefinitionRow = Mapping[str, Any] | asyncpg.Record

EVENT_CHANNEL = "aaiclick_events"
"""Notified when there are events to route."""

ENTRYPOINT = "aaiclick.catalog.execution.definition_task.run_definition"
"""Entrypoint of all tasks of definitions."""

TASK_COLUMNS = (
    "definition_id", "org_id", "type", "entrypoint", "readiness", *OPTION_COLUMNS, "id", "job_id", "dedupe_key",
    "kwargs", "partitions",
)  # fmt: skip
COPY_MIN_TASKS = 50
"""Fewer tasks are inserted by a statement, which also works under row-level security."""

UNLIMITED_SECONDS = 2**31 - 1
"""Timeout of definitions that run until they are stopped: NULL would be the default of the worker."""

SEQUENTIAL_OPERATORS = frozenset({"range_aggregator", "alert_evaluate", "follower", "block_follower"})
"""Stateful operators: their tasks run one at a time."""


@dataclass(frozen=True, slots=True)
class Event:
    """A generation of a dataset was updated: these partitions of it ('' is the whole).

    While a version is filled, `build` is that version: only its definitions receive the event. `only` names one
    definition. `cursor` identifies the update: events with the same one create one task per definition.
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
        fields: dict[str, object] = {
            "dataset": str(self.dataset),
            "generation": str(self.generation),
            "partitions": self.partitions,
        }
        if self.build is not None:
            fields["build"] = str(self.build)
        if self.only is not None:
            fields["only"] = str(self.only)
        return json.dumps(fields)


async def emit_events(connection: Connection, events: Sequence[Event]) -> Counter[int]:
    """Insert events into the outbox, in the caller's transaction; returns counts per job for `count_events`."""
    if not events:
        return Counter()
    await connection.execute(statement("lock_events"), [str(event.generation) for event in events])
    await connection.fetchval(
        statement("emit_events"),
        [event.org_id for event in events],
        [event.job_id for event in events],
        [event.payload() for event in events],
        [event.cursor for event in events],
    )
    return Counter(event.job_id for event in events)


@dataclass(slots=True)
class TaskBatch:
    """New tasks of one definition as columns: there may be thousands, with mostly equal values."""

    definition_id: UUID
    org_id: UUID
    options: TaskOptions
    shared_values: tuple[object, ...]
    """Other values shared by all tasks, in the order of the statement's parameters; definition and org come first."""

    is_coalesced: bool = False
    """Whether all updates that wait become one task."""

    positions: list[int] = field(default_factory=list[int])
    """Positions of these tasks in the list of all new ids."""

    jobs: list[int] = field(default_factory=list[int])
    keys: list[str | None] = field(default_factory=list[str | None])
    event_jsons: list[str] = field(default_factory=list[str])
    """Event of each task, as JSON text."""

    partitions: list[str | None] = field(default_factory=list[str | None])

    @classmethod
    def for_definition(cls, definition: DefinitionRow, org_id: UUID) -> TaskBatch:
        limit = 1 if definition["operator"] in SEQUENTIAL_OPERATORS else definition["max_concurrency"]
        is_coalesced = definition.get("execution_strategy") == "Coalesce"
        if is_coalesced and limit is None:
            limit = 1  # updates wait, and so become one task, only while another task runs
        key = None if limit is None else f"definition:{definition['type']}"
        options = TaskOptions(
            max_attempts=definition["max_attempts"],
            queue=runtime_queue(definition["runtime"]),
            timeout_seconds=definition["timeout_seconds"],
            lease_seconds=definition["heartbeat_timeout_seconds"],
            concurrency_key=key,
            concurrency_limit=limit,
        )
        kwargs_prefix = f'{{"definition": "{definition["id"]}", "event": '
        readiness = "READY" if key is None else "HELD"
        shared = (definition["id"], org_id, definition["type"], ENTRYPOINT, kwargs_prefix, readiness)
        return cls(definition["id"], org_id, options, shared, is_coalesced)

    def append(
        self, position: int, job_id: int, key: str | None, event_json: str, partition: str | None = None
    ) -> None:
        self.positions.append(position)
        self.jobs.append(job_id)
        self.keys.append(key)
        self.event_jsons.append(event_json)
        self.partitions.append(partition)

    def records(self, ids: Sequence[int]) -> Iterator[tuple[object, ...]]:
        """Rows for COPY."""
        definition, org, task_type, entrypoint, kwargs_prefix, readiness = self.shared_values
        kwargs = [f"{kwargs_prefix}{event_json}}}" for event_json in self.event_jsons]
        partitions = [None if partition is None else [partition] for partition in self.partitions]
        constants = map(repeat, (definition, org, task_type, entrypoint, readiness, *self.options.values()))
        return zip(*constants, ids, self.jobs, self.keys, kwargs, partitions, strict=False)

    def keep_first(self, count: int) -> None:
        """Drop all tasks but the first ones."""
        columns: list[list[Any]] = [self.positions, self.jobs, self.keys, self.event_jsons, self.partitions]
        for column in columns:
            del column[count:]

    def drop_duplicates(self, keys: set[str]) -> None:
        """Drop the tasks that have one of these keys, and all but the first of those that share one."""
        used_keys: set[str | None] = {*keys}
        indexes: list[int] = []
        for n, key in enumerate(self.keys):
            if key is None or key not in used_keys:
                indexes.append(n)
                used_keys.add(key)
        columns: list[list[Any]] = [self.positions, self.jobs, self.keys, self.event_jsons, self.partitions]
        for column in columns:
            column[:] = [column[n] for n in indexes]


async def insert_tasks(connection: Connection, batches: Sequence[TaskBatch], *, use_copy: bool = False) -> Counter[int]:
    """Insert tasks, admit them, and notify workers; returns counts per job.

    Tasks with existing dedupe keys are skipped. Duplicates are rare, so they are searched only if the insert fails.
    """
    if not batches:
        return Counter()
    ids = get_snowflake_ids(sum(len(batch.positions) for batch in batches))
    try:
        async with connection.transaction():
            await _insert_batches(connection, batches, ids, use_copy=use_copy)
    except asyncpg.UniqueViolationError:
        for batch in batches:
            duplicates = await connection.fetch(statement("find_dedupe_keys"), batch.definition_id, batch.keys)
            batch.drop_duplicates({row["dedupe_key"] for row in duplicates})
        batches = [batch for batch in batches if batch.positions]
        await _insert_batches(connection, batches, ids, use_copy=use_copy)
    await connection.execute(statement("mark_definitions_running"), sorted(batch.definition_id for batch in batches))
    ready = {batch.options.queue for batch in batches if batch.options.concurrency_key is None}
    ready |= await admit_held_tasks(connection, ((batch.org_id, batch.options.concurrency_key) for batch in batches))
    await notify_ready(connection, ready)
    return Counter(chain.from_iterable(batch.jobs for batch in batches))


async def _insert_batches(
    connection: Connection, batches: Sequence[TaskBatch], ids: Sequence[int], *, use_copy: bool
) -> None:
    for batch in batches:
        batch_ids = [ids[position] for position in batch.positions]
        if use_copy and len(batch_ids) >= COPY_MIN_TASKS:
            await connection.copy_records_to_table("tasks", records=batch.records(batch_ids), columns=TASK_COLUMNS)
        else:
            columns = batch_ids, batch.jobs, batch.keys, batch.event_jsons, batch.partitions
            await connection.execute(
                statement("insert_definition_tasks"), *batch.shared_values, *columns, *batch.options.values()
            )


async def start_source_job(
    connection: Connection,
    definition: DefinitionRow,
    trigger: Mapping[str, object],
    *,
    idempotency_key: str | None = None,
) -> tuple[int, bool]:
    """Start a source: a job with one task, in the caller's transaction, once per idempotency key.

    Returns the job's id, and whether it is new.
    """
    job_id, name = get_snowflake_id(), f"{definition['dag_name']}.{definition['name']}"
    org_id: UUID = definition["org_id"]
    job = NewJob(
        job_id, name, org_id, _find_job_timeout(definition), idempotency_key, definition["id"],
        definition["dag_version_id"], json.dumps(trigger),
    )  # fmt: skip
    if (existing_id := await insert_job(connection, job, 1)) is not None:
        return existing_id, False
    tasks = TaskBatch.for_definition({**definition, "type": name}, org_id)
    tasks.append(0, job_id, None, json.dumps(trigger))
    await insert_tasks(connection, [tasks])
    return job_id, True


def _find_job_timeout(definition: DefinitionRow) -> float | None:
    """Return the timeout of the job of a source: the default one, or that of its task if this is longer.

    Without a timeout, a run that never ends would block the schedule of its source for ever.
    """
    task_timeout = definition["timeout_seconds"] or 0
    if task_timeout >= UNLIMITED_SECONDS:
        return None
    return max(get_settings().job_default_timeout_seconds, task_timeout)


async def add_source_task(
    connection: Connection, job_id: int, definition: asyncpg.Record, trigger: Mapping[str, object], *, build: UUID
) -> None:
    """Add a task of a source to the fill job of a version."""
    name = f"{definition['dag_name']}.{definition['name']}"
    tasks = TaskBatch.for_definition({**definition, "type": name}, definition["org_id"])
    tasks.append(0, job_id, None, json.dumps({**trigger, "build": str(build)}))
    await insert_tasks(connection, [tasks])
    await connection.execute(statement("add_routed_tasks"), [job_id], [1], [0])


async def add_tasks(
    connection: Connection,
    job_id: int,
    definition: DefinitionRow,
    runs: Sequence[tuple[str, Mapping[str, object], str | None]],
) -> None:
    """Add tasks of one definition to an open job: (dedupe key, event, partition) each."""
    tasks = TaskBatch.for_definition(definition, definition["org_id"])
    for position, (key, event, partition) in enumerate(runs):
        tasks.append(position, job_id, key, json.dumps(event), partition)
    added = await insert_tasks(connection, [tasks])
    await connection.execute(statement("add_routed_tasks"), [job_id], [added[job_id]], [0])


async def open_job(
    connection: Connection, org_id: UUID, name: str, dag_version_id: UUID | None, trigger: Mapping[str, object]
) -> int:
    """Insert a job without tasks; the caller emits its events in the same transaction."""
    job_id = get_snowflake_id()
    job = NewJob(job_id, name, org_id, dag_version_id=dag_version_id, trigger=json.dumps(trigger))
    await insert_job(connection, job, 0)
    return job_id


async def count_events(connection: Connection, events: Counter[int]) -> None:
    """Add events that were emitted outside of a completion to the counters of their jobs."""
    jobs = sorted(events)
    await connection.execute(statement("add_routed_tasks"), jobs, [0] * len(jobs), [-events[job] for job in jobs])
