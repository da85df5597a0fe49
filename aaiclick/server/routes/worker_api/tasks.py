"""Worker protocol, tasks: claim, heartbeat, acknowledge, and requests of running attempts.

Claims use connections of the owner, since they look at the ready tasks of all organisations. Access is limited by the
organisation of the worker's key and, for everything but claims, by the token of the lease. A lease on a task of another
organisation counts as lost.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import Response
from pydantic import BaseModel

from aaiclick.api.worker_protocol import endpoints
from aaiclick.api.worker_protocol.claims import (
    ClaimOptions,
    ClaimRequest,
    ClaimResponse,
    ClickHouseAccess,
    ExchangeRequest,
    ExchangeResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    StartResponse,
    WaitRequest,
    WaitResponse,
)
from aaiclick.api.worker_protocol.field_types import LeaseRequest, LeasesRequest
from aaiclick.api.worker_protocol.outcomes import CompleteRequest, FailRequest
from aaiclick.api.worker_protocol.tasks import (
    AddTasksRequest,
    CachedResultRequest,
    LiteralsRequest,
    LiteralsResponse,
    LogRequest,
    NameTableRequest,
    ResultsRequest,
    ResultsResponse,
    SecretsRequest,
    SecretsResponse,
    StoreLiteralRequest,
    StoreLiteralResponse,
    TablesRequest,
    TablesResponse,
)
from aaiclick.catalog.errors import CatalogError
from aaiclick.catalog.execution.remote_effects_validation import check_effects
from aaiclick.data.runtime.inspect import describe_object
from aaiclick.data.runtime.tables import NAMED
from aaiclick.errors import AaiclickError, LeaseLost, NotFoundError, RequestError, UnreachableError
from aaiclick.operations.actor import Permission
from aaiclick.operations.enqueue import argument_tables
from aaiclick.orchestration.argument_tables import TABLE_ID_KEY
from aaiclick.orchestration.context import job_limits
from aaiclick.orchestration.retry_policy import RetryPolicy
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.routing import Context, RequestContext, Routes
from aaiclick.server.task_logs import write_part
from aaiclick.store.engine import queries, queue, result_cache, workers
from aaiclick.store.engine.acknowledge import NOT_HELD_FINGERPRINT
from aaiclick.store.engine.claims import leases_of_org
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, Success, monotonic_seconds_ago
from aaiclick.store.engine.result_placeholders import temporary_tables_in
from aaiclick.store.engine.submit import add_to_job
from aaiclick.store.enums import DISPATCHER_QUEUE, NOTIFICATION_QUEUE
from aaiclick.store.statements import statement
from aaiclick.store.tables import literal_results, table_references
from aaiclick.store.tenancy import secrets
from aaiclick.store.tenancy.orgs import has_several_orgs

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

routes = Routes("worker-api")

POLL_SECONDS = 1.0
"""Tasks that become due by their time send no notification."""


@routes.post(endpoints.EXCHANGE.path, Permission.WORKER, response_model=ExchangeResponse)
async def exchange_tasks(context: Context, body: ExchangeRequest) -> Response:
    """Acknowledge attempts and claim tasks in one request."""
    async with _worker_connection(context, body.worker_id) as connection:
        leases = [*(item.lease for item in body.completed), *(item.lease for item in body.failed), *body.released]
        owned = await own_leases(context, connection, leases)
        outcomes = [
            await _to_outcome(connection, item, owned) for item in body.completed if item.lease.task_id in owned
        ]
        refused = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
        accepted, claims = await queue.acknowledge_and_claim(
            connection,
            worker_id=body.worker_id,
            successes=[outcome for outcome in outcomes if isinstance(outcome, Success)],
            failures=[
                *refused,
                *[await _to_failure(connection, item) for item in body.failed if item.lease.task_id in owned],
            ],
            releases=[lease for lease in body.released if lease.task_id in owned],
            limit=body.limit,
            queues=_allowed_queues(body),
            lease_seconds=body.lease_seconds,
            org_id=context.actor.org_id,
        )
    access = await _clickhouse_access(context, body.worker_id, claims)
    return json_response(ExchangeResponse(tasks=list(claims), accepted=sorted(accepted), **dict(access)))


@routes.post(endpoints.CLAIM.path, Permission.WORKER, response_model=ClaimResponse)
async def claim_tasks(context: Context, body: ClaimRequest) -> Response:
    """Claim tasks; waits if none is ready."""
    deadline = time.monotonic() + body.wait_seconds
    while True:
        async with _worker_connection(context, body.worker_id) as connection:
            claims = await queue.claim(
                connection,
                worker_id=body.worker_id,
                limit=body.limit,
                queues=_allowed_queues(body),
                lease_seconds=body.lease_seconds,
                org_id=context.actor.org_id,
            )
        seconds_left = deadline - time.monotonic()
        if claims or seconds_left <= 0 or not body.limit or context.app_state.closing.is_set():
            access = await _clickhouse_access(context, body.worker_id, claims)
            return json_response(ClaimResponse(tasks=list(claims), **dict(access)))
        await context.app_state.work_notifier.wait_for_notification(min(seconds_left, POLL_SECONDS))


@routes.post(endpoints.FETCH.path, Permission.WORKER, response_model=FetchResponse)
async def fetch_task(context: Context, body: FetchRequest) -> Response:
    """Get a claimed task with the results of other tasks filled into its arguments."""
    lease = body.lease
    job_id = await require_lease(context, lease)
    async with tenant_connection(context) as connection:
        row = await queries.get_task(connection, lease.task_id)
        assert row is not None  # noqa: S101  (its lease was just checked)
        if row["lease_token"] != lease.token:
            raise _lease_lost(lease)
        kwargs = await queries.resolve_arguments(connection, job_id, row["kwargs"])
    # The worker that holds the lease has to belong to the caller.
    async with _worker_connection(context, row["worker_id"]) as owner:
        shared = await has_several_orgs(owner)
        if body.code_version is not None:
            await workers.set_code_version(owner, row["worker_id"], body.code_version)
    claimed = Claim(
        lease, row["org_id"], row["job_id"], row["group_id"], row["type"], row["entrypoint"], kwargs,
        row["timeout_seconds"], row["failures"], row["retry_policy"], queue=row["queue"],
        lease_seconds=row["lease_seconds"],
        priority=row["priority"],
        shared=shared,
    )  # fmt: skip
    lease_seconds = (row["lease_expires_at"] - row["last_heartbeat"]).total_seconds()
    access = await _clickhouse_access(context, row["worker_id"], [claimed])
    response = FetchResponse(task=claimed, worker_id=row["worker_id"], lease_seconds=lease_seconds, **dict(access))
    return json_response(response)


@routes.post(endpoints.START.path, Permission.WORKER)
async def start_tasks(context: Context, body: LeasesRequest) -> StartResponse:
    """Mark claimed tasks as running."""
    async with context.app_state.owner_connection() as connection:
        owned = await own_leases(context, connection, body.leases)
        started = await queue.start(connection, [lease for lease in body.leases if lease.task_id in owned])
    return StartResponse(ids=sorted(started))


@routes.post(endpoints.HEARTBEAT.path, Permission.WORKER)
async def renew_task_leases(context: Context, body: HeartbeatRequest) -> HeartbeatResponse:
    """Renew leases; returns lost leases and tasks to cancel."""
    async with _worker_connection(context, body.worker_id) as connection:
        owned = await own_leases(context, connection, body.leases)
        heartbeat = await queue.heartbeat(
            connection,
            worker_id=body.worker_id,
            leases=[lease for lease in body.leases if lease.task_id in owned],
            lease_seconds=body.lease_seconds,
        )
    lost = heartbeat.lost | {lease.task_id for lease in body.leases if lease.task_id not in owned}
    return HeartbeatResponse(lost=sorted(lost), cancelled=sorted(heartbeat.cancelled))


@routes.post(endpoints.COMPLETE.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def complete_task(context: Context, body: CompleteRequest) -> None:
    """Acknowledge a successful attempt."""
    async with context.app_state.owner_connection() as connection:
        outcome = await _to_outcome(connection, body, await _require_own_lease(context, connection, body.lease))
        if isinstance(outcome, Failure):
            _require_accepted(outcome.lease, await queue.acknowledge(connection, worker_id=0, failures=[outcome]))
            raise RequestError(outcome.error, remedy="Nothing was stored.")
        _require_accepted(outcome.lease, await queue.acknowledge(connection, worker_id=0, successes=[outcome]))
        if outcome.tables:
            row = await queries.get_task(connection, outcome.lease.task_id)
            if row is not None and row["error_fingerprint"] == NOT_HELD_FINGERPRINT:
                raise RequestError(row["error"], remedy="Nothing was stored.")


@routes.post(endpoints.FAIL.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def fail_task(context: Context, body: FailRequest) -> None:
    """Acknowledge a failed attempt."""
    async with context.app_state.owner_connection() as connection:
        await _require_own_lease(context, connection, body.lease)
        failure = await _to_failure(connection, body)
        _require_accepted(failure.lease, await queue.acknowledge(connection, worker_id=0, failures=[failure]))


@routes.post(endpoints.RELEASE.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def release_task(context: Context, body: LeaseRequest) -> None:
    """Release a task without charging the attempt."""
    lease = body.lease
    async with context.app_state.owner_connection() as connection:
        await _require_own_lease(context, connection, body.lease)
        _require_accepted(lease, await queue.acknowledge(connection, worker_id=0, releases=[lease]))


@routes.post(endpoints.ADD_TASKS.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def add_tasks(context: Context, body: AddTasksRequest) -> None:
    """Add tasks to the job of a running task; they start only after it has completed."""
    lease = body.lease
    job_id = await require_lease(context, lease)
    if job_id is None:
        raise LeaseLost(f"Task {lease.task_id} has no job to add tasks to.")
    plan = await asyncio.to_thread(body.to_plan)  # takes long for many tasks
    plan.tables = await asyncio.to_thread(argument_tables, plan.tasks)
    if plan.tasks or plan.groups:
        async with context.app_state.owner_connection() as connection:
            await add_to_job(connection, job_id, plan, body.names, lease, limits=job_limits())


@routes.post(endpoints.GET_RESULTS.path, Permission.WORKER, response_model=ResultsResponse)
async def get_task_results(context: Context, body: ResultsRequest) -> Response:
    """Read results of other tasks of the same job."""
    job_id = await require_lease(context, body.lease)
    results: list[queries.TaskResult] = []
    async with tenant_connection(context) as connection:
        if body.task_ids and job_id is not None:
            results += (await queries.load_task_results(connection, job_id, body.task_ids)).values()
        if body.group_id is not None and job_id is not None:
            results += await queries.load_group_results(connection, body.group_id, job_id)
    return json_response(ResultsResponse(results=results))


@routes.post(endpoints.FIND_CACHED_RESULT.path, Permission.WORKER, response_model=ResultsResponse)
async def find_cached_result(context: Context, body: CachedResultRequest) -> Response:
    """Find the cached result of a key, or make the task the entry of the key."""
    await require_lease(context, body.lease)
    async with tenant_connection(context) as connection:
        result = await result_cache.find_cached_result(
            connection, context.actor.org_id, body.key, body.lease, body.max_age_seconds, body.refused
        )
    return json_response(ResultsResponse(results=[] if result is None else [result]))


@routes.post(endpoints.LOAD_LITERALS.path, Permission.WORKER)
async def get_literals(context: Context, body: LiteralsRequest) -> LiteralsResponse:
    """Read small results of the organisation, which are stored with their tasks."""
    await require_lease(context, body.lease)
    async with tenant_connection(context) as connection:
        return LiteralsResponse(
            literals=await literal_results.load_literals(connection, body.tables, context.actor.org_id)
        )


@routes.post(endpoints.STORE_LITERAL.path, Permission.WORKER)
async def store_literal(context: Context, body: StoreLiteralRequest) -> StoreLiteralResponse:
    """Reserve, replace or abandon the table of a literal."""
    await require_lease(context, body.lease)
    reservation = literal_results.Reservation.GRANTED
    async with context.app_state.owner_connection() as connection:
        if body.action == "reserve":
            reservation = await literal_results.reserve_literal_table(connection, body.table, context.actor.org_id)
        elif body.action == "replace":
            await literal_results.replace_literal(connection, body.table, context.actor.org_id)
        else:
            await literal_results.abandon_literal_table(connection, body.table, context.actor.org_id)
    return StoreLiteralResponse(reservation=reservation)


@routes.post(endpoints.UPDATE_TABLES.path, Permission.WORKER)
async def update_table_references(context: Context, body: TablesRequest) -> TablesResponse:
    """Reserve, hold or release tables; references of an attempt end with it."""
    held_tables: list[table_references.TableReferenceResult] = []
    async with context.app_state.owner_connection() as connection:
        owned = await own_leases(context, connection, [item.lease for item in body.tables])
        requests = [(item.table, item.lease) for item in body.tables if item.lease.task_id in owned]
        if body.action == "release":
            await table_references.release_tables(connection, requests)
            return TablesResponse(tables=[])
        if requests:
            held_tables = await (
                table_references.reserve_tables if body.action == "reserve" else table_references.hold_tables
            )(connection, requests)
    remaining, lost = iter(held_tables), table_references.TableReferenceResult(lease_lost=True, is_unknown=False)
    results = [next(remaining) if item.lease.task_id in owned else lost for item in body.tables]
    return TablesResponse(tables=results)


@routes.post(endpoints.NAME_TABLE.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def name_table(context: Context, body: NameTableRequest) -> None:
    """Name the table of an existing named Object, or remove its name."""
    lease = body.lease
    await require_lease(context, lease)
    if not body.table.startswith(NAMED) or (body.name is not None and body.table != NAMED + body.name):
        raise NotFoundError(
            f"The attempt has no table {body.table!r:.60} to name.", remedy=f"The table of a name begins with {NAMED}."
        )
    if body.name is not None:
        await describe_object(await context.app_state.clickhouse_endpoint(context.actor.org_id), body.table)
    async with context.app_state.owner_connection() as connection:
        if body.name is None:
            await table_references.unname_table(connection, body.table, lease)
        else:
            await table_references.name_table(connection, body.table, body.name, lease)


@routes.post(endpoints.READ_SECRETS.path, Permission.WORKER)
async def read_task_secrets(context: Context, body: SecretsRequest) -> SecretsResponse:
    """Read the secrets that a task may use; requires the lease of its attempt."""
    lease = body.lease
    await require_lease(context, lease)
    async with tenant_connection(context) as connection:
        return SecretsResponse(secrets=await secrets.load_task_secrets(connection, lease, body.names))


@routes.post(endpoints.WRITE_LOG.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def write_task_log(context: Context, body: LogRequest) -> None:
    """Write a part of an attempt's log."""
    lease = body.lease
    await require_lease(context, lease)
    await write_part(context.app_state.settings, lease.task_id, lease.attempt, body.offset, body.text)


@routes.post(endpoints.WAIT.path, Permission.WORKER)
async def wait_for_work(context: Context, body: WaitRequest) -> WaitResponse:
    """Wait until tasks may be ready or are to be cancelled."""
    result = await context.app_state.work_notifier.wait(body.since, body.wait_seconds)
    return WaitResponse(now=result.now, ready=result.ready, cancel=result.cancel)


# --- helpers ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _worker_connection(context: RequestContext, worker_id: int) -> AsyncGenerator[Connection]:
    """A connection of the owner, after checking that the worker belongs to the caller."""
    async with context.app_state.owner_connection() as connection:
        await context.app_state.check_workers(connection, context.actor.org_id, [worker_id])
        yield connection


async def require_lease(context: RequestContext, lease: Lease) -> int | None:
    """Check a lease and return the job of its task; raises LeaseLost."""
    async with tenant_connection(context) as connection:
        row = await connection.fetchrow(
            statement("find_job_of_lease"), lease.task_id, lease.attempt, lease.token, context.actor.org_id
        )
    if row is None:
        raise _lease_lost(lease)
    return row["job_id"]


async def own_leases(context: RequestContext, connection: Connection, leases: Sequence[Lease]) -> dict[int, bool]:
    """Those tasks that belong to the caller's organisation, and whether their attempts hold tables."""
    return await leases_of_org(connection, leases, context.actor.org_id)


async def _require_own_lease(context: RequestContext, connection: Connection, lease: Lease) -> dict[int, bool]:
    """`own_leases` of one task; raises LeaseLost if it belongs to another organisation."""
    owned = await own_leases(context, connection, [lease])
    if lease.task_id not in owned:
        raise _lease_lost(lease)
    return owned


def _require_accepted(lease: Lease, accepted: set[int]) -> None:
    if lease.task_id not in accepted:
        raise _lease_lost(lease)


def _lease_lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease; nothing was changed.",
        remedy="Stop the attempt: another one is running or has finished.",
    )


def _allowed_queues(body: ClaimOptions) -> list[str]:
    for queue_name in (DISPATCHER_QUEUE, NOTIFICATION_QUEUE):
        if queue_name in body.queues:
            raise RequestError(
                f"The queue {queue_name!r} is reserved for workers with a database.", remedy="Name other queues."
            )
    return body.queues


async def _to_outcome(connection: Connection, body: CompleteRequest, holds: Mapping[int, bool]) -> Success | Failure:
    """Outcome of a completed attempt: a failure if its effects are outside of its definition."""
    lease = body.lease
    effects = None
    if body.effects is not None:
        row = await queries.get_task(connection, lease.task_id)
        try:
            effects = await check_effects(connection, row, body.effects.model_dump(mode="json"))
        except CatalogError as error:
            return Failure(lease, error.what, "effects refused", True, 0.0, monotonic_seconds_ago(body.seconds))
    result = None if body.result is None else json.dumps(body.result)
    tables = set(body.tables or ())
    if body.literal is not None:
        _check_literal_result(body.result)
    elif result is not None and TABLE_ID_KEY in result:  # whether or not the worker listed them
        tables |= temporary_tables_in(body.result)
    # An attempt that lists no tables may still hold some, which have to be released.
    has_no_tables = body.tables is None and not tables and not holds.get(lease.task_id)
    result_tables = None if has_no_tables else tuple(sorted(tables))
    return Success(
        lease,
        result,
        monotonic_seconds_ago(body.seconds),
        tuple(body.awaits),
        result_tables,
        body.literal,
        effects,
        body.branch,
        body.wait,
    )


def _check_literal_result(result: object) -> None:
    """A literal is the value of one Object."""
    names = temporary_tables_in(result)
    if len(names) != 1 or result != {"object_type": "object", "table_id": next(iter(names))}:
        raise RequestError(
            "The literal has no Object as its result.",
            remedy='Send {"object_type": "object", "table_id": "t…"} with a new table id.',
        )


async def _to_failure(connection: Connection, body: FailRequest) -> Failure:
    lease = body.lease
    delay = body.delay_seconds
    if delay is None:
        row = await queries.get_task(connection, lease.task_id)
        delay = RetryPolicy.from_json(row["retry_policy"]).delay_seconds(row["failures"] + 1) if row else 0.0
    return Failure(
        lease,
        body.error,
        body.fingerprint,
        body.permanent,
        delay,
        monotonic_seconds_ago(body.seconds),
        body.charged,
        body.outcome,
        tests=tuple(test.model_dump(mode="json") for test in body.tests),
    )


async def _clickhouse_access(context: RequestContext, worker_id: int, claims: Sequence[Claim]) -> ClickHouseAccess:
    """ClickHouse credentials, if there are claims. Tasks without data run without them."""
    if not claims:
        return ClickHouseAccess()
    try:
        endpoint = await context.app_state.worker_credentials.issue(context.actor.org_id, worker_id)
        return ClickHouseAccess(clickhouse=endpoint)
    except UnreachableError:
        return ClickHouseAccess(no_clickhouse="ClickHouse is unreachable.", clickhouse_unreachable=True)
    except AaiclickError as error:
        return ClickHouseAccess(no_clickhouse=error.what, clickhouse_unreachable=bool(error.address))


def json_response(content: BaseModel) -> Response:
    """Write a response at once. FastAPI would validate it, which encodes JSON text a second time."""
    return Response(content.model_dump_json(), media_type="application/json")
