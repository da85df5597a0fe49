"""The task protocol: how workers without a database claim tasks, and say what came of them.

Sessions are the owner's, since claims look across organisations for what is due; what a worker may touch is decided by
the organisation of its key and (everything but claims) by the token of its lease. A lease on another organisation's
task, however come by, is a lost one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import Response

from aaiclick.catalog.errors import CatalogError
from aaiclick.catalog.running.effects import checked_effects
from aaiclick.data.inspect import describe_object
from aaiclick.data.tables import NAMED
from aaiclick.errors import AaiclickError, LeaseLost, NotFoundError, RequestError, UnreachableError
from aaiclick.orchestration.context import job_limits
from aaiclick.orchestration.retry import RetryPolicy
from aaiclick.orchestration.sharing import MARK
from aaiclick.orchestration.transport import forms
from aaiclick.server import protocol
from aaiclick.server.logs import write_part
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import given_tables, reading
from aaiclick.server.routing import Call, Caller, Routes
from aaiclick.store import queue, reads, tables
from aaiclick.store.claims import leases_of_org
from aaiclick.store.leases import Claim, Failure, Lease, Success, began_before
from aaiclick.store.orgs import are_several
from aaiclick.store.outcomes import NOT_HELD
from aaiclick.store.references import tables_in
from aaiclick.store.statements import statement
from aaiclick.store.submit import add_to_job
from aaiclick.store.words import DISPATCHER_QUEUE

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

routes = Routes("work")

LOOK_SECONDS = 1.0
"""What becomes due by itself rings no bell."""


@routes.post("/v1/task/exchange", Permission.WORKER, response_model=protocol.Exchanged)
async def exchange(call: Caller, body: protocol.Exchange) -> Response:
    """Say what came of attempts, and claim more: one request for many tasks."""
    async with _working(call, body.worker_id) as connection:
        said = [*(each.lease for each in body.completed), *(each.lease for each in body.failed), *body.released]
        mine = await own_leases(call, connection, said)
        ended = [await _success(connection, each, mine) for each in body.completed if _is_of(each.lease, mine)]
        refused = [each for each in ended if isinstance(each, Failure)]
        accepted, claims = await queue.acknowledge_and_claim(
            connection,
            worker_id=int(body.worker_id),
            successes=[each for each in ended if isinstance(each, Success)],
            failures=[
                *refused,
                *[await _failure(connection, each) for each in body.failed if _is_of(each.lease, mine)],
            ],
            releases=[lease_of(each) for each in body.released if _is_of(each, mine)],
            limit=body.limit,
            queues=_queues(body),
            lease_seconds=body.lease_seconds,
            org_id=call.principal.org_id,
        )
    return await _claims(call, body, claims, accepted=[str(task_id) for task_id in sorted(accepted)])


@routes.post("/v1/task/claim", Permission.WORKER, response_model=protocol.Claims)
async def claim(call: Caller, body: protocol.ClaimAsk) -> Response:
    """Claim tasks, and wait for some if there are none."""
    deadline = time.monotonic() + body.wait_seconds
    while True:
        async with _working(call, body.worker_id) as connection:
            claims = await queue.claim(
                connection,
                worker_id=int(body.worker_id),
                limit=body.limit,
                queues=_queues(body),
                lease_seconds=body.lease_seconds,
                org_id=call.principal.org_id,
            )
        left = deadline - time.monotonic()
        if claims or left <= 0 or not body.limit or call.service.closing.is_set():
            return await _claims(call, body, claims)
        await call.service.bell.until_ready(min(left, LOOK_SECONDS))


@routes.post("/internal/task-fetch", Permission.WORKER, response_model=protocol.Fetched)
async def fetch(call: Caller, body: protocol.OneLease) -> Response:
    """Show a claimed task with its arguments complete: results of other tasks are in their places."""
    lease = lease_of(body.lease)
    job_id = await require_lease(call, lease)
    async with reading(call) as connection:
        row = await reads.get_task(connection, lease.task_id)
        assert row is not None  # noqa: S101  (it has just been found)
        if row["lease_token"] != lease.token:
            raise _lost(lease)
        kwargs = await reads.resolve_arguments(connection, job_id, row["kwargs"])
    async with _working(call, row["worker_id"]) as owner:  # the worker that holds the lease has to be the caller's
        shared = await are_several(owner)
    claimed = Claim(
        lease, row["org_id"], row["job_id"], row["group_id"], row["type"], row["entrypoint"], kwargs,
        row["timeout_seconds"], row["failures"], row["retry_policy"], queue=row["queue"],
        lease_seconds=row["lease_seconds"],
        priority=row["priority"],
        shared=shared,
    )  # fmt: skip
    lease_seconds = (row["lease_expires_at"] - row["last_heartbeat"]).total_seconds()
    payload = forms.payload_form(claimed, row["worker_id"], lease_seconds)
    return _respond({**payload, **await _credential(call, row["worker_id"])})


@routes.post("/v1/task/start", Permission.WORKER)
async def start(call: Caller, body: protocol.Leases) -> protocol.Holds:
    """Say that tasks run."""
    async with call.service.owner() as connection:
        mine = await own_leases(call, connection, body.leases)
        held = await queue.start(connection, [lease_of(each) for each in body.leases if _is_of(each, mine)])
    return protocol.Holds(ids=[str(task_id) for task_id in sorted(held)])


@routes.post("/v1/task/heartbeat", Permission.WORKER)
async def heartbeat(call: Caller, body: protocol.Heartbeat) -> protocol.HeartbeatOut:
    """Keep leases, and hear which are lost and which tasks are to be cancelled."""
    async with _working(call, body.worker_id) as connection:
        mine = await own_leases(call, connection, body.leases)
        heard = await queue.heartbeat(
            connection,
            worker_id=int(body.worker_id),
            leases=[lease_of(each) for each in body.leases if _is_of(each, mine)],
            lease_seconds=body.lease_seconds,
        )
    lost = heard.lost | {int(each.task_id) for each in body.leases if not _is_of(each, mine)}
    return protocol.HeartbeatOut(
        lost=[str(task_id) for task_id in sorted(lost)],
        cancelled=[str(task_id) for task_id in sorted(heard.cancelled)],
    )


@routes.post("/v1/task/complete", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def complete(call: Caller, body: protocol.Completed) -> None:
    """Say that an attempt succeeded."""
    async with call.service.owner() as connection:
        ended = await _success(connection, body, await _own(call, connection, body.lease))
        if isinstance(ended, Failure):
            _accepted(ended.lease, await queue.acknowledge(connection, worker_id=0, failures=[ended]))
            raise RequestError(ended.error, remedy="Nothing of it was kept.")
        _accepted(ended.lease, await queue.acknowledge(connection, worker_id=0, successes=[ended]))
        if ended.tables:
            row = await reads.get_task(connection, ended.lease.task_id)
            if row is not None and row["error_fingerprint"] == NOT_HELD:
                raise RequestError(row["error"], remedy="Nothing of it was kept.")


@routes.post("/v1/task/fail", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def fail(call: Caller, body: protocol.Failed) -> None:
    """Say that an attempt failed."""
    async with call.service.owner() as connection:
        await _own(call, connection, body.lease)
        failure = await _failure(connection, body)
        _accepted(failure.lease, await queue.acknowledge(connection, worker_id=0, failures=[failure]))


@routes.post("/v1/task/release", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def release(call: Caller, body: protocol.OneLease) -> None:
    """Give a task back, as if it had not been tried."""
    lease = lease_of(body.lease)
    async with call.service.owner() as connection:
        await _own(call, connection, body.lease)
        _accepted(lease, await queue.acknowledge(connection, worker_id=0, releases=[lease]))


@routes.post("/v1/task/add", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def add(call: Caller, body: protocol.Addition) -> None:
    """Add tasks to the job of a running task; they begin when it has completed, and not at all if it does not."""
    lease = lease_of(body.lease)
    job_id = await require_lease(call, lease)
    if job_id is None:
        raise LeaseLost(f"Task {lease.task_id} has no job that anything could be added to.")
    plan, names = await asyncio.to_thread(lambda: forms.plan_of(body.model_dump()))  # takes long for many tasks
    plan.tables = await asyncio.to_thread(given_tables, plan.tasks)
    if plan.tasks or plan.groups:
        async with call.service.owner() as connection:
            await add_to_job(connection, job_id, plan, names, lease, limits=job_limits())


@routes.post("/v1/task/results", Permission.WORKER)
async def results(call: Caller, body: protocol.ResultsAsk) -> protocol.Results:
    """Read what other tasks of the same job returned."""
    job_id = await require_lease(call, lease_of(body.lease))
    found: list[protocol.Result] = []
    async with reading(call) as connection:
        if body.task_ids and job_id is not None:
            texts = await reads.task_results(connection, job_id, [int(task_id) for task_id in body.task_ids])
            found += [
                protocol.Result(task_id=str(task_id), result=forms.loaded(text)) for task_id, text in texts.items()
            ]
        if body.group_id is not None and job_id is not None:
            found += [
                protocol.Result(
                    task_id=str(row["id"]),
                    result=forms.loaded(row["result"]),
                    attempt=row["attempt"],
                    started_at=row["started_at"],
                    completed_at=row["completed_at"],
                )
                for row in await reads.group_results(connection, int(body.group_id), job_id)
            ]
    return protocol.Results(results=found)


@routes.post("/v1/task/tables", Permission.WORKER)
async def wish(call: Caller, body: protocol.Wishes) -> protocol.WishesOut:
    """Refer to tables, or no more; an attempt's references end with it."""
    held: list[tables.Held] = []
    async with call.service.owner() as connection:
        mine = await own_leases(call, connection, [each.lease for each in body.tables])
        wishes = [(each.table, lease_of(each.lease)) for each in body.tables if _is_of(each.lease, mine)]
        if body.deed == "release":
            await tables.release(connection, wishes)
            return protocol.WishesOut(tables=[])
        if wishes:
            held = await (tables.reserve if body.deed == "reserve" else tables.hold)(connection, wishes)
    given, lost = iter(held), tables.Held(lease_lost=True, gone=False)
    answers = [next(given) if _is_of(each.lease, mine) else lost for each in body.tables]
    return protocol.WishesOut(tables=[protocol.HeldOut(lease_lost=each.lease_lost, gone=each.gone) for each in answers])


@routes.post("/v1/task/name", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def name(call: Caller, body: protocol.Naming) -> None:
    """Keep a table by a name, or no more: that of a named Object, which is there."""
    lease = lease_of(body.lease)
    await require_lease(call, lease)
    if not body.table.startswith(NAMED) or (body.name is not None and body.table != NAMED + body.name):
        raise NotFoundError(
            f"The attempt has no table {body.table!r:.60} to name.", remedy=f"The table of a name begins with {NAMED}."
        )
    if body.name is not None:
        await describe_object(await call.service.clickhouse(call.principal.org_id), body.table)
    async with call.service.owner() as connection:
        if body.name is None:
            await tables.unname_table(connection, body.table, lease)
        else:
            await tables.name_table(connection, body.table, body.name, lease)


@routes.post("/v1/task/log", Permission.WORKER, status_code=HTTPStatus.NO_CONTENT)
async def log(call: Caller, body: protocol.LogPart) -> None:
    """Pass on a part of what an attempt says."""
    lease = lease_of(body.lease)
    await require_lease(call, lease)
    await write_part(call.service.settings, lease.task_id, lease.attempt, body.offset, body.text)


@routes.post("/v1/task/wait", Permission.WORKER)
async def wait(call: Caller, body: protocol.Waiting) -> protocol.HeardOut:
    """Wait until there may be work, or something to cancel."""
    heard = await call.service.bell.wait(body.since, body.wait_seconds)
    return protocol.HeardOut(now=heard.now, ready=heard.ready, cancel=heard.cancel)


# --- the parts ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _working(call: Call, worker_id: str) -> AsyncGenerator[Connection]:
    """A connection to claim by, for a worker of the caller's."""
    async with call.service.owner() as connection:
        await call.service.check_workers(connection, call.principal.org_id, [int(worker_id)])
        yield connection


async def require_lease(call: Call, lease: Lease) -> int | None:
    """The job of a lease that holds; raises LeaseLost."""
    async with reading(call) as connection:
        row = await connection.fetchrow(
            statement("has_lease"), lease.task_id, lease.attempt, lease.token, call.principal.org_id
        )
    if row is None:
        raise _lost(lease)
    return row["job_id"]


async def own_leases(call: Call, connection: Connection, given: Iterable[protocol.LeaseForm]) -> dict[int, bool]:
    """Which of these tasks are of the caller's organisation, and whether their attempts hold tables."""
    return await leases_of_org(connection, [lease_of(each) for each in given], call.principal.org_id)


async def _own(call: Call, connection: Connection, form: protocol.LeaseForm) -> dict[int, bool]:
    """The same for one task; raises LeaseLost if it is another's."""
    mine = await own_leases(call, connection, [form])
    if not _is_of(form, mine):
        raise _lost(lease_of(form))
    return mine


def _is_of(form: protocol.LeaseForm, mine: Container[int]) -> bool:
    return int(form.task_id) in mine


def _accepted(lease: Lease, accepted: set[int]) -> None:
    if lease.task_id not in accepted:
        raise _lost(lease)


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"Attempt {lease.attempt} of task {lease.task_id} has lost its lease, and changes nothing.",
        remedy="Stop: another attempt is at work or has finished.",
    )


def lease_of(form: protocol.LeaseForm) -> Lease:
    return Lease(int(form.task_id), form.attempt, form.token, form.linked)


def _queues(body: protocol.Ask) -> list[str]:
    if DISPATCHER_QUEUE in body.queues:
        raise RequestError(
            f"The queue {DISPATCHER_QUEUE!r} is for workers beside the databases.", remedy="Name other queues."
        )
    return body.queues


async def _success(connection: Connection, form: protocol.Completed, holds: Mapping[int, bool]) -> Success | Failure:
    """What an attempt of ours came to; a failure if it would leave behind what is not its own."""
    lease = lease_of(form.lease)
    effects = None
    if form.effects is not None:
        row = await reads.get_task(connection, lease.task_id)
        try:
            effects = await checked_effects(connection, row, form.effects.model_dump(mode="json"))
        except CatalogError as error:
            return Failure(lease, error.what, "effects refused", True, 0.0, began_before(form.seconds))
    result = forms.dumped(form.result)
    named = set(form.tables or ())
    if result is not None and MARK in result:  # whatever the worker says of it
        named |= tables_in(form.result)
    # Who names none may have held some all the same: they are released then.
    plays_no_part = form.tables is None and not named and not holds.get(lease.task_id)
    tables_within = None if plays_no_part else tuple(sorted(named))
    return Success(
        lease,
        result,
        began_before(form.seconds),
        tuple(int(task_id) for task_id in form.awaits),
        tables_within,
        effects,
    )


async def _failure(connection: Connection, form: protocol.Failed) -> Failure:
    lease = lease_of(form.lease)
    delay = form.delay_seconds
    if delay is None:
        row = await reads.get_task(connection, lease.task_id)
        delay = RetryPolicy.of(row["retry_policy"]).delay_seconds(row["failures"] + 1) if row else 0.0
    return Failure(
        lease,
        form.error,
        form.fingerprint,
        form.permanent,
        delay,
        began_before(form.seconds),
        form.charged,
        form.outcome,
    )


async def _claims(call: Call, body: protocol.Ask, claims: Sequence[Claim], **more: Any) -> Response:
    found = await _credential(call, int(body.worker_id)) if claims else _NO_CREDENTIAL
    return _respond({"tasks": [forms.claim_form(each) for each in claims], **found, **more})


_NO_CREDENTIAL: dict[str, Any] = {"clickhouse": None, "no_clickhouse": None, "clickhouse_unreachable": False}


async def _credential(call: Call, worker_id: int) -> dict[str, Any]:
    """What the worker needs to reach the data of its org, or why there is nothing. A task need not touch data."""
    try:
        target = await call.service.lending.give(call.principal.org_id, worker_id)
        return {**_NO_CREDENTIAL, "clickhouse": forms.target_form(target)}
    except UnreachableError:
        return {**_NO_CREDENTIAL, "no_clickhouse": "It does not answer.", "clickhouse_unreachable": True}
    except AaiclickError as error:
        return {**_NO_CREDENTIAL, "no_clickhouse": error.what, "clickhouse_unreachable": bool(error.endpoint)}


def _respond(content: Any) -> Response:
    return Response(json.dumps(content), media_type="application/json")
