"""For each named commit: how to come to it, how to see whether it has happened, and saying the same again.

A scene is prepared over one connection and acted over another, perhaps in a process that does not survive it: what is
carried between the two is plain values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from aaiclick.catalog.deploy import deploy, roll_back
from aaiclick.orchestration.loops import scheduler
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import catalog_backfill, catalog_events, control, dispatches, queue, supervision, workers
from aaiclick.store.catalog_runs import publishing
from aaiclick.store.catalog_sources import start_source
from aaiclick.store.claims import heartbeat, promote
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.leases import Failure, Success
from aaiclick.store.plan import NewTask, Plan
from aaiclick.store.submit import NewJob, add_to_job, submit_job
from aaiclick.store.words import DEFAULT_ORG_ID

LONG_SECONDS = 5000.0
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
    state["lease"] = found[0].lease if found else None


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


async def generation(db: Any) -> State:
    state = await deployed(db)
    version = await db.fetchval("SELECT dataset_version FROM dag_version_datasets LIMIT 1")
    return {**state, **await claimed(item)(db), "generation": version}


async def publish(db: Any, state: State) -> None:
    async with publishing(db, state["lease"], state["generation"], "p", 1):
        pass


async def enqueue(db: Any, state: State) -> None:
    await enqueue_tasks(db, [new(state["task"], idempotency_key="key", concurrency_key="one", concurrency_limit=1)])


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

SCENARIOS = {
    "enqueue": Scenario(nothing, enqueue, THERE),
    "submit": Scenario(nothing, submit, THERE),
    "add": Scenario(
        claimed(job), add, asks("SELECT count(*) > 0 FROM task_additions WHERE task_id = $1", "task")
    ),
    "claim": Scenario(item, claim, status("CLAIMED")),
    "take_dispatches": Scenario(
        item, lambda db, _: dispatches.take(db, "default", limit=10, again_seconds=60),
        asks("SELECT count(*) FROM dispatches WHERE task_id = $1", "task", is_=1),
    ),
    "start": Scenario(claimed(item), lambda db, state: queue.start(db, [state["lease"]]), status("RUNNING")),
    "heartbeat": Scenario(claimed(item), beat, EXTENDED),
    "keep_leases": Scenario(
        claimed(item), lambda db, state: supervision.keep_leases(db, [state["worker"]], LONG_SECONDS), EXTENDED
    ),
    "complete": Scenario(claimed(item), succeed, COMPLETED),
    "end": Scenario(claimed(job), succeed, NEXT_READY),
    "flush": Scenario(claimed(job), succeed, NEXT_READY, happened_before=True),
    "promote": Scenario(
        waiting, lambda db, state: promote(db, now=state["now"]),
        asks("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="READY"),
    ),
    "cancel": Scenario(job, lambda db, state: control.cancel_job(db, state["job"]), CANCELLED),
    "retry": Scenario(
        ended(job, fails=True), lambda db, state: control.retry_failed_tasks(db, state["job"]), status("PENDING")
    ),
    "redrive": Scenario(
        ended(item, fails=True), lambda db, state: control.redrive(db, task_ids=[state["task"]]), status("PENDING")
    ),
    "clear": Scenario(ended(job, fails=False), lambda db, state: control.clear(db, state["task"]), status("PENDING")),
    "deregister": Scenario(worker, lambda db, state: workers.deregister_worker(db, state["worker"]), STOPPED),
    "dead_workers": Scenario(
        silent, lambda db, state: workers.stop_dead_workers(db, timeout_seconds=60, now=state["now"]), STOPPED
    ),
    "lead": Scenario(
        worker, lambda db, state: workers.lead(db, state["worker"], term_seconds=60),
        asks("SELECT is_leader FROM workers WHERE id = $1", "worker"),
    ),
    "deploy": Scenario(nothing, lambda db, _: deploy(db, DAG), asks("SELECT count(*) FROM dag_versions", is_=1)),
    "swap": Scenario(
        deployed_twice, lambda db, state: roll_back(db, "points", state["first"]),
        asks("SELECT dag_version_id = $1 FROM dag_current_versions", "version"),
    ),
    "fire": Scenario(
        deployed,
        lambda db, _: start_source(db, DEFAULT_ORG_ID, "points", None, {"kind": "manual"}, idempotency_key="key"),
        DAG_JOBS,
    ),
    "schedule": Scenario(deployed, lambda db, state: scheduler.run_once(db, now=state["now"]), DAG_JOBS),
    "backfill": Scenario(deployed, backfill, DAG_JOBS),
    "publish": Scenario(
        generation, publish, asks("SELECT count(*) FROM dataset_partitions WHERE partition_key = 'p'", is_=1)
    ),
    "route": Scenario(
        emitted, lambda db, _: catalog_events.route(db),
        asks("SELECT count(*) FROM tasks WHERE job_id = $1", "job", is_=1),
    ),
}  # fmt: skip
