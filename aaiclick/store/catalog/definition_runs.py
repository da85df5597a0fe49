"""Reads and effects of tasks of definitions: generations, tickets, partitions, inputs, states, events.

Rows are moved into a table of ClickHouse while the lease and the generation are locked (`lock_for_publish`): a worker
without a valid lease changes nothing, and of two updates the one with the later read wins. Publications that were
tested against rows of other updates are announced before (`announce_publish`). All other effects are
written in the transaction that completes the task (`write_effects`), so a repeated attempt repeats all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from aaiclick import failpoints
from aaiclick.errors import LeaseLost
from aaiclick.store.catalog.data_test_results import write_test_results
from aaiclick.store.catalog.dataset_events import Event, count_events, emit_events
from aaiclick.store.catalog.freshness import record_updates
from aaiclick.store.deadlock_retry import retry_on_deadlock
from aaiclick.store.engine.incidents import (
    MAX_CAUSE_CHARACTERS,
    Occurrence,
    close_incident_of,
    make_fingerprint,
    record_incidents,
)
from aaiclick.store.engine.leases_and_outcomes import Lease
from aaiclick.store.enums import Severity
from aaiclick.store.json_types import BigInt, JsonText
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.postgres_connections import Connection


@dataclass(frozen=True, slots=True)
class DefinitionDataset:
    """A generation that a definition reads or writes."""

    role: Literal["input", "output", "rejected", "reference"]
    nth: int
    dataset: UUID
    generation: UUID
    storage_location: str
    columns: JsonText | None
    files: JsonText
    updated_at: datetime | None
    publishes: BigInt = 0
    recent_rows: list[int] = field(default_factory=list[int])
    """Numbers of rows of the last updates of an output with data tests, newest first."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition, for its tasks; `memory` is the definition that owns the operator state."""

    id: UUID
    org_id: UUID
    dag_name: str
    name: str
    config_hash: str
    spec: JsonText
    memory: UUID
    datasets: list[DefinitionDataset]


@dataclass(frozen=True, slots=True)
class Partition:
    """A recorded partition of a generation."""

    partition_key: str
    ticket: BigInt
    recorded_ticket: BigInt
    rows: int | None
    digest: str | None
    inputs_hash: str | None
    task_id: BigInt | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """New content of a partition, and the hash of the inputs it was computed from."""

    key: str
    rows: int | None
    digest: str | None = None
    inputs_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """New rows of a generation. `whole`: all other partitions were removed."""

    dataset: str
    generation: str
    ticket: int
    columns: dict[str, Any]
    schema_hash: str
    partitions: tuple[PartitionUpdate, ...]
    rows: int | None = None
    whole: bool = False
    changed: tuple[str, ...] | None = None
    """Partitions of the event to emit; None: no event."""


@dataclass(frozen=True, slots=True)
class AlertTransition:
    """An alert that was raised or cleared for a key; `message` may contain data."""

    key: str
    raised: bool
    severity: Severity
    message: str


class PublishOutcome(StrEnum):
    """Answer to a request to publish staged rows."""

    PUBLISHED = "published"
    SUPERSEDED = "superseded"
    """Newer rows are there."""
    STALE = "stale"
    """Rows were published after the data tests have read the dataset: they must run again."""
    BUSY = "busy"
    """Another attempt has announced a publication and holds its lease: try again soon."""


@dataclass(slots=True)
class Effects:
    """Writes of a completion besides the result of the task."""

    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    input_versions: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """(dataset, partition, time of its last update)."""
    states: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])
    """(definition, key, state)."""
    updates: list[Update] = field(default_factory=list[Update])
    lineage: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict[str, list[tuple[str, str, str]]])
    """Output generation → (column, input dataset, input column)."""
    alerts: list[AlertTransition] = field(default_factory=list["AlertTransition"])
    definition: str = ""
    build: str | None = None
    tests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Results of data tests (`aaiclick.data.compile.data_test_queries.DataTestResult`)."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)


async def load_definition(connection: Connection, definition_id: UUID) -> Definition | None:
    """A definition with its input and output generations, in one snapshot."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        row = await connection.fetchrow(statement("get_definition"), definition_id)
        datasets = await connection.fetch(statement("list_definition_datasets"), definition_id)
    if row is None:
        return None
    return Definition(
        row["id"], row["org_id"], row["dag_name"], row["name"], row["config_hash"], row["spec"], row["memory"],
        [DefinitionDataset(*(dataset[field.name] for field in fields(DefinitionDataset))) for dataset in datasets],
    )  # fmt: skip


async def take_ticket(connection: Connection) -> int:
    """Take a ticket before reading inputs: a higher ticket means a later read."""
    ticket: int = await connection.fetchval(statement("take_ticket"))
    return ticket


async def get_last_ticket(connection: Connection) -> int:
    """The highest ticket taken so far."""
    ticket: int = await connection.fetchval(statement("get_last_ticket"))
    return ticket


async def load_partitions(
    connection: Connection, generation: UUID, keys: Sequence[str] | None = None
) -> dict[str, Partition]:
    rows = await connection.fetch(statement("load_partitions"), generation, None if keys is None else list(keys))
    return {row["partition_key"]: Partition(*row.values()) for row in rows}


async def is_generation_of(connection: Connection, generation: UUID, datasets: Sequence[UUID]) -> bool:
    return bool(await connection.fetchval(statement("is_generation_of"), generation, list(datasets)))


async def load_input_digest(connection: Connection, generation: UUID) -> str:
    """A digest of the content of a generation; equal for equal content where partitions have digests."""
    return str(await connection.fetchval(statement("load_input_digest"), generation))


async def get_state(connection: Connection, org_id: UUID, definition_id: UUID, key: str) -> dict[str, object] | None:
    state = await connection.fetchval(statement("get_operator_state"), org_id, definition_id, key)
    return None if state is None else json.loads(state)


@asynccontextmanager
async def lock_for_publish(
    connection: Connection,
    lease: Lease,
    generation: UUID,
    partition: str,
    ticket: int,
    publishes: int | None = None,
    *,
    announced: bool = False,
) -> AsyncGenerator[PublishOutcome]:
    """Lock the lease and the generation for a publish; yields whether that is allowed.

    With `publishes`, it is counted, and refused if others were since the data tests have read the generation.
    `announced`: by `announce_publish`, since ClickHouse does not roll back with this transaction.
    """
    async with failpoints.transaction(connection, "publish"):
        await _lock_lease_and_generation(connection, lease, generation)
        intent = lease.token if announced else None
        if publishes is not None and not await _count_publish(connection, generation, publishes, intent):
            yield PublishOutcome.STALE
            return
        is_newest = await connection.fetchval(statement("mark_partition_update"), generation, partition, ticket)
        yield PublishOutcome.SUPERSEDED if is_newest is None else PublishOutcome.PUBLISHED


async def announce_publish(
    connection: Connection,
    lease: Lease,
    generation: UUID,
    table: str,
    publishes: int,
    drop_table: Callable[[str], Awaitable[None]],
) -> PublishOutcome:
    """Announce the publication of a staged table; PUBLISHED if it is next.

    A worker that dies after the statement of ClickHouse and before the commit leaves rows that were never counted. The
    intent, committed before, makes the next attempt count them. That attempt drops the staged table first, since
    ClickHouse may still execute the statement of a client that is gone.
    """
    async with failpoints.transaction(connection, "announce_publish"):
        await _lock_lease_and_generation(connection, lease, generation)
        intent = await connection.fetchrow(statement("get_publish_intent"), generation)
        if intent is None or intent["publishes"] != publishes:
            return PublishOutcome.STALE
        if intent["table"] is not None and intent["lease"] != lease.token:
            if intent["live"]:
                return PublishOutcome.BUSY
            await drop_table(intent["table"])
            await connection.execute(statement("settle_publish_intent"), generation)
            return PublishOutcome.STALE
        await connection.execute(statement("set_publish_intent"), generation, table, lease.task_id, lease.token)
        return PublishOutcome.PUBLISHED


async def _lock_lease_and_generation(connection: Connection, lease: Lease, generation: UUID) -> None:
    if await connection.fetchrow(statement("lock_lease"), lease.task_id, lease.attempt, lease.token) is None:
        raise LeaseLost(
            f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease; no rows were published.",
            remedy="Stop: another attempt runs or has finished.",
        )
    await connection.execute(statement("lock_generation"), generation)


async def _count_publish(connection: Connection, generation: UUID, publishes: int, intent: UUID | None) -> bool:
    """Count a publication; False if there were others than the `publishes` that data tests have read."""
    return await connection.fetchval(statement("count_publish"), generation, publishes, intent) is not None


async def set_generation_files(
    connection: Connection,
    generation: UUID,
    mode: str,
    partition: str,
    merged: Sequence[str],
    files: Sequence[Mapping[str, object]],
    columns: Mapping[str, object],
) -> None:
    """Set the files of a generation; within `lock_for_publish`, so only with a valid lease."""
    replaced = [*merged, *(str(file["name"]) for file in files)]
    await connection.execute(
        statement("set_generation_files"),
        generation,
        mode,
        partition,
        replaced,
        json.dumps(list(files)),
        json.dumps(columns),
    )


async def set_external_files(
    connection: Connection, generation: UUID, files: Sequence[Mapping[str, object]], columns: Mapping[str, object]
) -> None:
    """Set the external files of a generation, written by another program; within `lock_for_publish`."""
    await connection.execute(statement("set_external_files"), generation, json.dumps(list(files)), json.dumps(columns))


async def load_locations(connection: Connection, generation: UUID) -> list[str]:
    """Locations of a generation and of the registered ranges with the same configuration."""
    return [row["storage_location"] for row in await connection.fetch(statement("load_locations"), generation)]


async def write_effects(
    connection: Connection, ended: Sequence[asyncpg.Record], effects: Mapping[int, str]
) -> Counter[int]:
    """Write the effects of completed tasks; returns the number of emitted events per job."""
    events: list[Event] = []
    completed: list[tuple[asyncpg.Record, dict[str, Any]]] = [
        (row, json.loads(effects[row["id"]])) for row in ended if row["status"] == "COMPLETED" and row["id"] in effects
    ]
    await _lock_generations(connection, [task_effects for _, task_effects in completed])
    for row, task_effects in completed:
        await connection.execute(
            statement("set_task_outputs"),
            row["id"],
            json.dumps(task_effects["outputs"]),
            json.dumps(task_effects["input_versions"]),
        )
        if task_effects["inputs"]:
            datasets, partitions, versions = zip(*task_effects["inputs"], strict=True)
            moments = [datetime.fromisoformat(version) for version in versions]
            await connection.execute(
                statement("insert_task_inputs"), row["id"], list(datasets), list(partitions), moments
            )
        events += await _write_updates(connection, row, task_effects)
        if task_effects.get("alerts"):
            await _write_alerts(connection, row, task_effects["alerts"])
    await record_updates(
        connection, [update["generation"] for _, task_effects in completed for update in task_effects["updates"]]
    )
    tested = [(row, task_effects["tests"]) for row, task_effects in completed if task_effects.get("tests")]
    await write_test_results(connection, [((row["id"], row["attempt"]), tests) for row, tests in tested])
    return await emit_events(connection, events)


async def emit_updates(connection: Connection, lease: Lease, effects: str, cursor: str) -> None:
    """Write the updates of a running task and emit their events; raises LeaseLost.

    The caller has published the rows. The commit is durable, since the task continues after it.
    """

    async def emit_in_transaction() -> None:
        async with failpoints.transaction(connection, "emit"):
            await connection.execute(statement("lock_job_of_task"), lease.task_id)
            row = await connection.fetchrow(statement("lock_emitting_lease"), lease.task_id, lease.attempt, lease.token)
            if row is None:
                raise LeaseLost(
                    f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease; no event was emitted.",
                    remedy="Stop: another attempt runs or has finished.",
                )
            task_effects = json.loads(effects)
            await _lock_generations(connection, [task_effects])
            await write_test_results(connection, [((lease.task_id, lease.attempt), task_effects.get("tests") or ())])
            events = await _write_updates(connection, row, task_effects, cursor)
            await record_updates(connection, [update["generation"] for update in task_effects["updates"]])
            await count_events(connection, await emit_events(connection, events))

    await retry_on_deadlock(emit_in_transaction)


async def _lock_generations(connection: Connection, effects: Sequence[Mapping[str, Any]]) -> None:
    generations = {update["generation"] for task_effects in effects for update in task_effects["updates"]}
    if generations:
        await connection.execute(statement("lock_generations"), list(generations))


async def _write_updates(
    connection: Connection, row: asyncpg.Record, effects: Mapping[str, Any], cursor: str | None = None
) -> list[Event]:
    """Write states, lineage and updates of a task; returns the events to emit."""
    events: list[Event] = []
    for definition, key, state in effects["states"]:
        await connection.execute(statement("put_operator_state"), row["org_id"], definition, key, json.dumps(state))
    for generation, edges in effects["lineage"].items():
        await _write_lineage(connection, UUID(generation), edges, effects["definition"])
    for update in effects["updates"]:
        await _record_update(connection, row["id"], update)
        if update["changed"] is not None and row["job_id"] is not None:
            build = effects["build"]
            events.append(
                Event(
                    row["org_id"], row["job_id"], UUID(update["dataset"]), UUID(update["generation"]),
                    tuple(update["changed"]), None if build is None else UUID(build),
                    cursor=f"ticket-{update['ticket']}" if cursor is None else cursor,
                )
            )  # fmt: skip
    return events


async def _write_alerts(connection: Connection, row: asyncpg.Record, alerts: Sequence[Mapping[str, Any]]) -> None:
    """Open and close the incidents of alerts that were raised and cleared."""
    name = await connection.fetchrow(statement("get_definition_of_task"), row["id"])
    if name is None:
        return
    task_type = f"{name['dag_name']}.{name['name']}"
    raised: list[Occurrence] = []
    for alert in alerts:
        fingerprint = make_fingerprint(task_type, alert["key"])
        if not alert["raised"]:
            await close_incident_of(connection, row["org_id"], "alert_raised", fingerprint)
            continue
        raised.append(
            Occurrence(
                row["org_id"], "alert_raised", fingerprint, alert["severity"], f"Alert {task_type} was raised",
                str(alert["message"])[:MAX_CAUSE_CHARACTERS], name["dag_name"], name["job_name"], task_type,
                job_id=row["job_id"], task_id=row["id"],
            )
        )  # fmt: skip
    await record_incidents(connection, raised)


async def _write_lineage(
    connection: Connection, generation: UUID, edges: Sequence[tuple[str, str, str]], definition: str
) -> None:
    await connection.execute(statement("delete_lineage"), generation)
    columns = [[edge[index] for edge in edges] for index in range(3)]
    await connection.execute(statement("insert_lineage"), generation, *columns, definition)


async def _record_update(connection: Connection, task_id: int, update: Mapping[str, Any]) -> None:
    generation, ticket = update["generation"], update["ticket"]
    partitions = update["partitions"]
    keys = [partition["key"] for partition in partitions]
    await connection.execute(
        statement("record_partitions"), generation, ticket, keys, [partition["rows"] for partition in partitions],
        [partition["digest"] for partition in partitions],
        [partition["inputs_hash"] for partition in partitions], task_id,
    )  # fmt: skip
    if update["whole"]:
        await connection.execute(statement("delete_other_partitions"), generation, ticket, keys)
    await connection.execute(
        statement("record_generation"), generation, ticket, json.dumps(update["columns"]), update["schema_hash"],
        update["rows"],
    )  # fmt: skip
