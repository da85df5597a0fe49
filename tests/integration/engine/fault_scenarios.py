"""A scenario for each failpoint: preparation, the action that reaches it, and a check of its effect.

A scenario is prepared over one connection and executed over another, possibly in a process that is killed; the state
between the two consists of plain values.
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

from aaiclick.api.field_types import CreatedResponse
from aaiclick.catalog.dataset_range_registration import register_range
from aaiclick.catalog.deploy import deploy, roll_back
from aaiclick.errors import ConflictError
from aaiclick.operations import jobs as job_operations
from aaiclick.operations.actor import Actor, local_actor
from aaiclick.orchestration.function_registry import ModuleJobs, register_module_jobs
from aaiclick.orchestration.loops import scheduler
from aaiclick.orchestration.schedule_spec import ScheduleSpec
from aaiclick.orchestration.schedules import NewSchedule, save_schedule, sync_schedules
from aaiclick.server.idempotency import run_idempotent
from aaiclick.server.ui.sessions import sign_in_subject
from aaiclick.server.ui.sign_in_audit import SignInAudit
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.catalog import backfill as catalog_backfill
from aaiclick.store.catalog import dag_sources, dataset_events, datasets, event_routing
from aaiclick.store.catalog.dag_sources import start_source
from aaiclick.store.catalog.definition_runs import announce_publish, emit_updates, lock_for_publish
from aaiclick.store.engine import (
    incidents,
    maintenance,
    notification_deliveries,
    notification_rules,
    queue,
    runtime_dispatches,
    user_actions,
    worker_leases,
    workers,
)
from aaiclick.store.engine.approvals import RecordedDecision, decide_approval
from aaiclick.store.engine.claims import heartbeat, promote_due_tasks
from aaiclick.store.engine.enqueue import (
    COPY_MIN_TASKS,
    Debounce,
    enqueue_debounced,
    enqueue_tasks,
    enqueue_with_tables,
)
from aaiclick.store.engine.job_functions import JobFunctionFields
from aaiclick.store.engine.leases_and_outcomes import ApprovalRequest, Failure, OutcomeCounts, Success, Wait
from aaiclick.store.engine.result_cache import find_cached_result
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import NewJob, add_to_job, submit_job
from aaiclick.store.engine.submit_stream import submit_slices
from aaiclick.store.engine.waits import send_event
from aaiclick.store.enums import DEFAULT_ORG_ID, NOTIFICATION_QUEUE
from aaiclick.store.job_policy import JobPolicy
from aaiclick.store.tables import literal_results, table_references
from aaiclick.store.task_options import TaskOptions
from aaiclick.store.tenancy import users
from aaiclick.store.tenancy.orgs import ClaimLimits

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
    """`prepare` returns the state for `act`; `done` queries PostgreSQL whether the commit has happened."""

    prepare: Callable[[Any], Awaitable[State]]
    act: Callable[[Any, State], Awaitable[Any]]
    done: Callable[[Any, State], Awaitable[bool]]
    happened_before: bool = False
    """Whether the effect exists already before this commit, from an earlier one."""


def make_task(task_id: int | None = None, idempotency_key: str | None = None, **options: Any) -> NewTask:
    key = task_id or get_snowflake_id()
    return NewTask(key, "t", "m.t", idempotency_key=idempotency_key, options=TaskOptions(**options))


def check_query(question: str, *names: str, is_: Any = True) -> Callable[[Any, State], Awaitable[bool]]:
    async def ask(db: Any, state: State) -> bool:
        return await db.fetchval(question, *(state[name] for name in names)) == is_

    return ask


def status(expected: str) -> Callable[[Any, State], Awaitable[bool]]:
    return check_query("SELECT status::text FROM tasks WHERE id = $1", "task", is_=expected)


async def prepare_ids(_: Any) -> State:
    return {"task": get_snowflake_id(), "job": get_snowflake_id()}


async def register_worker_(db: Any) -> State:
    return {"worker": (await queue.register_worker(db, hostname="here", pid=1)).id}


async def enqueue_item(db: Any, **options: Any) -> State:
    task = get_snowflake_id()
    await enqueue_tasks(db, [make_task(task, **options)])
    return {"task": task, **await register_worker_(db)}


async def submit_two_tasks(db: Any, **options: Any) -> State:
    """A job with two consecutive tasks."""
    state = await prepare_ids(db)
    first, second = make_task(state["task"], **options), make_task()
    await submit_job(db, NewJob(state["job"], "job"), Plan([first, second], [], [(first.id, second.id)]))
    return {**state, "next": second.id, **await register_worker_(db)}


async def submit_group(db: Any) -> State:
    """A job with a task in a group, and a task after the group."""
    state = await prepare_ids(db)
    group = NewGroup(get_snowflake_id(), "g")
    first, second = NewTask(state["task"], "t", "m.t", group_id=group.id), make_task()
    await submit_job(db, NewJob(state["job"], "job"), Plan([first, second], [group], [(group.id, second.id)]))
    return {**state, "next": second.id, **await register_worker_(db)}


async def claim(db: Any, state: State) -> None:
    claims = await queue.claim(db, worker_id=state["worker"], limit=1, queues=(), lease_seconds=60)
    state["lease"], state["claim"] = (claims[0].lease, claims[0]) if claims else (None, None)


async def claim_item(db: Any) -> State:
    state = await enqueue_item(db)
    await claim(db, state)
    return state


async def prepare_wait(db: Any) -> State:
    """A task that waits for an event."""
    state = await submit_two_tasks(db)
    await claim(db, state)
    success = Success(state["lease"], wait=Wait("event", name="paid"))
    await queue.acknowledge(db, worker_id=state["worker"], successes=[success])
    return {"task": state["task"]}


async def prepare_approval(db: Any) -> State:
    """A task that waits for a decision."""
    state = await submit_two_tasks(db)
    await claim(db, state)
    wait = Wait("approval", approval=ApprovalRequest("Pay?", "writer"))
    await queue.acknowledge(db, worker_id=state["worker"], successes=[Success(state["lease"], wait=wait)])
    return {"task": state["task"], "approval": await db.fetchval("SELECT id FROM approvals")}


def begin_wait(wait: Wait) -> Callable[[Any, State], Awaitable[Any]]:
    async def begin(db: Any, state: State) -> None:
        success = Success(state["lease"], wait=wait)
        await queue.acknowledge(db, worker_id=state["worker"], successes=[success])

    return begin


async def skip_next(db: Any, state: State) -> None:
    await queue.acknowledge(db, worker_id=state["worker"], successes=[Success(state["lease"], branch=())])


async def submit_child(db: Any, state: State) -> None:
    job = NewJob(state["worker"], "child", idempotency_key="child", parent=state["lease"])
    await submit_job(db, job, Plan([make_task()], [], []))


async def approve(db: Any, state: State) -> None:
    with suppress(ConflictError):  # the decision of the call that was interrupted after its commit
        await decide_approval(db, state["approval"], RecordedDecision(True, "ada", "", {}))


def with_claim(make: Callable[..., Awaitable[State]], **options: Any) -> Callable[[Any], Awaitable[State]]:
    async def prepare(db: Any) -> State:
        state = await make(db, **options)
        await claim(db, state)
        return state

    return prepare


async def repeated_failure(db: Any) -> State:
    """An incident that occurred twice, the second time not yet counted."""
    for _ in range(2):
        state = await with_outcome(enqueue_item, fails=True)(db)
    return state


async def with_overdue_job(db: Any) -> State:
    """An unfinished job after the end of its deadline."""
    state = await submit_two_tasks(db)
    await db.execute("UPDATE jobs SET due_at = now()")
    return state


async def with_late_dataset(db: Any) -> State:
    """A dataset that is late by its policy."""
    state = await prepare_ids(db)
    await db.execute(f"""
        INSERT INTO datasets (org_id, name, producer_dag_name, producer_job_name, producer_output_index)
        VALUES ('{DEFAULT_ORG_ID}', 'late', 'd', 'j', 0);
        INSERT INTO dataset_freshness (dataset_uuid, org_id, max_age_seconds, timezone, days, due_at)
        SELECT id, org_id, 60, 'UTC', '*', now() FROM datasets""")
    return state


async def recovered_job(db: Any) -> State:
    """An open incident, and a completed retry of its job."""
    state = await with_outcome(submit_one_task, fails=True)(db)
    await user_actions.retry_failed_tasks(db, state["job"])
    await claim(db, state)
    await queue.acknowledge(db, worker_id=state["worker"], successes=[Success(state["lease"])])
    return state


async def with_rule(db: Any) -> State:
    """An incident that a rule sends to a channel."""
    channel = notification_rules.Channel(DEFAULT_ORG_ID, "ops", "webhook", {"url": "http://x.test"})
    await notification_rules.set_channel(db, channel)
    await notification_rules.set_rule(db, DEFAULT_ORG_ID, notification_rules.Rule("all", ("ops",)))
    return await with_outcome(enqueue_item, fails=True)(db)


async def with_planned_message(db: Any) -> State:
    state = await with_rule(db)
    await notification_deliveries.route_incidents(db)
    return state


async def with_delivered_message(db: Any) -> State:
    state = await with_planned_message(db)
    await notification_deliveries.enqueue_due_notifications(db)
    claims = await queue.claim(db, worker_id=1, limit=1, queues=[NOTIFICATION_QUEUE], lease_seconds=60)
    await queue.acknowledge(db, worker_id=1, successes=[Success(claims[0].lease)])
    return state


def with_outcome(make: Callable[..., Awaitable[State]], *, fails: bool) -> Callable[[Any], Awaitable[State]]:
    async def prepare(db: Any) -> State:
        state = await with_claim(make, max_attempts=1)(db)
        if fails:
            failure = Failure(state["lease"], error="no luck", fingerprint="no luck")
            await queue.acknowledge(db, worker_id=state["worker"], failures=[failure])
        else:
            await succeed(db, state)
        return state

    return prepare


async def succeed(db: Any, state: State) -> None:
    await queue.acknowledge(db, worker_id=state["worker"], successes=[Success(state["lease"])])


async def enqueue_scheduled(db: Any) -> State:
    scheduled_at = await db.fetchval("SELECT now() + interval '1 hour'")
    return {**await enqueue_item(db, run_at=scheduled_at), "now": scheduled_at + timedelta(minutes=1)}


async def with_lost_heartbeat(db: Any) -> State:
    return {**await register_worker_(db), "now": await db.fetchval("SELECT now() + interval '1 hour'")}


async def deployed(db: Any) -> State:
    await deploy(db, DAG)
    return {"now": await db.fetchval("SELECT now() + interval '25 hours'"), **await prepare_ids(db)}


async def deployed_twice(db: Any) -> State:
    first = await deploy(db, DAG)
    second = await deploy(db, DAG.replace("name: points", "name: points\ndefaults: {max_attempts: 7}"))
    assert second.serves
    return {"first": first.version_hash, "version": first.version_id}


CHANGED_DAG = DAG.replace("SELECT 1 AS id", "SELECT 2 AS id")


async def deploy_filled(db: Any) -> State:
    """A version that is filled, and does not serve yet."""
    await deploy(db, DAG)
    begun = await deploy(db, CHANGED_DAG)
    assert not begun.serves
    state = await register_worker_(db)
    await claim(db, state)
    await succeed(db, state)
    return {"version": begun.version_id}


MODULE_JOBS = ModuleJobs(["points"], [JobFunctionFields("points.sell", "points", "sell", "", "{}")], [])


async def submit_limited(db: Any, _: State) -> None:
    job = NewJob(get_snowflake_id(), "limited", idempotency_key="once", policy=JobPolicy(1))
    await submit_job(db, job, Plan([NewTask(get_snowflake_id(), "t")]))


async def save_schedule_(db: Any, _: State) -> None:
    spec = ScheduleSpec.parse("0 6 * * *", None)
    new = NewSchedule("points", spec, "points.sell", "sell", declared_in="points")
    await save_schedule(db, DEFAULT_ORG_ID, new, replace=True)


async def emit_event_(db: Any) -> State:
    state = await deployed(db)
    row = await db.fetchrow(
        "SELECT p.dataset_uuid, p.dataset_version, p.dag_version_id FROM dag_version_datasets p "
        "JOIN datasets d ON d.id = p.dataset_uuid WHERE d.name = 'points.raw'"
    )
    job_id = await dataset_events.open_job(db, DEFAULT_ORG_ID, "one", row["dag_version_id"], {})
    event = dataset_events.Event(DEFAULT_ORG_ID, job_id, row["dataset_uuid"], row["dataset_version"])
    async with db.transaction():
        await dataset_events.count_events(db, await dataset_events.emit_events(db, [event]))
    return state | {"job": job_id}


async def emit_behind_poison(db: Any) -> State:
    """A routable event behind one that cannot be routed."""
    job_id = await dataset_events.open_job(db, DEFAULT_ORG_ID, "poison", None, {})
    await db.execute("INSERT INTO outbox (org_id, job_id, kind) VALUES ($1, $2, 'route_event')", DEFAULT_ORG_ID, job_id)
    await db.execute("UPDATE jobs SET open_events = 1 WHERE id = $1", job_id)
    return await emit_event_(db)


async def claim_short_lease(db: Any) -> State:
    state = await with_claim(enqueue_item)(db)
    await db.execute("UPDATE tasks SET lease_seconds = $1", LONG_SECONDS)
    return state


async def run_source(db: Any) -> State:
    """A running source, and an update of its output."""
    await deployed(db)
    await start_source(db, DEFAULT_ORG_ID, "points", None, {"kind": "manual"})
    state = await register_worker_(db)
    await claim(db, state)
    row = await db.fetchrow(
        "SELECT p.dataset_uuid, p.dataset_version FROM dag_version_datasets p JOIN datasets d ON d.id = p.dataset_uuid "
        "WHERE d.name = 'points.raw'"
    )
    update = {
        "dataset": str(row["dataset_uuid"]), "generation": str(row["dataset_version"]), "ticket": 1, "columns": {},
        "schema_hash": "h", "partitions": [], "rows": 1, "whole": False, "changed": [""],
    }  # fmt: skip
    effects = {"definition": "", "build": None, "states": [], "lineage": {}, "updates": [update]}
    return state | {"effects": json.dumps(effects)}


async def claim_generation(db: Any) -> State:
    state = await deployed(db)
    version = await db.fetchval("SELECT dataset_version FROM dag_version_datasets LIMIT 1")
    return {**state, **await with_claim(enqueue_item)(db), "generation": version}


async def publish(db: Any, state: State) -> None:
    async with lock_for_publish(db, state["lease"], state["generation"], "p", 1):
        pass


async def announce(db: Any, state: State) -> None:
    async def drop_table(_: str) -> None:
        raise AssertionError("No other attempt has announced a publication.")

    await announce_publish(db, state["lease"], state["generation"], "staged", 0, drop_table)


async def submit_one_task(db: Any, **options: Any) -> State:
    state = await prepare_ids(db)
    await submit_job(db, NewJob(state["job"], "job"), Plan([make_task(state["task"], **options)], [], []))
    return {**state, **await register_worker_(db)}


def two_days_later(make: Callable[..., Awaitable[State]]) -> Callable[[Any], Awaitable[State]]:
    """Prepare a state with a time two days later."""

    async def prepare(db: Any) -> State:
        return {**await make(db), "now": await db.fetchval("SELECT now() + interval '2 days'")}

    return prepare


def prepared_by(
    make: Callable[..., Awaitable[State]], *steps: Callable[[Any, State], Awaitable[Any]]
) -> Callable[[Any], Awaitable[State]]:
    async def prepare(db: Any) -> State:
        state = await make(db)
        for step in steps:
            await step(db, state)
        return state

    return prepare


def enqueue(**options: Any) -> Callable[[Any, State], Awaitable[None]]:
    async def act(db: Any, state: State) -> None:
        await enqueue_tasks(db, [make_task(state["task"], idempotency_key="key", **options)])

    return act


async def enqueue_many(db: Any, state: State) -> None:
    with suppress(asyncpg.UniqueViolationError):  # a repetition with the same ids is refused
        await enqueue_tasks(db, [make_task(state["task"]), *(make_task() for _ in range(COPY_MIN_TASKS))])


async def enqueue_with_table(db: Any, state: State) -> None:
    task = make_task(state["task"], idempotency_key="key")
    await enqueue_with_tables(db, [task], [(task.id, TABLE)], {TABLE: SESSION})


async def enqueue_idempotent(db: Any, state: State) -> None:
    """Answer a POST request with an Idempotency-Key."""

    async def body() -> bytes:
        return b"{}"

    async def work(connection: Any) -> CreatedResponse:
        await enqueue_tasks(connection, [make_task(state["task"])])
        return CreatedResponse(id=str(state["task"]))

    call: Any = FakeRequest(db)
    request: Any = SimpleNamespace(method="POST", scope={"route": SimpleNamespace(path="/v1/tasks")}, body=body)
    assert (await run_idempotent(call, request, "key", work)).status_code == 201


class FakeRequest:
    """The parts of a request that its commit needs: actor, app state and connections."""

    def __init__(self, db: Any) -> None:
        self.app_state, self.sign_in_audit, self.request_id = self, SignInAudit(), None
        self.actor = Actor(DEFAULT_ORG_ID, "key aai_test", frozenset({"admin"}))
        self._db = db

    @asynccontextmanager
    async def owner_connection(self) -> AsyncIterator[Any]:
        yield self._db

    @asynccontextmanager
    async def tenant_connection(self, _: Any) -> AsyncIterator[Any]:
        yield self._db


async def pause_job_audited(db: Any, state: State) -> None:
    await job_operations.pause_job(db, local_actor(), state["job"])


async def create_user_(db: Any) -> State:
    await users.create_user(db, DEFAULT_ORG_ID, external_id="ada", role="reader")
    return {}


async def sign_in(db: Any, _: State) -> None:
    app_state: Any = FakeRequest(db)
    assert await sign_in_subject(app_state, "ada", None)


async def submit_in_slices(db: Any, state: State) -> None:
    async def slices() -> AsyncIterator[tuple[Plan, Mapping[int, str]]]:
        yield Plan([make_task(state["task"])], [], []), {}
        yield Plan([make_task()], [], []), {}

    await submit_slices(db, NewJob(state["job"], "job", idempotency_key="key"), slices())


async def register(db: Any, state: State) -> None:
    await workers.register_worker(db, hostname="here", pid=1, worker_id=state["task"])


async def lead(db: Any, state: State) -> None:
    await workers.lead(db, state["worker"], term_seconds=60)


async def count(db: Any, state: State) -> None:
    await workers.count_outcomes(db, state["worker"], 1, {(DEFAULT_ORG_ID, "default"): OutcomeCounts(1, 0)})


async def delete_history(db: Any, state: State) -> None:
    await maintenance.delete_old_history(db, keep_seconds=60, now=state["now"])


async def take_dispatch(db: Any, _: State) -> None:
    await runtime_dispatches.take_dispatches(db, "default", limit=10, repeat_seconds=60)


async def reserve(db: Any, state: State) -> None:
    await table_references.reserve_tables(db, [(TABLE, state["lease"])])


async def complete_with_literal(db: Any, state: State) -> None:
    reference = f'{{"object_type": "object", "table_id": "{TABLE}"}}'
    await queue.acknowledge(db, worker_id=0, successes=[Success(state["lease"], reference, literal='{"value": 1}')])


async def reserve_literal(db: Any, _: State) -> None:
    await literal_results.reserve_literal_table(db, TABLE, DEFAULT_ORG_ID)


async def release(db: Any, state: State) -> None:
    await table_references.release_tables(db, [(TABLE, state["lease"])])


async def read_by_another(db: Any, state: State) -> None:
    """The table belongs to the first attempt; the next one is about to read it."""
    await reserve(db, state)
    await enqueue_tasks(db, [make_task()])
    await claim(db, state)


async def rematerialize(db: Any, _: State) -> None:
    dataset = await db.fetchval("SELECT id FROM datasets WHERE name = 'orders'")
    await datasets.rematerialize(db, DEFAULT_ORG_ID, dataset, "orders")


async def register_version(db: Any, _: State) -> None:
    everything = datasets.Reader(DEFAULT_ORG_ID, None)
    await register_range(db, everything, "orders", datasets.VersionRange(0, 9))


async def submit(db: Any, state: State) -> None:
    await submit_job(db, NewJob(state["job"], "job", idempotency_key="key"), Plan([make_task(state["task"])], [], []))


async def add(db: Any, state: State) -> None:
    await add_to_job(db, state["job"], Plan([make_task()], [], []), {}, state["lease"])


async def send_heartbeat(db: Any, state: State) -> None:
    await heartbeat(db, worker_id=state["worker"], leases=[state["lease"]], lease_seconds=LONG_SECONDS)


async def backfill(db: Any, _: State) -> None:
    definitions = await catalog_backfill.list_serving_definitions(db, DEFAULT_ORG_ID, "points")
    run = catalog_backfill.BackfillRun("2026-01-01", {"kind": "backfill"})
    await catalog_backfill.start_backfill(
        db, next(definition for definition in definitions if definition["name"] == "sell"), [run], limit=None
    )


COMPLETED, CANCELLED = status("COMPLETED"), status("CANCELLED")
EXTENDED = check_query("SELECT lease_expires_at > now() + interval '1 hour' FROM tasks WHERE id = $1", "task")
NEXT_READY = check_query("SELECT readiness::text FROM tasks WHERE id = $1", "next", is_="READY")
EXISTS = check_query("SELECT count(*) FROM tasks WHERE id = $1", "task", is_=1)
STOPPED = check_query("SELECT status::text FROM workers WHERE id = $1", "worker", is_="STOPPED")
DAG_JOBS = check_query("SELECT count(*) FROM jobs", is_=1)

REGISTERED = check_query("SELECT count(*) FROM table_refcounts", is_=1)
DROPPING = check_query("SELECT count(dropping_at) FROM table_refcounts", is_=1)


def check_with_audit(question: str) -> Callable[[Any, State], Awaitable[bool]]:
    """Check the effect and its audit entry."""
    return check_query(f"SELECT ({question}) AND (SELECT count(*) > 0 FROM audit_log)")


def check_empty(table: str) -> Callable[[Any, State], Awaitable[bool]]:
    return check_query(f"SELECT count(*) FROM {table}", is_=0)


def check_paused(table: str, is_: int) -> Callable[[Any, State], Awaitable[bool]]:
    return check_query(f"SELECT count(paused_at) FROM {table}", is_=is_)


def make_pause_scenarios(
    target: str, table: str, make: Callable[..., Awaitable[State]], *arguments: Any
) -> dict[str, Scenario]:
    """Scenarios of pause and resume; an argument may be the name of a value in the state."""

    def call_control(name: str) -> Callable[[Any, State], Awaitable[Any]]:
        return lambda db, state: getattr(user_actions, name)(
            db, *(state.get(argument, argument) for argument in arguments)
        )

    pause, resume = f"pause_{target}", f"resume_{target}"
    return {
        pause: Scenario(make, call_control(pause), check_paused(table, 1)),
        resume: Scenario(prepared_by(make, call_control(pause)), call_control(resume), check_paused(table, 0)),
    }


SCENARIOS = {
    "enqueue": Scenario(prepare_ids, enqueue(), EXISTS),
    "enqueue_limited": Scenario(prepare_ids, enqueue(concurrency_key="one", concurrency_limit=1), EXISTS),
    "enqueue_many": Scenario(prepare_ids, enqueue_many, EXISTS),
    "enqueue_with_tables": Scenario(prepare_ids, enqueue_with_table, EXISTS),
    "once": Scenario(prepare_ids, enqueue_idempotent, EXISTS),
    "operation": Scenario(
        submit_two_tasks, pause_job_audited, check_with_audit("SELECT count(paused_at) = 1 FROM jobs")
    ),
    "sign_in": Scenario(create_user_, sign_in, check_with_audit("SELECT count(*) > 0 FROM ui_sessions")),
    "submit": Scenario(prepare_ids, submit, EXISTS),
    "submit_slices": Scenario(prepare_ids, submit_in_slices, EXISTS),
    "add": Scenario(
        with_claim(submit_two_tasks),
        add,
        check_query("SELECT count(*) > 0 FROM task_additions WHERE task_id = $1", "task"),
    ),
    "claim": Scenario(enqueue_item, claim, status("CLAIMED")),
    "take_dispatches": Scenario(
        enqueue_item,
        lambda db, _: runtime_dispatches.take_dispatches(db, "default", limit=10, repeat_seconds=60),
        check_query("SELECT count(*) FROM dispatches WHERE task_id = $1", "task", is_=1),
    ),
    "record_dispatch_failure": Scenario(
        prepared_by(enqueue_item, take_dispatch),
        lambda db, state: runtime_dispatches.record_dispatch_failure(db, [state["task"]], "away"),
        check_query("SELECT error FROM dispatches", is_="away"),
    ),
    "record_dispatch_refusal": Scenario(
        with_claim(enqueue_item),
        lambda db, state: runtime_dispatches.record_dispatch_refusal(db, state["claim"], "away"),
        check_query("SELECT error FROM dispatches", is_="away"),
    ),
    "delete_finished_dispatches": Scenario(
        prepared_by(enqueue_item, take_dispatch, claim),
        lambda db, _: runtime_dispatches.delete_finished_dispatches(db),
        check_empty("dispatches"),
    ),
    "start": Scenario(with_claim(enqueue_item), lambda db, state: queue.start(db, [state["lease"]]), status("RUNNING")),
    "heartbeat": Scenario(with_claim(enqueue_item), send_heartbeat, EXTENDED),
    "extend_worker_leases": Scenario(
        with_claim(enqueue_item),
        lambda db, state: worker_leases.extend_worker_leases(db, [state["worker"]], LONG_SECONDS),
        EXTENDED,
    ),
    "renew_task_leases": Scenario(
        claim_short_lease, lambda db, state: worker_leases.renew_task_leases(db, [state["worker"]]), EXTENDED
    ),
    "complete": Scenario(with_claim(enqueue_item), succeed, COMPLETED),
    "complete_linked": Scenario(with_claim(submit_two_tasks), succeed, NEXT_READY),
    "end": Scenario(with_claim(submit_group), succeed, NEXT_READY),
    "flush": Scenario(with_claim(submit_two_tasks), succeed, NEXT_READY, happened_before=True),
    "promote": Scenario(
        enqueue_scheduled,
        lambda db, state: promote_due_tasks(db, now=state["now"]),
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="READY"),
    ),
    "cancel_job": Scenario(submit_two_tasks, lambda db, state: user_actions.cancel_job(db, state["job"]), CANCELLED),
    "send_event": Scenario(
        prepare_wait,
        lambda db, state: send_event(db, DEFAULT_ORG_ID, "paid", keep_seconds=0.0),
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="READY"),
    ),
    "end:wait": Scenario(
        with_claim(submit_two_tasks),
        begin_wait(Wait("event", name="paid")),
        check_query("SELECT count(*) FROM waits w JOIN tasks t ON t.id = w.task_id WHERE readiness = 'TIME'", is_=1),
    ),
    "end:approval": Scenario(
        with_claim(submit_two_tasks),
        begin_wait(Wait("approval", approval=ApprovalRequest("Pay?", "writer"))),
        check_query("SELECT count(*) FROM waits w JOIN approvals a USING (task_id, attempt)", is_=1),
    ),
    "end:branch": Scenario(
        with_claim(submit_two_tasks),
        skip_next,
        check_query("SELECT status::text FROM tasks WHERE id = $1", "next", is_="SKIPPED"),
    ),
    "submit:child": Scenario(
        with_claim(submit_two_tasks),
        submit_child,
        check_query("SELECT count(*) FROM jobs WHERE parent_task_id = $1", "task", is_=1),
    ),
    "cancel_job:child": Scenario(
        prepared_by(with_claim(submit_two_tasks), submit_child),
        lambda db, state: user_actions.cancel_job(db, state["job"]),
        check_query("SELECT status::text FROM jobs WHERE parent_job_id = $1", "job", is_="CANCELLED"),
    ),
    "decide_approval": Scenario(
        prepare_approval,
        approve,
        check_query(
            "SELECT t.readiness = 'READY' AND a.decision = 'approved' AND NOT EXISTS (SELECT FROM waits)"
            " FROM tasks t JOIN approvals a ON a.task_id = t.id WHERE t.id = $1",
            "task",
        ),
    ),
    "cancel_tasks": Scenario(
        submit_two_tasks, lambda db, state: user_actions.cancel_tasks(db, [state["task"]]), CANCELLED
    ),
    "retry": Scenario(
        with_outcome(submit_two_tasks, fails=True),
        lambda db, state: user_actions.retry_failed_tasks(db, state["job"]),
        status("PENDING"),
    ),
    "redrive": Scenario(
        with_outcome(enqueue_item, fails=True),
        lambda db, state: user_actions.redrive_dead_letters(db, task_ids=[state["task"]]),
        status("PENDING"),
    ),
    "clear": Scenario(
        with_outcome(submit_two_tasks, fails=False),
        lambda db, state: user_actions.clear_tasks(db, state["task"]),
        status("PENDING"),
    ),
    "set_queue": Scenario(
        prepare_ids,
        lambda db, _: user_actions.set_queue(db, "default", ClaimLimits(max_running=3)),
        check_query("SELECT max_running FROM queues", is_=3),
    ),
    **make_pause_scenarios("queue", "queues", prepare_ids, "default"),
    **make_pause_scenarios("org", "orgs", prepare_ids, DEFAULT_ORG_ID),
    **make_pause_scenarios("type", "task_types", prepare_ids, "t"),
    **make_pause_scenarios("job", "jobs", submit_two_tasks, "job"),
    "register_worker": Scenario(
        prepare_ids, register, check_query("SELECT count(*) FROM workers WHERE id = $1", "task", is_=1)
    ),
    "deregister": Scenario(register_worker_, lambda db, state: workers.deregister_worker(db, state["worker"]), STOPPED),
    "dead_workers": Scenario(
        with_lost_heartbeat,
        lambda db, state: workers.stop_dead_workers(db, timeout_seconds=60, now=state["now"]),
        STOPPED,
    ),
    "lead": Scenario(register_worker_, lead, check_query("SELECT is_leader FROM workers WHERE id = $1", "worker")),
    "add_occurrences": Scenario(
        repeated_failure,
        lambda db, _: incidents.add_occurrences(db),
        check_query("SELECT count FROM incidents", is_=2),
    ),
    "close_recovered": Scenario(
        recovered_job,
        lambda db, _: incidents.close_recovered(db, quiet_seconds=0),
        check_query("SELECT count(closed_at) FROM incidents", is_=1),
    ),
    "record_late_datasets": Scenario(
        with_late_dataset,
        lambda db, _: incidents.record_late_datasets(db),
        check_query("SELECT count(*) FROM incidents i JOIN dataset_freshness f ON f.missed_at IS NOT NULL", is_=1),
    ),
    "record_overdue_jobs": Scenario(
        with_overdue_job,
        lambda db, _: incidents.record_overdue_jobs(db),
        check_query(
            "SELECT count(*) FROM incidents i JOIN jobs j ON j.id = i.job_id AND j.missed_at IS NOT NULL", is_=1
        ),
    ),
    "route_incidents": Scenario(
        with_rule,
        lambda db, _: notification_deliveries.route_incidents(db),
        check_query("SELECT count(*) FROM notifications n JOIN incidents i ON i.opened_routed_at IS NOT NULL", is_=1),
    ),
    "enqueue_notifications": Scenario(
        with_planned_message,
        lambda db, _: notification_deliveries.enqueue_due_notifications(db),
        check_query("SELECT count(*) FROM notifications n JOIN tasks t ON t.id = n.task_id", is_=1),
    ),
    "mark_delivered": Scenario(
        with_delivered_message,
        lambda db, _: notification_deliveries.mark_delivered(db),
        check_query("SELECT count(delivered_at) FROM notifications", is_=1),
    ),
    "delete_old_jobs": Scenario(
        two_days_later(with_outcome(submit_one_task, fails=False)), delete_history, check_empty("jobs")
    ),
    "delete_old_tasks": Scenario(
        two_days_later(with_outcome(enqueue_item, fails=False)), delete_history, check_empty("tasks")
    ),
    "delete_old_workers": Scenario(
        two_days_later(prepared_by(register_worker_, lambda db, state: workers.deregister_worker(db, state["worker"]))),
        delete_history,
        check_empty("workers"),
    ),
    "count_outcomes": Scenario(
        register_worker_, count, check_query("SELECT sum(completed)::int FROM queue_minutes", is_=1)
    ),
    "delete_old_queue_minutes": Scenario(
        two_days_later(prepared_by(register_worker_, count)), delete_history, check_empty("queue_minutes")
    ),
    "reserve_tables": Scenario(with_claim(enqueue_item), reserve, REGISTERED),
    "reserve_literal_table": Scenario(
        prepared_by(with_claim(enqueue_item), complete_with_literal), reserve_literal, REGISTERED
    ),
    "replace_literal": Scenario(
        prepared_by(with_claim(enqueue_item), complete_with_literal, reserve_literal),
        lambda db, _: literal_results.replace_literal(db, TABLE, DEFAULT_ORG_ID),
        check_query("SELECT count(literal) FROM tasks", is_=0),
    ),
    "hold_tables": Scenario(
        prepared_by(with_claim(enqueue_item), read_by_another),
        lambda db, state: table_references.hold_tables(db, [(TABLE, state["lease"])]),
        check_query("SELECT count(*) FROM table_references", is_=2),
    ),
    "release_tables": Scenario(
        prepared_by(with_claim(enqueue_item), reserve), release, check_empty("table_references")
    ),
    "mark_tables_dropping": Scenario(
        prepared_by(with_claim(enqueue_item), reserve, release),
        lambda db, _: table_references.mark_tables_dropping(db),
        DROPPING,
    ),
    "mark_orphan_tables": Scenario(
        prepare_ids, lambda db, _: table_references.mark_orphan_tables(db, [TABLE]), DROPPING
    ),
    "delete_tables": Scenario(
        prepared_by(prepare_ids, lambda db, _: table_references.mark_orphan_tables(db, [TABLE])),
        lambda db, _: table_references.delete_tables(db, [TABLE]),
        check_empty("table_refcounts"),
    ),
    "deploy": Scenario(
        prepare_ids, lambda db, _: deploy(db, DAG), check_query("SELECT count(*) FROM dag_versions", is_=1)
    ),
    "deploy:filled": Scenario(
        deploy_filled,
        lambda db, _: deploy(db, CHANGED_DAG, resume=True),
        check_query("SELECT dag_version_id = $1 FROM dag_current_versions", "version"),
    ),
    "roll_back": Scenario(
        deployed_twice,
        lambda db, state: roll_back(db, "points", state["first"]),
        check_query("SELECT dag_version_id = $1 FROM dag_current_versions", "version"),
    ),
    "fire": Scenario(
        deployed,
        lambda db, _: start_source(db, DEFAULT_ORG_ID, "points", None, {"kind": "manual"}, idempotency_key="key"),
        DAG_JOBS,
    ),
    "pause_dag": Scenario(
        deployed,
        lambda db, _: dag_sources.pause_dag(db, DEFAULT_ORG_ID, "points"),
        check_paused("dag_current_versions", 1),
    ),
    "resume_dag": Scenario(
        prepared_by(deployed, lambda db, _: dag_sources.pause_dag(db, DEFAULT_ORG_ID, "points")),
        lambda db, _: dag_sources.resume_dag(db, DEFAULT_ORG_ID, "points"),
        check_paused("dag_current_versions", 0),
    ),
    "rematerialize": Scenario(deployed, rematerialize, check_query("SELECT count(*) > 0 FROM jobs")),
    "register_version": Scenario(
        deployed, register_version, check_query("SELECT count(*) FROM dataset_versions WHERE range_end = 9", is_=1)
    ),
    "save_schedule": Scenario(
        prepare_ids, save_schedule_, check_query("SELECT count(*) FROM schedules WHERE due_at = next_run_at", is_=1)
    ),
    "start_schedules": Scenario(
        prepared_by(two_days_later(prepare_ids), save_schedule_),
        lambda db, state: scheduler.start_due_schedules(db, now=state["now"]),
        check_query("SELECT count(*) = 1 AND min(j.idempotency_key) LIKE 'schedule:%' FROM jobs j"),
    ),
    "sync_schedules": Scenario(
        prepared_by(prepare_ids, save_schedule_),
        lambda db, _: sync_schedules(db, DEFAULT_ORG_ID, "points", []),
        check_query("SELECT count(missing_at) FROM schedules", is_=1),
    ),
    "register_module_jobs": Scenario(
        prepare_ids,
        lambda db, _: register_module_jobs(db, DEFAULT_ORG_ID, MODULE_JOBS),
        check_query("SELECT count(*) FROM job_functions WHERE entrypoint = 'points.sell'", is_=1),
    ),
    "submit_limited": Scenario(
        prepare_ids,
        submit_limited,
        check_query("SELECT count(*) FROM jobs WHERE concurrency = 1", is_=1),
    ),
    "find_cached_result": Scenario(
        claim_item,
        lambda db, state: find_cached_result(db, DEFAULT_ORG_ID, "k", state["lease"], None, []),
        check_query("SELECT count(*) FROM result_cache WHERE key = 'k'", is_=1),
    ),
    "enqueue_debounced": Scenario(
        prepare_ids,
        lambda db, _: enqueue_debounced(db, NewTask(get_snowflake_id(), "t"), Debounce(30, "k")),
        check_query("SELECT count(*) FROM tasks WHERE idempotency_key = 'debounce:k' AND readiness = 'TIME'", is_=1),
    ),
    "schedule": Scenario(deployed, lambda db, state: scheduler.run_once(db, now=state["now"]), DAG_JOBS),
    "backfill": Scenario(deployed, backfill, DAG_JOBS),
    "publish": Scenario(
        claim_generation,
        publish,
        check_query("SELECT count(*) FROM dataset_partitions WHERE partition_key = 'p'", is_=1),
    ),
    "announce_publish": Scenario(
        claim_generation,
        announce,
        check_query("SELECT publishing_table FROM dataset_versions WHERE id = $1", "generation", is_="staged"),
    ),
    "emit": Scenario(
        run_source,
        lambda db, state: emit_updates(db, state["lease"], state["effects"], "1"),
        check_query("SELECT count(*) > 0 AND (SELECT open_events > 0 FROM jobs) FROM outbox WHERE cursor = '1'"),
    ),
    "route_around": Scenario(
        emit_behind_poison,
        lambda db, _: event_routing.route_events(db),
        check_query("SELECT count(*) FROM tasks WHERE job_id = $1", "job", is_=1),
    ),
    "route": Scenario(
        emit_event_,
        lambda db, _: event_routing.route_events(db),
        check_query("SELECT count(*) FROM tasks WHERE job_id = $1", "job", is_=1),
    ),
}
