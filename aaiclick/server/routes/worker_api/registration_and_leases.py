"""Worker protocol, supervisor: register workers, renew their leases, settle processes that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import Response

from aaiclick.api.worker_protocol import endpoints
from aaiclick.api.worker_protocol.workers import (
    CountsRequest,
    DrainingResponse,
    HeldTasksResponse,
    OverdueRequest,
    OverdueResponse,
    RegisterFunctionsRequest,
    RegisterRequest,
    RegisterResponse,
    RenewLeasesRequest,
    RunLoopsRequest,
    SettleRequest,
    WorkerRequest,
    WorkersRequest,
)
from aaiclick.operations.actor import Permission
from aaiclick.operations.schedules import make_declared_schedules
from aaiclick.orchestration.function_registry import ModuleJobs, register_module_jobs
from aaiclick.orchestration.gateway.postgres import finish_worker as settle_process
from aaiclick.orchestration.loops import leader
from aaiclick.server.routes.worker_api.tasks import json_response, own_leases
from aaiclick.server.routing import Context, RequestContext, Routes
from aaiclick.settings import get_logs_dir
from aaiclick.store.engine import worker_leases, workers
from aaiclick.store.engine.leases_and_outcomes import OutcomeCounts

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

routes = Routes("worker-api")


@routes.post(endpoints.REGISTER_WORKER.path, Permission.WORKER)
async def register_worker(context: Context, body: RegisterRequest) -> RegisterResponse:
    """Register a worker process, which serves only the organisation of its key."""
    async with context.app_state.owner_connection() as connection:
        worker = await workers.register_worker(
            connection,
            worker_id=body.worker_id,
            hostname=body.hostname,
            pid=body.pid,
            pool_size=body.pool_size,
            version=body.version,
            queues=body.queues,
            org_id=context.actor.org_id,
            log_directory=get_logs_dir(context.app_state.settings),
            code_version=body.code_version,
            code_modules=body.code_modules,
        )
    return RegisterResponse(worker_id=worker.id)


@routes.post(endpoints.REGISTER_FUNCTIONS.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def register_functions(context: Context, body: RegisterFunctionsRequest) -> None:
    """Register the job functions that a worker has imported, and the schedules that they declare."""
    jobs = await asyncio.to_thread(_make_module_jobs, body)
    async with context.app_state.owner_connection() as connection:
        await register_module_jobs(connection, context.actor.org_id, jobs)


def _make_module_jobs(body: RegisterFunctionsRequest) -> ModuleJobs:
    schedules = make_declared_schedules(body.schedules)
    return ModuleJobs(body.modules, [function.to_fields() for function in body.functions], schedules)


@routes.post(endpoints.ADD_COUNTS.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def count_outcomes(context: Context, body: CountsRequest) -> None:
    """Add to the counts of completed and failed tasks of a worker, by queue; a repeated report changes nothing."""
    org_id = context.actor.org_id
    tallies = {(org_id, counts.queue): OutcomeCounts(counts.completed, counts.failed) for counts in body.queues}
    async with _workers_connection(context, [body.worker_id]) as connection:
        await workers.count_outcomes(connection, body.worker_id, body.report, tallies)


@routes.post(endpoints.LIST_HELD_TASKS.path, Permission.WORKER)
async def list_held_tasks(context: Context, body: WorkerRequest) -> HeldTasksResponse:
    """List the tasks that a worker holds, and whether they are to be cancelled."""
    async with _workers_connection(context, [body.worker_id]) as connection:
        held_tasks = await worker_leases.list_held_leases(connection, body.worker_id)
    return HeldTasksResponse(tasks=held_tasks)


@routes.post(endpoints.RENEW_LEASES.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def renew_leases(context: Context, body: RenewLeasesRequest) -> None:
    """Renew all leases of workers."""
    async with _workers_connection(context, body.worker_ids) as connection:
        await worker_leases.extend_worker_leases(connection, body.worker_ids, body.lease_seconds)


@routes.post(endpoints.LIST_OVERDUE_TASKS.path, Permission.WORKER, response_model=OverdueResponse)
async def list_overdue_tasks(context: Context, body: OverdueRequest) -> Response:
    """List tasks of workers that are past their time limit."""
    async with _workers_connection(context, body.worker_ids) as connection:
        overdue_tasks = await worker_leases.find_overdue_tasks(
            connection, body.worker_ids, body.grace_seconds, body.default_timeout_seconds
        )
    return json_response(OverdueResponse(tasks=overdue_tasks))


@routes.post(endpoints.SETTLE_WORKER.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def settle_worker(context: Context, body: SettleRequest) -> None:
    """Settle a worker process that has ended: its tasks are released or charged."""
    async with _workers_connection(context, [body.worker_id]) as connection:
        owned = await own_leases(context, connection, [task.lease for task in body.overdue])
        overdue = [task for task in body.overdue if task.lease.task_id in owned]
        await settle_process(connection, body.worker_id, overdue, body.crash)
    context.app_state.worker_credentials.revoke(context.actor.org_id, body.worker_id)


@routes.post(endpoints.RUN_LOOPS.path, Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def run_loops(context: Context, body: RunLoopsRequest) -> None:
    """Run one pass of the leader's loops on the server, and start its event router and its sender."""
    async with _workers_connection(context, [body.worker_id]) as connection:
        context.app_state.event_router.activate()
        context.app_state.notification_sender.activate()
        await leader.run_once(connection, worker_id=body.worker_id, term_seconds=body.term_seconds)


@routes.post(endpoints.LIST_DRAINING_WORKERS.path, Permission.WORKER)
async def list_draining_workers(context: Context, body: WorkersRequest) -> DrainingResponse:
    """List the workers that are draining."""
    async with _workers_connection(context, body.worker_ids) as connection:
        draining_ids = await workers.list_draining_workers(connection, body.worker_ids)
    return DrainingResponse(worker_ids=draining_ids)


@asynccontextmanager
async def _workers_connection(context: RequestContext, worker_ids: Sequence[int]) -> AsyncGenerator[Connection]:
    """A connection of the owner, after checking that the workers belong to the caller."""
    async with context.app_state.owner_connection() as connection:
        await context.app_state.check_workers(connection, context.actor.org_id, worker_ids)
        yield connection
