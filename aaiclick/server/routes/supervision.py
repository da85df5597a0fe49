"""What the supervisor of a worker says on behalf of its processes: that they live, and what they leave behind."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import Response

from aaiclick.orchestration.loops import keeper
from aaiclick.orchestration.transport import forms
from aaiclick.orchestration.transport.direct import settle as settle_process
from aaiclick.server import protocol
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.work import own_leases
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.settings import get_logs_dir
from aaiclick.store import supervision, workers
from aaiclick.store.leases import Tally

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

routes = Routes("supervision")


@routes.post("/v1/worker/register", Permission.WORKER)
async def register(call: Caller, body: protocol.Registration) -> protocol.Registered:
    """Say that a worker process is there; it works for the organisation of its key alone."""
    async with call.service.owner() as connection:
        made = await workers.register_worker(
            connection,
            worker_id=None if body.worker_id is None else int(body.worker_id),
            hostname=body.hostname,
            pid=body.pid,
            pool_size=body.pool_size,
            version=body.version,
            queues=body.queues,
            org_id=call.principal.org_id,
            log_directory=get_logs_dir(call.service.settings),
        )
    return protocol.Registered(worker_id=str(made.id))


@routes.post("/v1/worker/count", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def count(call: Caller, body: protocol.Counts) -> None:
    """Add to what a worker has completed and failed so far, by queue."""
    org_id = call.principal.org_id
    tallies = {(org_id, each.queue): Tally(each.completed, each.failed) for each in body.queues}
    async with _speaking(call, [body.worker_id]) as connection:
        await workers.count_outcomes(connection, int(body.worker_id), tallies)


@routes.post("/v1/worker/held", Permission.WORKER, response_model=protocol.HeldTasks)
async def held(call: Caller, body: protocol.OneWorker) -> Response:
    """Show what a worker holds, and which of it is to be cancelled."""
    async with _speaking(call, [body.worker_id]) as connection:
        found = await supervision.held(connection, int(body.worker_id))
    return _tasks([forms.held_form(each) for each in found])


@routes.post("/v1/worker/keep", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def keep(call: Caller, body: protocol.Keeping) -> None:
    """Say that workers live, and keep everything they hold."""
    async with _speaking(call, body.worker_ids) as connection:
        await supervision.keep_leases(connection, [int(each) for each in body.worker_ids], body.lease_seconds)


@routes.post("/v1/worker/overdue", Permission.WORKER, response_model=protocol.OverdueTasks)
async def overdue(call: Caller, body: protocol.OverdueAsk) -> Response:
    """Show tasks that workers hold though they should have ended."""
    async with _speaking(call, body.worker_ids) as connection:
        found = await supervision.overdue(
            connection, [int(each) for each in body.worker_ids], body.grace_seconds, body.default_timeout_seconds
        )
    return _tasks([forms.overdue_form(each) for each in found])


@routes.post("/v1/worker/settle", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def settle(call: Caller, body: protocol.Settlement) -> None:
    """Say that a worker process has ended: what it held goes back."""
    async with _speaking(call, [body.worker_id]) as connection:
        mine = await own_leases(call, connection, [each.lease for each in body.culprits])
        charged = [each for each in body.culprits if int(each.lease.task_id) in mine]
        culprits = [forms.overdue_of(each.model_dump(mode="json")) for each in charged]
        await settle_process(connection, int(body.worker_id), culprits, body.crashed)
    call.service.lending.end(call.principal.org_id, int(body.worker_id))


@routes.post("/v1/worker/house", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def house(call: Caller, body: protocol.House) -> None:
    """Have this server run the loops (expired leases, retries, deadlines, schedules), and route events of datasets."""
    async with _speaking(call, [body.worker_id]) as connection:
        call.service.routing.want()
        await keeper.run_once(connection, worker_id=int(body.worker_id), term_seconds=body.term_seconds)


@routes.post("/v1/worker/draining", Permission.WORKER)
async def draining(call: Caller, body: protocol.Workers) -> protocol.Workers:
    """Show which workers are to finish what they run and end."""
    async with _speaking(call, body.worker_ids) as connection:
        found = await workers.draining(connection, [int(each) for each in body.worker_ids])
    return protocol.Workers(worker_ids=[str(each) for each in found])


@asynccontextmanager
async def _speaking(call: Call, worker_ids: Sequence[str]) -> AsyncGenerator[Connection]:
    """A connection on behalf of workers of the caller's."""
    async with call.service.owner() as connection:
        await call.service.check_workers(connection, call.principal.org_id, [int(each) for each in worker_ids])
        yield connection


def _tasks(tasks: Sequence[forms.Form]) -> Response:
    return Response(json.dumps({"tasks": tasks}), media_type="application/json")
