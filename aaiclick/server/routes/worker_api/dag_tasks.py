"""Worker protocol, tasks of DAGs: definition, tickets, operator state, partitions, publication and events.

Every request is fenced by the lease of the attempt and restricted to its organisation by row-level security.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fastapi import Response

from aaiclick.api.worker_protocol import endpoints
from aaiclick.api.worker_protocol.dag_tasks import (
    DefinitionRequest,
    DefinitionResponse,
    DigestResponse,
    EmitRequest,
    GenerationRequest,
    PartitionsRequest,
    PartitionsResponse,
    PublishRequest,
    PublishResponse,
    StateRequest,
    StateResponse,
    TicketResponse,
)
from aaiclick.api.worker_protocol.field_types import LeaseRequest
from aaiclick.catalog.execution.dataset_tables import DatasetLayout, StagedRows
from aaiclick.catalog.execution.definition_context import DatasetLocation, DefinitionContext, load_definition
from aaiclick.catalog.execution.parquet_storage import is_file_based
from aaiclick.catalog.execution.publish import publish_under_lease
from aaiclick.catalog.execution.remote_effects_validation import check_emission
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError, RequestError
from aaiclick.operations.actor import Permission
from aaiclick.orchestration.emit_event import check_cursor
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.routes.worker_api.tasks import json_response, require_lease
from aaiclick.server.routing import Context, RequestContext, Routes
from aaiclick.store.catalog import definition_runs
from aaiclick.store.engine import queries
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    from aaiclick.store.engine.leases_and_outcomes import Lease
    from aaiclick.store.postgres_connections import Connection

routes = Routes("worker-api")


@routes.post(endpoints.GET_DEFINITION.path, Permission.WORKER, response_model=DefinitionResponse)
async def get_definition(context: Context, body: DefinitionRequest) -> Response:
    """Get the definition of a task of a DAG."""
    lease = await _require_request_lease(context, body)
    async with tenant_connection(context) as connection:
        await _require_own_definition(connection, lease, body.definition)
        definition = await definition_runs.load_definition(connection, body.definition)
    if definition is None:
        raise NotFoundError("There is no such definition.")
    return json_response(DefinitionResponse(definition=definition))


@routes.post(endpoints.TAKE_TICKET.path, Permission.WORKER)
async def take_ticket(context: Context, body: LeaseRequest) -> TicketResponse:
    """Take a ticket: a higher ticket means a later read of the inputs."""
    await _require_request_lease(context, body)
    async with context.app_state.owner_connection() as connection:
        return TicketResponse(ticket=await definition_runs.take_ticket(connection))


@routes.post(endpoints.GET_STATE.path, Permission.WORKER)
async def get_state(context: Context, body: StateRequest) -> StateResponse:
    """Get the state of an operator."""
    lease = await _require_request_lease(context, body)
    async with tenant_connection(context) as connection:
        definition = await _load_definition(connection, lease)
        if body.definition not in (definition.id, definition.memory):
            raise _unknown_definition()
        state = await definition_runs.get_state(connection, context.actor.org_id, body.definition, body.key)
    return StateResponse(state=state)


@routes.post(endpoints.LIST_PARTITIONS.path, Permission.WORKER)
async def list_partitions(context: Context, body: PartitionsRequest) -> PartitionsResponse:
    """List the partitions of a generation."""
    lease = await _require_request_lease(context, body)
    async with tenant_connection(context) as connection:
        await _require_own_generation(connection, lease, body.generation)
        partitions = await definition_runs.load_partitions(connection, body.generation, body.keys)
    return PartitionsResponse(partitions=list(partitions.values()))


@routes.post(endpoints.GET_DIGEST.path, Permission.WORKER)
async def get_digest(context: Context, body: GenerationRequest) -> DigestResponse:
    """Get the content digest of a generation."""
    lease = await _require_request_lease(context, body)
    async with tenant_connection(context) as connection:
        await _require_own_generation(connection, lease, body.generation)
        return DigestResponse(digest=await definition_runs.load_input_digest(connection, body.generation))


@routes.post(endpoints.PUBLISH.path, Permission.WORKER)
async def publish_partition(context: Context, body: PublishRequest) -> PublishResponse:
    """Publish rows that an attempt has staged in a table of its own, atomically."""
    lease = await _require_request_lease(context, body)
    await _check_ticket(context, body.ticket)
    async with tenant_connection(context) as connection:
        definition = await _load_definition(connection, lease)
        location = _find_output(definition, body.generation)
        await _check_slice(connection, lease, definition, body.partition)
        if is_file_based(location.table):
            raise RequestError("Files are written and published only by workers with a database.")
        if not await table_references.is_held(connection, body.table, lease):
            raise NotFoundError(f"The attempt has staged no table {body.table!r:.60}.")
        # Publishing depends only on the mode; the columns are those of the tables.
        staged = StagedRows(body.table, DatasetLayout((), definition.mode), body.rows, {})
        client = await connect_clickhouse(await context.app_state.clickhouse_endpoint(context.actor.org_id))
        outcome = await publish_under_lease(
            connection, client, lease, location, staged, body.ticket, body.partition, publishes=body.publishes
        )
    return PublishResponse(published=outcome is definition_runs.PublishOutcome.PUBLISHED, outcome=outcome)


@routes.post(endpoints.EMIT_EVENTS.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def emit_events(context: Context, body: EmitRequest) -> None:
    """Emit dataset events of a running source; a repeated cursor starts nothing twice."""
    lease = await _require_request_lease(context, body)
    check_cursor(body.cursor)
    # Owner connection: tickets belong to no org. The task is the caller's, since its lease was checked.
    async with context.app_state.owner_connection() as connection:
        task = await queries.get_task(connection, lease.task_id)
        effects = await check_emission(connection, task, body.effects.model_dump(mode="json"))
    async with tenant_connection(context) as connection:
        await definition_runs.emit_updates(connection, lease, effects, body.cursor)


# --- helpers ------------------------------------------------------------------------------------------------------


async def _require_request_lease(context: RequestContext, body: LeaseRequest) -> Lease:
    """Check the lease of a request and return it; raises LeaseLost."""
    await require_lease(context, body.lease)
    return body.lease


async def _check_ticket(context: RequestContext, ticket: int) -> None:
    """Refuse a ticket that was never taken: rows with later tickets would count as older."""
    async with context.app_state.owner_connection() as connection:
        if ticket > await definition_runs.get_last_ticket(connection):
            raise RequestError(
                f"The ticket {ticket} was never taken.",
                remedy="POST /v1/worker-api/tasks/ticket before reading, and send that one.",
            )


async def _check_slice(connection: Connection, lease: Lease, definition: DefinitionContext, partition: str) -> None:
    """Require that a task publishes the slice that it was started for, or the whole dataset."""
    task = await queries.get_task(connection, lease.task_id)
    event: dict[str, Any] = {} if task is None else json.loads(task["kwargs"]).get("event") or {}
    own_partition = definition.slice_of(event) if definition.mode == "slice" else ""
    if own_partition is not None and partition != own_partition:
        raise NotFoundError(
            "There is no such partition.", remedy="A task publishes only the partition that it was started for."
        )


async def _definition_of(connection: Connection, lease: Lease) -> UUID | None:
    row = await queries.get_task(connection, lease.task_id)
    return None if row is None else row["definition_id"]


async def _require_own_definition(connection: Connection, lease: Lease, definition_id: UUID) -> None:
    if await _definition_of(connection, lease) != definition_id:
        raise _unknown_definition()


def _unknown_definition() -> NotFoundError:
    return NotFoundError("There is no such definition.", remedy="A task sees only its own definition.")


async def _require_own_generation(connection: Connection, lease: Lease, generation: UUID) -> None:
    """Require a generation, current or not, of a dataset that the task reads or writes."""
    definition = await _load_definition(connection, lease)
    locations = [*definition.inputs.values(), *definition.output_locations]
    if not await definition_runs.is_generation_of(connection, generation, [location.dataset for location in locations]):
        raise NotFoundError(
            "There is no such generation.", remedy="A task sees only generations that it reads or writes."
        )


async def _load_definition(connection: Connection, lease: Lease) -> DefinitionContext:
    definition_id = await _definition_of(connection, lease)
    if definition_id is None:
        raise NotFoundError(f"Task {lease.task_id} has no definition.")
    return await load_definition(connection, definition_id)


def _find_output(definition: DefinitionContext, generation: UUID) -> DatasetLocation:
    for location in definition.output_locations:
        if location.generation == generation:
            return location
    raise NotFoundError("There is no such generation.", remedy="A task publishes only outputs of its definition.")
