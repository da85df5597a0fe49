"""Enqueue items: from requests to tasks without a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aaiclick.api.field_types import CreatedIdsResponse
from aaiclick.api.tasks import TaskRequest
from aaiclick.data.runtime.tables import NAMED
from aaiclick.errors import SubmitError
from aaiclick.operations.actor import Actor
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.orchestration.queue_items import parse_debounce
from aaiclick.snowflake import get_snowflake_ids
from aaiclick.store.engine.enqueue import Debounce, enqueue_debounced, enqueue_tasks, enqueue_with_tables
from aaiclick.store.engine.result_placeholders import is_temporary, table_ids_in
from aaiclick.store.engine.submission_plan import NewTask

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

_ENCODER = json.JSONEncoder(allow_nan=False)
"""Shared, since `json.dumps` with options creates an encoder per call."""


class ParsedItems:
    """Items of a request as tasks, with their debounces and the tables in their payloads."""

    def __init__(self, requests: Sequence[TaskRequest]) -> None:
        """Check the items; raises SubmitError."""
        self.tasks = _to_new_tasks(requests)
        self.delays = _parse_delays(requests, self.tasks)
        self.tables = argument_tables(self.tasks)
        if self.delays.keys() & {task_id for task_id, _ in self.tables}:
            raise SubmitError("An item has debounce and an Object in its payload.", remedy="Pass its name.")


async def insert_items(connection: Connection, actor: Actor, items: ParsedItems) -> CreatedIdsResponse:
    """Insert items in the caller's transaction; returns their ids in the order of the request."""
    plain = [item for item in items.tasks if item.id not in items.delays]
    if items.tables:
        ids = await enqueue_with_tables(connection, plain, items.tables, {}, actor.org_id)
    else:
        ids = await enqueue_tasks(connection, plain, actor.org_id) if plain else []
    final_ids = dict(zip((item.id for item in plain), ids, strict=True))
    for item in items.tasks:
        if item.id in items.delays:
            final_ids[item.id] = await enqueue_debounced(connection, item, items.delays[item.id], actor.org_id)
    return CreatedIdsResponse(ids=[final_ids[item.id] for item in items.tasks])


def argument_tables(tasks: Sequence[NewTask]) -> list[tuple[int, str]]:
    """(task id, table) of Objects and Views in the arguments; their org is checked when the tables are held."""
    tables: set[tuple[int, str]] = set()
    for task in tasks:
        for name in table_ids_in(json.loads(task.kwargs)) if TABLE_ID_KEY in task.kwargs else ():
            if is_temporary(name):
                tables.add((task.id, name))
            elif not isinstance(name, str) or not name.removeprefix(NAMED) or not name.startswith(NAMED):
                raise SubmitError(
                    f"An argument of {task.type!r} refers to {name!r:.60}, which is not a table name.",
                    remedy=f"A table_id is t and a number, or {NAMED} and the name of an Object.",
                )
    return sorted(tables)


def _to_new_tasks(items: Sequence[TaskRequest]) -> list[NewTask]:
    return [
        NewTask(
            task_id, item.type, item.entrypoint, _encode_payload(item), None, item.idempotency_key, item.to_options()
        )
        for task_id, item in zip(get_snowflake_ids(len(items)), items, strict=True)
    ]


def _parse_delays(requests: Sequence[TaskRequest], items: Sequence[NewTask]) -> dict[int, Debounce]:
    """The debounces of items, by task id."""
    return {
        item.id: parse_debounce(
            item.type,
            request.debounce,
            request.debounce_key or "",
            request.idempotency_key,
            is_merged=request.debounce_merge,
        )
        for request, item in zip(requests, items, strict=True)
        if request.debounce is not None
    }


def _encode_payload(item: TaskRequest) -> str:
    """Encode the payload of an item; raises SubmitError for NaN and infinity, which Python's parser accepts."""
    try:
        return _ENCODER.encode(item.payload)
    except ValueError:
        raise SubmitError(f"The item of type {item.type!r} has a number that JSON does not have.") from None
