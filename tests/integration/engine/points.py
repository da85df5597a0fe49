"""For each named commit: how to come to it, how to see whether it has happened, and saying the same again.

A scene is prepared over one connection and acted over another, perhaps in a process that does not survive it: what is
carried between the two is plain values.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg

from aaiclick.catalog.deploy import deploy, finish, roll_back
from aaiclick.catalog.registration import register_range
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.orchestration.loops import scheduler
from aaiclick.server.once import once
from aaiclick.server.routes.common import changing, note, operating
from aaiclick.server.shapes import Created
from aaiclick.server.ui.guestbook import Guestbook
from aaiclick.server.ui.sessions import sign_in_subject
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import (
    catalog_backfill,
    catalog_datasets,
    catalog_events,
    catalog_sources,
    control,
    dispatches,
    event_routing,
    queue,
    supervision,
    tables,
    upkeep,
    users,
    workers,
)
from aaiclick.store.catalog_runs import emit_updates, publishing
from aaiclick.store.catalog_sources import start_source
from aaiclick.store.claims import heartbeat, promote
from aaiclick.store.enqueue import COPIED_FROM, enqueue_tasks, enqueue_with_tables
from aaiclick.store.leases import Failure, Success, Tally
from aaiclick.store.orgs import Limits
from aaiclick.store.plan import NewTask, Plan
from aaiclick.store.streaming import submit_slices
from aaiclick.store.submit import NewJob, add_to_job, submit_job
from aaiclick.store.words import DEFAULT_ORG_ID

LONG_SECONDS = 5000.0
TABLE, SESSION = "t_points", 7
DAG = """
name: points
jobs:
  - {name: sell, activation: source, operator: sql, source: {kind: cron, schedule: "0 6 * * *", missed: all},
     outputs: [raw], config: {query: "SELECT 1 AS id"}}
  - {name: tidy, activation: reactive, operator: sql, outputs: [orders], config: {query: "SELECT id FROM raw"}}
publish: [orders]
"""

State = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """`prepare` gives what `act` needs; `done` asks PostgreSQL whether the commit has happened."""

    prepare: Callable[[Any], Awaitable[State]]
    act: Callable[[Any, State], Awaitable[Any]]
    done: Callable[[Any, State], Awaitable[bool]]
    happened_before: bool = False
    """Whether it is there already just before: the commit before this one made it."""


def new(task_id: int | None = None, **options: Any) -> NewTask:
    return NewTask(task_id or get_snowflake_id(), "t", "m.t", **options)


def asks(question: str, *names: str, is_: Any = True) -> Callable[[Any, State], Awaitable[bool]]:
    async def ask(db: Any, state: State) -> bool:
        return await db.fetchval(question, *(state[name] for name in names)) == is_

    return ask


def status(wanted: str) -> Callable[[Any, State], Awaitable[bool]]:
    return asks("SELECT status::text FROM tasks WHERE id = $1", "task", is_=wanted)


async def nothing(_: Any) -> State:
    return {"task": get_snowflake_id(), "job": get_snowflake_id()}


async def worker(db: Any) -> State:
    return {"worker": (await queue.register_worker(db, hostname="here", pid=1)).id}


async def item(db: Any, **options: Any) -> State:
    task = get_snowflake_id()
    await enqueue_tasks(db, [new(task, **options)])
    return {"task": task, **await worker(db)}


async def job(db: Any, **options: Any) -> State:
    """Two tasks, one after the other."""
    state = await nothing(db)
    first, second = new(state["task"], **options), new()
    await submit_job(db, NewJob(state["job"], "job"), Plan([first, second], [], [(first.id, second.id)]))
    return {**state, "next": second.id, **await worker(db)}


async def claim(db: Any, state: State) -> None:
    found = await queue.claim(db, worker_id=state["worker"], limit=1, queues=(), lease_seconds=60)
    state["lease"], state["claim"] = (found[0].lease, found[0]) if found else (None, None)


def claimed(make: Callable[..., Awaitable[State]], **options: Any) -> Callable[[Any], Awaitable[State]]:
    async def prepare(db: Any) -> State:
        state = await make(db, **options)
        await claim(db, state)
        return state

    return prepare


def ended(make: Callable[..., Awaitable[State]], *, fails: bool) -> Callable[[Any], Awaitable[State]]:
    async def prepare(db: Any) -> State:
        state = await claimed(make, max_attempts=1)(db)
        if fails:
            failure = Failure(state["lease"], error="no luck", fingerprint="no luck")
            await queue.acknowledge(db, worker_id=state["worker"], failures=[failure])
        else:
            await succeed(db, state)
        return state

    return prepare


async def succeed(db: Any, state: State) -> None:
    await queue.acknowledge(db, worker_id=state["worker"], successes=[Success(state["lease"])])


async def waiting(db: Any) -> State:
    later = await db.fetchval("SELECT now() + interval '1 hour'")
    return {**await item(db, available_at=later), "now": later + timedelta(minutes=1)}


async def silent(db: Any) -> State:
    return {**await worker(db), "now": await db.fetchval("SELECT now() + interval '1 hour'")}


async def deployed(db: Any) -> State:
    await deploy(db, DAG)
    return {"now": await db.fetchval("SELECT now() + interval '25 hours'"), **await nothing(db)}


async def deployed_twice(db: Any) -> State:
    first = await deploy(db, DAG)
    second = await deploy(db, DAG.replace("name: points", "name: points\ndefaults: {max_attempts: 7}"))
    assert second.serves
    return {"first": first.version_hash, "version": first.version_id}


async def filled(db: Any) -> State:
    """A version whose datasets are filled, and which does not serve yet."""
    await deploy(db, DAG)
    begun = await deploy(db, DAG.replace("SELECT 1 AS id", "SELECT 2 AS id"))
    assert not begun.serves
    state = await worker(db)
    await claim(db, state)
    await succeed(db, state)
    return {"begun": begun, "version": begun.version_id}


async def emitted(db: Any) -> State:
    state = await deployed(db)
    found = await db.fetchrow(
        "SELECT p.dataset_uuid, p.dataset_version, p.dag_version_id FROM dag_version_datasets p "
        "JOIN datasets d ON d.id = p.dataset_uuid WHERE d.name = 'points.raw'"
    )
    job_id = await catalog_events.open_job(db, DEFAULT_ORG_ID, "one", found["dag_version_id"], {})
    event = catalog_events.Event(DEFAULT_ORG_ID, job_id, found["dataset_uuid"], found["dataset_version"])
    async with db.transaction():
        await catalog_events.count_events(db, await catalog_events.emit(db, [event]))
    return state | {"job": job_id}


async def poisoned(db: Any) -> State:
    """An event that can be routed behind one that cannot."""
    job_id = await catalog_events.open_job(db, DEFAULT_ORG_ID, "poison", None, {})
    await db.execute("INSERT INTO outbox (org_id, job_id, kind) VALUES ($1, $2, 'route_event')", DEFAULT_ORG_ID, job_id)
    await db.execute("UPDATE jobs SET open_events = 1 WHERE id = $1", job_id)
    return await emitted(db)


async def short_lease(db: Any) -> State:
    state = await claimed(item)(db)
    await db.execute("UPDATE tasks SET lease_seconds = $1", LONG_SECONDS)
    return state


async def emitting(db: Any) -> State:
    """A source that runs, and an update of its output."""
    await deployed(db)
    await start_source(db, DEFAULT_ORG_ID, "points", None, {"kind": "manual"})
    state = await worker(db)
    await claim(db, state)
    found = await db.fetchrow(
        "SELECT p.dataset_uuid, p.dataset_version FROM dag_version_datasets p JOIN datasets d ON d.id = p.dataset_uuid "
        "WHERE d.name = 'points.raw'"
    )
    update = {
        "dataset": str(found["dataset_uuid"]), "generation": str(found["dataset_version"]), "ticket": 1, "columns": {},
        "schema_hash": "h", "partitions": [], "rows": 1, "whole": False, "changed": [""],
    }  # fmt: skip
    effects = {"definition": "", "build": None, "states": [], "lineage": {}, "updates": [update]}
    return state | {"effects": json.dumps(effects)}


async def generation(db: Any) -> State:
    state = await deployed(db)
    version = await db.fetchval("SELECT dataset_version FROM dag_version_datasets LIMIT 1")
    return {**state, **await claimed(item)(db), "generation": version}


async def publish(db: Any, state: State) -> None:
    async with publishing(db, state["lease"], state["generation"], "p", 1):
        pass


async def one_task(db: Any, **options: Any) -> State:
    state = await nothing(db)
    await submit_job(db, NewJob(state["job"], "job"), Plan([new(state["task"], **options)], [], []))
    return {**state, **await worker(db)}


def later(make: Callable[..., Awaitable[State]]) -> Callable[[Any], Awaitable[State]]:
    """Long after that."""

    async def prepare(db: Any) -> State:
        return {**await make(db), "now": await db.fetchval("SELECT now() + interval '2 days'")}

    return prepare


def done_to(
    make: Callable[..., Awaitable[State]], *deeds: Callable[[Any, State], Awaitable[Any]]
) -> Callable[[Any], Awaitable[State]]:
    async def prepare(db: Any) -> State:
        state = await make(db)
        for deed in deeds:
            await deed(db, state)
        return state

    return prepare


def enqueue(**options: Any) -> Callable[[Any, State], Awaitable[None]]:
    async def act(db: Any, state: State) -> None:
        await enqueue_tasks(db, [new(state["task"], idempotency_key="key", **options)])

    return act


async def enqueue_many(db: Any, state: State) -> None:
    with suppress(asyncpg.UniqueViolationError):  # who says the same again by the same ids is refused
        await enqueue_tasks(db, [new(state["task"]), *(new() for _ in range(COPIED_FROM))])


async def enqueue_given(db: Any, state: State) -> None:
    task = new(state["task"], idempotency_key="key")
    await enqueue_with_tables(db, [task], [(task.id, TABLE)], {TABLE: SESSION})


async def enqueue_once(db: Any, state: State) -> None:
    """As a request is answered, as far as that asks for it."""

    async def body() -> bytes:
        return b"{}"

    async def work(connection: Any) -> Created:
        await enqueue_tasks(connection, [new(state["task"])])
        return Created(id=str(state["task"]))

    call: Any = Asker(db)
    request: Any = SimpleNamespace(method="POST", scope={"route": SimpleNamespace(path="/v1/tasks")}, body=body)
    assert (await once(call, request, "key", work)).status_code == 201


class Asker:
    """As much of a request as its commit needs: who asks, and what serves it."""

    def __init__(self, db: Any) -> None:
        self.service, self.guestbook, self.request_id = self, Guestbook(), None
        self.principal = SimpleNamespace(org_id=DEFAULT_ORG_ID, actor="somebody")
        self._db = db

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[Any]:
        yield self._db

    @asynccontextmanager
    async def tenant(self, _: Any) -> AsyncIterator[Any]:
        yield self._db


async def change(db: Any, _: State) -> None:
    call: Any = Asker(db)
    async with changing(call) as connection:
        await control.pause_queue(connection, "default")
        await note(call, connection, "queue.pause", "default")


async def operate(db: Any, _: State) -> None:
    call: Any = Asker(db)
    async with operating(call) as connection:
        await control.pause_org(connection, DEFAULT_ORG_ID)
        await note(call, connection, "org.pause", DEFAULT_ORG_ID)


async def do_deed(db: Any, _: State) -> None:
    async with recorded(db):
        await control.pause_type(db, "t")
        await note_deed(db, DEFAULT_ORG_ID, "type.pause", "t")


async def known(db: Any) -> State:
    await users.create_user(db, DEFAULT_ORG_ID, external_id="ada", role="reader")
    return {}


async def sign_in(db: Any, _: State) -> None:
    house: Any = Asker(db)
    assert await sign_in_subject(house, "ada", None)


async def submit_in_slices(db: Any, state: State) -> None:
    async def slices() -> AsyncIterator[tuple[Plan, Mapping[int, str]]]:
        yield Plan([new(state["task"])], [], []), {}
        yield Plan([new()], [], []), {}

    await submit_slices(db, NewJob(state["job"], "job", idempotency_key="key"), slices())


async def register(db: Any, state: State) -> None:
    await workers.register_worker(db, hostname="here", pid=1, worker_id=state["task"])


async def lead(db: Any, state: State) -> None:
    await workers.lead(db, state["worker"], term_seconds=60)


async def count(db: Any, state: State) -> None:
    await workers.count_outcomes(db, state["worker"], {(DEFAULT_ORG_ID, "default"): Tally(1, 0)})


async def forget(db: Any, state: State) -> None:
    await upkeep.forget(db, keep_seconds=60, now=state["now"])


async def tell(db: Any, _: State) -> None:
    await dispatches.take(db, "default", limit=10, again_seconds=60)


async def reserve(db: Any, state: State) -> None:
    await tables.reserve(db, [(TABLE, state["lease"])])


async def release(db: Any, state: State) -> None:
    await tables.release(db, [(TABLE, state["lease"])])


async def read_by_another(db: Any, state: State) -> None:
    """The table stays that of the first attempt; the next one is about to read it."""
    await reserve(db, state)
    await enqueue_tasks(db, [new()])
    await claim(db, state)


async def rematerialize(db: Any, _: State) -> None:
    dataset = await db.fetchval("SELECT id FROM datasets WHERE name = 'orders'")
    await catalog_datasets.rematerialize(db, DEFAULT_ORG_ID, dataset, "orders")


async def register_version(db: Any, _: State) -> None:
    everything = catalog_datasets.Reader(DEFAULT_ORG_ID, None)
    await register_range(db, everything, "orders", catalog_datasets.VersionRange(0, 9))


async def submit(db: Any, state: State) -> None:
    await submit_job(db, NewJob(state["job"], "job", idempotency_key="key"), Plan([new(state["task"])], [], []))


async def add(db: Any, state: State) -> None:
    await add_to_job(db, state["job"], Plan([new()], [], []), {}, state["lease"])


async def beat(db: Any, state: State) -> None:
    await heartbeat(db, worker_id=state["worker"], leases=[state["lease"]], lease_seconds=LONG_SECONDS)


async def backfill(db: Any, _: State) -> None:
    found = await catalog_backfill.definitions_of(db, DEFAULT_ORG_ID, "points")
    wanted = catalog_backfill.Wanted("2026-01-01", {"kind": "backfill"})
    await catalog_backfill.start(db, next(each for each in found if each["name"] == "sell"), [wanted], limit=None)


COMPLETED, CANCELLED = status("COMPLETED"), status("CANCELLED")
EXTENDED = asks("SELECT lease_expires_at > now() + interval '1 hour' FROM tasks WHERE id = $1", "task")
NEXT_READY = asks("SELECT readiness::text FROM tasks WHERE id = $1", "next", is_="READY")
THERE = asks("SELECT count(*) FROM tasks WHERE id = $1", "task", is_=1)
STOPPED = asks("SELECT status::text FROM workers WHERE id = $1", "worker", is_="STOPPED")
DAG_JOBS = asks("SELECT count(*) FROM jobs", is_=1)

KNOWN = asks("SELECT count(*) FROM table_refcounts", is_=1)
DROPPING = asks("SELECT count(dropping_at) FROM table_refcounts", is_=1)


def with_record(question: str) -> Callable[[Any, State], Awaitable[bool]]:
    """What was done, and what is told of it."""
    return asks(f"SELECT ({question}) AND (SELECT count(*) > 0 FROM audit_log)")


def none_of(table: str) -> Callable[[Any, State], Awaitable[bool]]:
    return asks(f"SELECT count(*) FROM {table}", is_=0)


def paused(table: str, is_: int) -> Callable[[Any, State], Awaitable[bool]]:
    return asks(f"SELECT count(paused_at) FROM {table}", is_=is_)


def pausing(kind: str, table: str, make: Callable[..., Awaitable[State]], *what: Any) -> dict[str, Scenario]:
    """Pausing and resuming; `what` may be the name of something in the state."""

    def deed(name: str) -> Callable[[Any, State], Awaitable[Any]]:
        return lambda db, state: getattr(control, name)(db, *(state.get(each, each) for each in what))

    pause, resume = f"pause_{kind}", f"resume_{kind}"
    return {
        pause: Scenario(make, deed(pause), paused(table, 1)),
        resume: Scenario(done_to(make, deed(pause)), deed(resume), paused(table, 0)),
    }


SCENARIOS = {
    "enqueue": Scenario(nothing, enqueue(), THERE),
    "enqueue_limited": Scenario(nothing, enqueue(concurrency_key="one", concurrency_limit=1), THERE),
    "enqueue_many": Scenario(nothing, enqueue_many, THERE),
    "enqueue_with_tables": Scenario(nothing, enqueue_given, THERE),
    "once": Scenario(nothing, enqueue_once, THERE),
    "change": Scenario(nothing, change, with_record("SELECT count(paused_at) = 1 FROM queues")),
    "operate": Scenario(nothing, operate, with_record("SELECT count(paused_at) = 1 FROM orgs")),
    "deed": Scenario(nothing, do_deed, with_record("SELECT count(paused_at) = 1 FROM task_types")),
    "sign_in": Scenario(known, sign_in, with_record("SELECT count(*) > 0 FROM ui_sessions")),
    "submit": Scenario(nothing, submit, THERE),
    "submit_slices": Scenario(nothing, submit_in_slices, THERE),
    "add": Scenario(
        claimed(job), add, asks("SELECT count(*) > 0 FROM task_additions WHERE task_id = $1", "task")
    ),
    "claim": Scenario(item, claim, status("CLAIMED")),
    "take_dispatches": Scenario(
        item, lambda db, _: dispatches.take(db, "default", limit=10, again_seconds=60),
        asks("SELECT count(*) FROM dispatches WHERE task_id = $1", "task", is_=1),
    ),
    "fail_dispatches": Scenario(
        done_to(item, tell), lambda db, state: dispatches.note_failure(db, [state["task"]], "away"),
        asks("SELECT error FROM dispatches", is_="away"),
    ),
    "note_dispatch": Scenario(
        claimed(item), lambda db, state: dispatches.note_refusal(db, state["claim"], "away"),
        asks("SELECT error FROM dispatches", is_="away"),
    ),
    "forget_dispatches": Scenario(
        done_to(item, tell, claim), lambda db, _: dispatches.forget(db), none_of("dispatches")
    ),
    "start": Scenario(claimed(item), lambda db, state: queue.start(db, [state["lease"]]), status("RUNNING")),
    "heartbeat": Scenario(claimed(item), beat, EXTENDED),
    "keep_leases": Scenario(
        claimed(item), lambda db, state: supervision.keep_leases(db, [state["worker"]], LONG_SECONDS), EXTENDED
    ),
    "renew_task_leases": Scenario(
        short_lease, lambda db, state: supervision.renew_task_leases(db, [state["worker"]]), EXTENDED
    ),
    "complete": Scenario(claimed(item), succeed, COMPLETED),
    "end": Scenario(claimed(job), succeed, NEXT_READY),
    "flush": Scenario(claimed(job), succeed, NEXT_READY, happened_before=True),
    "promote": Scenario(
        waiting, lambda db, state: promote(db, now=state["now"]),
        asks("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="READY"),
    ),
    "cancel_job": Scenario(job, lambda db, state: control.cancel_job(db, state["job"]), CANCELLED),
    "cancel_tasks": Scenario(job, lambda db, state: control.cancel_tasks(db, [state["task"]]), CANCELLED),
    "retry": Scenario(
        ended(job, fails=True), lambda db, state: control.retry_failed_tasks(db, state["job"]), status("PENDING")
    ),
    "redrive": Scenario(
        ended(item, fails=True), lambda db, state: control.redrive(db, task_ids=[state["task"]]), status("PENDING")
    ),
    "clear": Scenario(ended(job, fails=False), lambda db, state: control.clear(db, state["task"]), status("PENDING")),
    "set_queue": Scenario(
        nothing, lambda db, _: control.set_queue(db, "default", Limits(max_running=3)),
        asks("SELECT max_running FROM queues", is_=3),
    ),
    **pausing("queue", "queues", nothing, "default"),
    **pausing("org", "orgs", nothing, DEFAULT_ORG_ID),
    **pausing("type", "task_types", nothing, "t"),
    **pausing("job", "jobs", job, "job"),
    "register_worker": Scenario(
        nothing, register, asks("SELECT count(*) FROM workers WHERE id = $1", "task", is_=1)
    ),
    "deregister": Scenario(worker, lambda db, state: workers.deregister_worker(db, state["worker"]), STOPPED),
    "dead_workers": Scenario(
        silent, lambda db, state: workers.stop_dead_workers(db, timeout_seconds=60, now=state["now"]), STOPPED
    ),
    "lead": Scenario(worker, lead, asks("SELECT is_leader FROM workers WHERE id = $1", "worker")),
    "resign": Scenario(
        done_to(worker, lead), lambda db, state: workers.resign(db, state["worker"]),
        asks("SELECT is_leader FROM workers WHERE id = $1", "worker", is_=False),
    ),
    "forget_jobs": Scenario(later(ended(one_task, fails=False)), forget, none_of("jobs")),
    "forget_tasks": Scenario(later(ended(item, fails=False)), forget, none_of("tasks")),
    "forget_workers": Scenario(
        later(done_to(worker, lambda db, state: workers.deregister_worker(db, state["worker"]))), forget,
        none_of("workers"),
    ),
    "forget_queue_minutes": Scenario(later(done_to(worker, count)), forget, none_of("queue_minutes")),
    "reserve_tables": Scenario(claimed(item), reserve, KNOWN),
    "hold_tables": Scenario(
        done_to(claimed(item), read_by_another), lambda db, state: tables.hold(db, [(TABLE, state["lease"])]),
        asks("SELECT count(*) FROM table_references", is_=2),
    ),
    "release_tables": Scenario(done_to(claimed(item), reserve), release, none_of("table_references")),
    "mark_dropping": Scenario(
        done_to(claimed(item), reserve, release), lambda db, _: tables.mark_dropping(db), DROPPING
    ),
    "mark_orphans": Scenario(nothing, lambda db, _: tables.mark_orphans(db, [TABLE]), DROPPING),
    "forget_tables": Scenario(
        done_to(nothing, lambda db, _: tables.mark_orphans(db, [TABLE])),
        lambda db, _: tables.forget_tables(db, [TABLE]), none_of("table_refcounts"),
    ),
    "deploy": Scenario(nothing, lambda db, _: deploy(db, DAG), asks("SELECT count(*) FROM dag_versions", is_=1)),
    "finish_deploy": Scenario(
        filled, lambda db, state: finish(db, state["begun"]),
        asks("SELECT dag_version_id = $1 FROM dag_current_versions", "version"),
    ),
    "roll_back": Scenario(
        deployed_twice, lambda db, state: roll_back(db, "points", state["first"]),
        asks("SELECT dag_version_id = $1 FROM dag_current_versions", "version"),
    ),
    "fire": Scenario(
        deployed,
        lambda db, _: start_source(db, DEFAULT_ORG_ID, "points", None, {"kind": "manual"}, idempotency_key="key"),
        DAG_JOBS,
    ),
    "pause_dag": Scenario(
        deployed, lambda db, _: catalog_sources.pause_dag(db, DEFAULT_ORG_ID, "points"),
        paused("dag_current_versions", 1),
    ),
    "resume_dag": Scenario(
        done_to(deployed, lambda db, _: catalog_sources.pause_dag(db, DEFAULT_ORG_ID, "points")),
        lambda db, _: catalog_sources.resume_dag(db, DEFAULT_ORG_ID, "points"), paused("dag_current_versions", 0),
    ),
    "rematerialize": Scenario(deployed, rematerialize, asks("SELECT count(*) > 0 FROM jobs")),
    "register_version": Scenario(
        deployed, register_version, asks("SELECT count(*) FROM dataset_versions WHERE range_end = 9", is_=1)
    ),
    "schedule": Scenario(deployed, lambda db, state: scheduler.run_once(db, now=state["now"]), DAG_JOBS),
    "backfill": Scenario(deployed, backfill, DAG_JOBS),
    "publish": Scenario(
        generation, publish, asks("SELECT count(*) FROM dataset_partitions WHERE partition_key = 'p'", is_=1)
    ),
    "emit": Scenario(
        emitting, lambda db, state: emit_updates(db, state["lease"], state["effects"], "1"),
        asks("SELECT count(*) > 0 AND (SELECT open_events > 0 FROM jobs) FROM outbox WHERE cursor = '1'"),
    ),
    "route_around": Scenario(
        poisoned, lambda db, _: event_routing.route(db),
        asks("SELECT count(*) FROM tasks WHERE job_id = $1", "job", is_=1),
    ),
    "route": Scenario(
        emitted, lambda db, _: event_routing.route(db),
        asks("SELECT count(*) FROM tasks WHERE job_id = $1", "job", is_=1),
    ),
}  # fmt: skip
