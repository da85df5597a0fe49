"""What tasks of DAGs ask for that have no database: their definition, tickets, states, and to have rows put in place.

Everything is asked under the lease of the attempt, and seen behind the wall of its organisation.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fastapi import Response

from aaiclick.catalog.running.effects import checked_emission
from aaiclick.catalog.running.ledger import publish as publish_rows
from aaiclick.catalog.running.parquet import in_files
from aaiclick.catalog.running.storage import Layout, Staged
from aaiclick.catalog.running.work import Place, Work, find_work
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError, RequestError
from aaiclick.orchestration.events import check_cursor
from aaiclick.server import protocol
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import reading
from aaiclick.server.routes.work import lease_of, require_lease
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.store import catalog_runs, reads, tables

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection
    from aaiclick.store.leases import Lease

routes = Routes("definitions")


@routes.post("/v1/task/definition", Permission.WORKER, response_model=protocol.DefinitionOut)
async def definition(call: Caller, body: protocol.DefinitionAsk) -> Response:
    """Show what a task of a DAG is to do."""
    lease = await _held(call, body)
    async with reading(call) as connection:
        await _own(connection, lease, body.definition)
        found, datasets = await catalog_runs.find_work(connection, body.definition)
    if found is None:
        raise NotFoundError("There is no such definition.")
    return _respond(catalog_runs.work_form(found, datasets))


@routes.post("/v1/task/ticket", Permission.WORKER)
async def ticket(call: Caller, body: protocol.OneLease) -> protocol.TicketOut:
    """Take a number: who has the higher one has read later."""
    await _held(call, body)
    async with call.service.owner() as connection:
        return protocol.TicketOut(ticket=str(await catalog_runs.take_ticket(connection)))


@routes.post("/v1/task/state", Permission.WORKER)
async def state(call: Caller, body: protocol.StateAsk) -> protocol.StateOut:
    """Read what an operator remembers."""
    lease = await _held(call, body)
    async with reading(call) as connection:
        work = await _work(connection, lease)
        if body.definition not in (work.id, work.memory):
            raise _no_definition()
        found = await catalog_runs.get_state(connection, call.principal.org_id, body.definition, body.key)
    return protocol.StateOut(state=found)


@routes.post("/v1/task/partitions", Permission.WORKER, response_model=protocol.PartitionsOut)
async def partitions(call: Caller, body: protocol.PartitionsAsk) -> Response:
    """Read what is known of the partitions of a generation."""
    lease = await _held(call, body)
    async with reading(call) as connection:
        await _own_generation(connection, lease, body.generation)
        rows = await catalog_runs.partitions_of(connection, body.generation, body.keys)
    return _respond({"partitions": [catalog_runs.partition_form(row) for row in rows.values()]})


@routes.post("/v1/task/digest", Permission.WORKER)
async def digest(call: Caller, body: protocol.GenerationAsk) -> protocol.DigestOut:
    """Read a word that is the same for the same content of a generation."""
    lease = await _held(call, body)
    async with reading(call) as connection:
        await _own_generation(connection, lease, body.generation)
        return protocol.DigestOut(digest=await catalog_runs.input_digest(connection, body.generation))


@routes.post("/v1/task/publish", Permission.WORKER)
async def publish(call: Caller, body: protocol.Publication) -> protocol.Published:
    """Put rows in place that an attempt has staged in a table of its own; all of them at once, or none."""
    lease = await _held(call, body)
    await _check_ticket(call, int(body.ticket))
    async with reading(call) as connection:
        work = await _work(connection, lease)
        place = _output(work, body.generation)
        await _check_slice(connection, lease, work, body.partition)
        if in_files(place.table):
            raise RequestError("Files are written and published by workers beside the databases.")
        if not await tables.is_held(connection, body.table, lease):
            raise NotFoundError(f"The attempt has staged no table {body.table!r:.60}.")
        # How rows are put in place depends on the mode alone; their columns are those of the tables.
        staged = Staged(body.table, Layout((), work.mode), body.rows, {})
        client = await connect_clickhouse(await call.service.clickhouse(call.principal.org_id))
        done = await publish_rows(connection, client, lease, place, staged, int(body.ticket), body.partition)
    return protocol.Published(published=done)


@routes.post("/v1/task/events", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def events(call: Caller, body: protocol.Emission) -> None:
    """Emit events of what a source has published while it runs; the same cursor again starts nothing twice."""
    lease = await _held(call, body)
    check_cursor(body.cursor)
    async with call.service.owner() as connection:  # the task is of the caller's org; tickets belong to no org
        task = await reads.get_task(connection, lease.task_id)
        effects = await checked_emission(connection, task, body.effects.model_dump(mode="json"))
    async with reading(call) as connection:
        await catalog_runs.emit_updates(connection, lease, effects, body.cursor)


# --- the parts ----------------------------------------------------------------------------------------------------


async def _held(call: Call, body: protocol.OneLease) -> Lease:
    """The lease of a request, which holds; raises LeaseLost."""
    lease = lease_of(body.lease)
    await require_lease(call, lease)
    return lease


async def _check_ticket(call: Call, ticket: int) -> None:
    """One that nobody took would stand above all that come after it: their rows would count as older."""
    async with call.service.owner() as connection:
        if ticket > await catalog_runs.last_ticket(connection):
            raise RequestError(
                f"The ticket {ticket} was never taken.",
                remedy="POST /v1/task/ticket before reading, and send that one.",
            )


async def _check_slice(connection: Connection, lease: Lease, work: Work, partition: str) -> None:
    """A task of one slice puts rows into that slice, and one that makes a whole into the whole."""
    task = await reads.get_task(connection, lease.task_id)
    event: dict[str, Any] = {} if task is None else json.loads(task["kwargs"]).get("event") or {}
    own = work.slice_of(event) if work.mode == "slice" else ""
    if own is not None and partition != own:
        raise NotFoundError("There is no such partition.", remedy="A task publishes the one that it was started for.")


async def _definition_of(connection: Connection, lease: Lease) -> UUID | None:
    row = await reads.get_task(connection, lease.task_id)
    return None if row is None else row["definition_id"]


async def _own(connection: Connection, lease: Lease, definition_id: UUID) -> None:
    if await _definition_of(connection, lease) != definition_id:
        raise _no_definition()


def _no_definition() -> NotFoundError:
    return NotFoundError("There is no such definition.", remedy="A task sees the one that it is of.")


async def _own_generation(connection: Connection, lease: Lease, generation: UUID) -> None:
    """Of the datasets that the task reads or makes. Another DAG may have moved on to the next one meanwhile."""
    work = await _work(connection, lease)
    places = [*work.inputs.values(), *(place for _, place in work.outputs.values())]
    if not await catalog_runs.is_generation_of(connection, generation, [place.dataset for place in places]):
        raise NotFoundError("There is no such generation.", remedy="A task sees those that it reads and makes.")


async def _work(connection: Connection, lease: Lease) -> Work:
    found = await _definition_of(connection, lease)
    if found is None:
        raise NotFoundError(f"Task {lease.task_id} is of no definition.")
    return await find_work(connection, found)


def _output(work: Work, generation: UUID) -> Place:
    for _, place in work.outputs.values():
        if place.generation == generation:
            return place
    raise NotFoundError("There is no such generation.", remedy="A task publishes what its definition makes.")


def _respond(content: Any) -> Response:
    return Response(json.dumps(content), media_type="application/json")
