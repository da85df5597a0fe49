"""Route events of datasets from the outbox to tasks, each once, in order per dataset.

One router works at a time. It takes the oldest events, gives every definition that reads the dataset a task per update
or per partition, and deletes the events, all in one transaction: a router that is killed has changed nothing. Ids of a
dataset's events have the order of their commits, so tasks are inserted in the order of updates.

An event that cannot be routed holds up no other: the batch is rolled back and split until the failing events are found.
Each of them is charged an attempt and waits for a back-off; after MAX_ATTEMPTS it is Failed, and so is its job once the
other tasks of the job have ended. `outbox.retry_events` puts it back.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import asyncpg

from aaiclick import failpoints
from aaiclick.errors import AaiclickError
from aaiclick.store.catalog.dataset_events import TaskBatch, insert_tasks
from aaiclick.store.engine.incidents import record_unroutable_event
from aaiclick.store.statements import statement

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

BATCH_SIZE = 4000
SPLIT_BATCH_SIZE = 200
"""Batch size while failing events are searched, since the router's lock is held meanwhile."""

MAX_ATTEMPTS = 5
BACKOFF_SECONDS = 1.0
BACKOFF_FACTOR = 5
"""The n-th failure is followed by a pause of BACKOFF_SECONDS · BACKOFF_FACTOR^(n - 1): 1, 5, 25 and 125 s."""

MAX_ERROR_CHARACTERS = 2000
MAX_KEY_CHARACTERS = 600
KEY_PREFIX_CHARACTERS = 150

INSTALLATION_ERRORS = (
    OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresConnectionError,
    asyncpg.TransactionRollbackError, asyncpg.InsufficientResourcesError, asyncpg.OperatorInterventionError,
    asyncpg.ObjectNotInPrerequisiteStateError, asyncpg.SyntaxOrAccessError, asyncpg.InvalidTransactionStateError,
    asyncpg.PostgresSystemError,
)  # fmt: skip
"""Errors of the connection, of PostgreSQL or of the schema: no event is charged for them."""

_logger = logging.getLogger(__name__)


class EventError(AaiclickError):
    """The event cannot be routed."""


async def route_events(connection: Connection, *, batch: int = BATCH_SIZE, now: datetime | None = None) -> int:
    """Route the oldest events; returns how many were handled, 0 if there are none or another router holds the lock."""
    if not await connection.fetchval(statement("has_due_events"), now):
        return 0
    try:
        async with failpoints.transaction(connection, "route"):
            if not await connection.fetchval(statement("lock_router")):
                return 0
            return await _route_batch(connection, batch, None, now)
    except INSTALLATION_ERRORS:
        raise
    except Exception:
        if connection.is_closed():
            raise
        _logger.warning("A batch of events could not be routed; it is split to find the failing ones.")
    async with failpoints.transaction(connection, "route_around"):
        if not await connection.fetchval(statement("lock_router")):
            return 0
        rows = await connection.fetch(statement("list_due_events"), min(batch, SPLIT_BATCH_SIZE), now)
        return await _route_by_halves(connection, [row["id"] for row in rows], now)


async def _route_by_halves(connection: Connection, ids: Sequence[int], now: datetime | None) -> int:
    """Route events in halves until the failing ones are alone, and charge those an attempt."""
    if not ids:
        return 0
    try:
        async with connection.transaction():
            return await _route_batch(connection, len(ids), list(ids), now)
    except INSTALLATION_ERRORS:
        raise
    except Exception as error:
        if connection.is_closed():
            raise
        if len(ids) == 1:
            await _charge_attempt(connection, ids[0], error, now)
            return 1
    middle = len(ids) // 2
    first = await _route_by_halves(connection, ids[:middle], now)
    return first + await _route_by_halves(connection, ids[middle:], now)


async def _charge_attempt(connection: Connection, event_id: int, error: Exception, now: datetime | None) -> None:
    message = str(error) if isinstance(error, AaiclickError) else f"{type(error).__name__}: {error}"
    message = message.replace("\0", "")[:MAX_ERROR_CHARACTERS]
    status = await connection.fetchval(
        statement("charge_event"), event_id, message, MAX_ATTEMPTS, BACKOFF_SECONDS, BACKOFF_FACTOR, now
    )
    if status == "Failed":
        await connection.execute(statement("fail_event_job"), event_id, now)
        await record_unroutable_event(connection, event_id, now)
        _logger.error("Event %s cannot be routed and has failed: %s", event_id, message)


async def _route_batch(connection: Connection, batch: int, ids: list[int] | None, now: datetime | None) -> int:
    """Route the oldest events, or those named; within a transaction of the only router."""
    updates = await connection.fetch(statement("take_events"), batch, ids, now)
    handled = Counter[int](chain.from_iterable(update["jobs"] for update in updates))
    if not handled:
        return 0
    payloads = [_parse_payload(update["payload"]) for update in updates]
    if None in handled:
        raise EventError("The event belongs to no job.")
    jobs = sorted(handled)
    open_jobs = {row["id"] for row in await connection.fetch(statement("lock_open_jobs"), jobs)}
    consumers = await _load_consumers(connection, updates, payloads)
    await _check_references(connection, updates, payloads, consumers)
    batches = _build_task_batches(updates, payloads, open_jobs, consumers)
    task_counts = await insert_tasks(connection, await _coalesce_updates(connection, batches), use_copy=True)
    counts = [task_counts[job] for job in jobs], [handled[job] for job in jobs]
    await connection.execute(statement("add_routed_tasks"), jobs, *counts)
    return handled.total()


async def _coalesce_updates(connection: Connection, batches: Sequence[TaskBatch]) -> list[TaskBatch]:
    """For definitions that coalesce: one task for all updates, or none if one waits that no worker has claimed.

    The waiting task is locked until the commit: it is claimed later, and then reads these updates too. Tasks that fill
    a new version are not coalesced.
    """
    remaining = [tasks for tasks in batches if not tasks.is_coalesced or '"build"' in tasks.event_jsons[0]]
    for tasks in batches:
        if tasks not in remaining:
            arguments = tasks.org_id, tasks.options.concurrency_key, tasks.definition_id
            if await connection.fetchval(statement("lock_waiting_update"), *arguments) is None:
                tasks.keep_first(1)
                remaining.append(tasks)
    return remaining


def _parse_payload(text: str) -> Mapping[str, object]:
    """The payload of an event; raises EventError if it is not one."""
    payload: Any = json.loads(text)
    if not isinstance(payload, dict):
        raise EventError("The payload is not a JSON object.")
    fields = cast("dict[str, Any]", payload)
    for name in ("dataset", "generation", "build", "only"):
        if fields.get(name) is None and name in ("build", "only"):
            continue
        try:
            UUID(fields.get(name))
        except (ValueError, TypeError, AttributeError):
            raise EventError(f"The payload's {name!r} is {fields.get(name)!r:.60}, which is not a UUID.") from None
    partitions: Any = fields.get("partitions")
    if not isinstance(partitions, list) or not all(
        isinstance(partition, str) for partition in cast("list[Any]", partitions)
    ):
        raise EventError("The payload's 'partitions' is not a list of texts.")
    return fields


def _columns(updates: Sequence[asyncpg.Record], payloads: Sequence[Mapping[str, object]]) -> tuple[list[object], ...]:
    return (
        [update["org_id"] for update in updates],
        *([payload.get(name) for payload in payloads] for name in ("dataset", "generation", "build", "only")),
    )


async def _load_consumers(
    connection: Connection, updates: Sequence[asyncpg.Record], payloads: Sequence[Mapping[str, object]]
) -> dict[int, list[asyncpg.Record]]:
    """The definitions that read what was updated, by the index of the update."""
    consumers: dict[int, list[asyncpg.Record]] = {}
    for row in await connection.fetch(statement("list_consumers"), *_columns(updates, payloads)):
        consumers.setdefault(int(row["nth"]) - 1, []).append(row)
    return consumers


async def _check_references(
    connection: Connection,
    updates: Sequence[asyncpg.Record],
    payloads: Sequence[Mapping[str, object]],
    consumers: Collection[int],
) -> None:
    """An update without consumers is normal, unless what it names does not exist: that raises EventError."""
    unread = [n for n in range(len(updates)) if n not in consumers]
    if not unread:
        return
    columns = _columns([updates[n] for n in unread], [payloads[n] for n in unread])
    missing = await connection.fetchval(statement("find_missing_reference"), *columns)
    if missing is not None:
        raise EventError(f"There is no {missing}.", remedy="It was deleted after the event was emitted.")


def _build_task_batches(
    updates: Sequence[asyncpg.Record],
    payloads: Sequence[Mapping[str, Any]],
    open_jobs: Collection[int],
    consumers: Mapping[int, Sequence[asyncpg.Record]],
) -> list[TaskBatch]:
    """The tasks of all definitions that read what was updated, numbered in the order of the events."""
    batches: dict[UUID, TaskBatch] = {}
    events: list[tuple[int, int, str, str, list[tuple[TaskBatch, Sequence[str] | None]]]] = []
    for n, definitions in consumers.items():
        update, payload = updates[n], payloads[n]
        build = {} if payload.get("build") is None else {"build": payload["build"]}
        prefix = json.dumps({"kind": "update", "dataset": payload["dataset"], **build})[:-1]
        readers = [
            (
                batches.setdefault(definition["id"], TaskBatch.for_definition(definition, update["org_id"])),
                payload["partitions"] if definition["execution_strategy"] == "PerPartition" else None,
            )
            for definition in definitions
        ]
        generation = f"{payload['dataset']}:{payload['generation']}"
        for event, job, cursor in zip(update["ids"], update["jobs"], update["cursors"], strict=True):
            key = f"{generation}:{f'event-{event}' if cursor is None else cursor}"
            events.append((event, job, key, prefix, readers))
    events.sort(key=itemgetter(0))
    position = 0
    for event, job, key, prefix, readers in events:
        if job not in open_jobs:
            continue
        event_json = f'{prefix}, "update": "{event}"'
        for tasks, partitions in readers:
            if partitions is None:
                # Not by the cursor: the task stands for other updates too.
                task_key = f"coalesced:{event}" if tasks.is_coalesced else _dedupe_key(f"cursor:{key}")
                tasks.append(position, job, task_key, event_json + "}")
                position += 1
                continue
            for partition in partitions:
                partition_json = f'{event_json}, "partition": {json.dumps(partition)}}}'
                tasks.append(position, job, _dedupe_key(f"partition:{key}:{partition}"), partition_json, partition)
                position += 1
    return [tasks for tasks in batches.values() if tasks.positions]


def _dedupe_key(key: str) -> str:
    """The key itself, or a hash of one that is too long for the index."""
    if len(key) <= MAX_KEY_CHARACTERS:
        return key
    return f"{key[:KEY_PREFIX_CHARACTERS]}…sha256:{hashlib.sha256(key.encode()).hexdigest()}"
