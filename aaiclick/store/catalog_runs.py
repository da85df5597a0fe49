"""What tasks of definitions read and leave behind: generations, tickets, partitions, inputs, states, events.

The rows of an update are put into ClickHouse while its lease and its generation are locked here (`publishing`): a
worker that has lost its lease changes nothing, and of two updates the one that read later wins. Everything else is
written in the transaction that completes the task (`leave_behind`): a task that dies before that is run again, and does
all of it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick import faults
from aaiclick.errors import LeaseLost
from aaiclick.store.catalog_events import Event, count_events, emit
from aaiclick.store.deadlocks import again
from aaiclick.store.leases import Lease
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """What a partition has now, and what that was made of."""

    key: str
    rows: int | None
    digest: str | None = None
    inputs_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """New rows of a generation. `whole`: partitions that are not named are gone."""

    dataset: str
    generation: str
    ticket: int
    columns: dict[str, Any]
    schema_hash: str
    partitions: tuple[PartitionUpdate, ...]
    rows: int | None = None
    whole: bool = False
    changed: tuple[str, ...] | None = None
    """Partitions to tell of; None: nobody is told."""


@dataclass(slots=True)
class Effects:
    """Everything that the completion of a task writes besides its result."""

    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    input_versions: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Dataset, partition and when that was updated."""
    states: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])
    """Definition, key and state."""
    updates: list[Update] = field(default_factory=list[Update])
    lineage: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict[str, list[tuple[str, str, str]]])
    """Of each output dataset: column, input dataset, input column."""
    definition: str = ""
    build: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)


async def find_work(connection: Connection, definition_id: UUID) -> tuple[asyncpg.Record | None, list[asyncpg.Record]]:
    """A definition, and the generations that it reads and makes, as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        definition = await connection.fetchrow(statement("definition_work"), definition_id)
        return definition, await connection.fetch(statement("definition_datasets"), definition_id)


WORK_FIELDS = ("id", "org_id", "dag_name", "name", "config_hash", "spec", "memory")
DATASET_FIELDS = ("role", "nth", "dataset", "generation", "storage_location", "columns", "files", "updated_at")
PARTITION_FIELDS = ("partition_key", "ticket", "recorded_ticket", "rows", "digest", "inputs_hash", "task_id")
_UUIDS = frozenset({"id", "org_id", "memory", "dataset", "generation"})
_LONG = frozenset({"ticket", "recorded_ticket", "task_id"})
"""Numbers that are text in JSON."""


def work_form(definition: asyncpg.Record, datasets: Sequence[asyncpg.Record]) -> dict[str, Any]:
    """What `find_work` found, as JSON."""
    return {
        "definition": _form(definition, WORK_FIELDS),
        "datasets": [_form(each, DATASET_FIELDS) for each in datasets],
    }


def work_of(form: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    return _row(form["definition"]), [_row(each) for each in form["datasets"]]


def partition_form(row: asyncpg.Record) -> dict[str, Any]:
    return _form(row, PARTITION_FIELDS)


def partition_of(form: Mapping[str, Any]) -> Mapping[str, Any]:
    return _row(form)


def _form(row: asyncpg.Record, fields: Sequence[str]) -> dict[str, Any]:
    return {name: None if row[name] is None else _plain(row[name], name in _LONG) for name in fields}


def _plain(value: Any, long: bool) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if long or isinstance(value, UUID) else value


def _row(form: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else _value(name, value) for name, value in form.items()}


def _value(name: str, value: Any) -> Any:
    if name in _UUIDS:
        return UUID(value)
    if name in _LONG:
        return int(value)
    return datetime.fromisoformat(value) if name == "updated_at" else value


async def take_ticket(connection: Connection) -> int:
    """Taken before anything is read: who has the higher one has read later."""
    ticket: int = await connection.fetchval(statement("take_ticket"))
    return ticket


async def last_ticket(connection: Connection) -> int:
    """The highest one that anybody can have."""
    ticket: int = await connection.fetchval(statement("last_ticket"))
    return ticket


async def partitions_of(
    connection: Connection, generation: UUID, keys: Sequence[str] | None = None
) -> dict[str, asyncpg.Record]:
    rows = await connection.fetch(statement("partitions_of"), generation, None if keys is None else list(keys))
    return {row["partition_key"]: row for row in rows}


async def is_generation_of(connection: Connection, generation: UUID, datasets: Sequence[UUID]) -> bool:
    return bool(await connection.fetchval(statement("is_generation_of"), generation, list(datasets)))


async def input_digest(connection: Connection, generation: UUID) -> str:
    """The same for the same content, as far as that is known."""
    return str(await connection.fetchval(statement("input_digest"), generation))


async def get_state(connection: Connection, org_id: UUID, definition_id: UUID, key: str) -> dict[str, Any] | None:
    found = await connection.fetchval(statement("get_state"), org_id, definition_id, key)
    return None if found is None else json.loads(found)


@asynccontextmanager
async def publishing(
    connection: Connection, lease: Lease, generation: UUID, partition: str, ticket: int
) -> AsyncGenerator[bool]:
    """Hold the lease and the generation while rows are put in place; False if a newer update has been there."""
    async with faults.transaction(connection, "publish"):
        if await connection.fetchrow(statement("hold_lease"), lease.task_id, lease.attempt, lease.token) is None:
            raise LeaseLost(
                f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease; no rows were published.",
                remedy="Stop: another attempt is at work or has finished.",
            )
        await connection.execute(statement("lock_generation"), generation)
        yield await connection.fetchval(statement("mark_update"), generation, partition, ticket) is not None


async def point_files(
    connection: Connection,
    generation: UUID,
    mode: str,
    partition: str,
    merged: Sequence[str],
    files: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Any],
) -> None:
    """Say which files a generation is from now on; within `publishing`, so by the holder of the lease alone."""
    gone = [*merged, *(str(each["name"]) for each in files)]
    await connection.execute(
        statement("point_files"), generation, mode, partition, gone, json.dumps(list(files)), json.dumps(columns)
    )


async def attach_files(
    connection: Connection, generation: UUID, files: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]
) -> None:
    """Say where the files of another writer are that a generation is; within `publishing`."""
    await connection.execute(statement("attach_files"), generation, json.dumps(list(files)), json.dumps(columns))


async def locations_of(connection: Connection, generation: UUID) -> list[str]:
    """Where a generation is, and the registered ranges of its dataset that were made in the same way."""
    return [row["storage_location"] for row in await connection.fetch(statement("generation_locations"), generation)]


async def leave_behind(
    connection: Connection, ended: Sequence[asyncpg.Record], effects: Mapping[int, str]
) -> Counter[int]:
    """Write what completed tasks leave behind; returns how many events were emitted for each job."""
    events: list[Event] = []
    completed: list[tuple[asyncpg.Record, dict[str, Any]]] = [
        (row, json.loads(effects[row["id"]])) for row in ended if row["status"] == "COMPLETED" and row["id"] in effects
    ]
    await _lock_generations(connection, [left for _, left in completed])
    for row, left in completed:
        await connection.execute(
            statement("set_outputs"), row["id"], json.dumps(left["outputs"]), json.dumps(left["input_versions"])
        )
        if left["inputs"]:
            datasets, partitions, versions = zip(*left["inputs"], strict=True)
            moments = [datetime.fromisoformat(each) for each in versions]
            await connection.execute(statement("keep_inputs"), row["id"], list(datasets), list(partitions), moments)
        events += await _write_updates(connection, row, left)
    return await emit(connection, events)


async def emit_updates(connection: Connection, lease: Lease, effects: str, cursor: str) -> None:
    """Write the updates of a task that still runs, and emit their events; raises LeaseLost.

    The caller has put the rows in place. The commit waits for the disk: the task goes on as soon as it has the answer.
    """

    async def work() -> None:
        async with faults.transaction(connection, "emit"):
            await connection.execute(statement("lock_job_of_task"), lease.task_id)
            row = await connection.fetchrow(statement("hold_emitter"), lease.task_id, lease.attempt, lease.token)
            if row is None:
                raise LeaseLost(
                    f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease; no event was emitted.",
                    remedy="Stop: another attempt is at work or has finished.",
                )
            left = json.loads(effects)
            await _lock_generations(connection, [left])
            await count_events(connection, await emit(connection, await _write_updates(connection, row, left, cursor)))

    await again(work)


async def _lock_generations(connection: Connection, effects: Sequence[Mapping[str, Any]]) -> None:
    generations = {update["generation"] for left in effects for update in left["updates"]}
    if generations:
        await connection.execute(statement("lock_generations"), list(generations))


async def _write_updates(
    connection: Connection, row: asyncpg.Record, left: Mapping[str, Any], cursor: str | None = None
) -> list[Event]:
    """Write states, lineage and updates of a task; returns the events to emit."""
    events: list[Event] = []
    for definition, key, state in left["states"]:
        await connection.execute(statement("put_state"), row["org_id"], definition, key, json.dumps(state))
    for dataset, edges in left["lineage"].items():
        await _keep_lineage(connection, UUID(dataset), edges, left["definition"])
    for update in left["updates"]:
        await _record(connection, row["id"], update)
        if update["changed"] is not None and row["job_id"] is not None:
            build = left["build"]
            events.append(
                Event(
                    row["org_id"], row["job_id"], UUID(update["dataset"]), UUID(update["generation"]),
                    tuple(update["changed"]), None if build is None else UUID(build),
                    cursor=f"ticket-{update['ticket']}" if cursor is None else cursor,
                )
            )  # fmt: skip
    return events


async def _keep_lineage(
    connection: Connection, dataset: UUID, edges: Sequence[tuple[str, str, str]], definition: str
) -> None:
    await connection.execute(statement("forget_lineage"), dataset)
    columns = [[edge[place] for edge in edges] for place in range(3)]
    await connection.execute(statement("keep_lineage"), dataset, *columns, definition)


async def _record(connection: Connection, task_id: int, update: Mapping[str, Any]) -> None:
    generation, ticket = update["generation"], update["ticket"]
    partitions = update["partitions"]
    keys = [each["key"] for each in partitions]
    await connection.execute(
        statement("record_partitions"), generation, ticket, keys, [each["rows"] for each in partitions],
        [each["digest"] for each in partitions], [each["inputs_hash"] for each in partitions], task_id,
    )  # fmt: skip
    if update["whole"]:
        await connection.execute(statement("forget_partitions"), generation, ticket, keys)
    await connection.execute(
        statement("record_generation"), generation, ticket, json.dumps(update["columns"]), update["schema_hash"],
        update["rows"],
    )  # fmt: skip
