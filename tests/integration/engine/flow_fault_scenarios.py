"""Fault scenarios of flow control: handlers, compensation, awaited jobs, sensors, rates, limited jobs, Coalesce."""

from __future__ import annotations

import json
from typing import Any

from aaiclick.catalog.deploy import deploy
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.catalog import dataset_events, event_routing
from aaiclick.store.engine import maintenance, queue, user_actions
from aaiclick.store.engine.enqueue import Debounce, enqueue_debounced
from aaiclick.store.engine.leases_and_outcomes import ApprovalRequest, Failure, Wait
from aaiclick.store.engine.retry_and_redrive import COMPENSATOR
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import NewJob, add_to_job, submit_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.job_policy import JobPolicy
from tests.integration.engine import fault_scenarios
from tests.integration.engine.fault_scenarios import (
    DAG,
    Scenario,
    State,
    begin_wait,
    check_query,
    claim,
    enqueue_item,
    make_task,
    prepare_ids,
    prepared_by,
    register_worker_,
    submit_child,
    submit_one_task,
    submit_two_tasks,
    succeed,
    two_days_later,
    with_claim,
)

COALESCED_DAG = DAG.replace("activation: reactive,", "activation: reactive, execution_strategy: Coalesce,")
RESET_HANDLERS = """
    SELECT count(*) FROM tasks h JOIN tasks t ON t.id = $1 AND t.readiness = 'READY' AND h.job_id = t.job_id
    WHERE h.readiness = 'BLOCKED'
"""
HELD = check_query("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="HELD")


async def submit_with_handlers(db: Any) -> State:
    """Two steps, of which the first has completed, a compensator and a final task; the second step is claimed."""
    state = await submit_begun(db)
    await claim(db, state)
    return state


async def submit_begun(db: Any) -> State:
    state = await prepare_ids(db)
    first, second = make_task(), make_task(state["task"], max_attempts=1)
    alert, last = make_task(when="failed"), make_task(when="ended")
    alert.entrypoint, alert.kwargs = COMPENSATOR, json.dumps({"steps": [{"task_id": str(first.id)}]})
    edges = [(first.id, second.id), *((step.id, alert.id) for step in (first, second))]
    edges += [(task.id, last.id) for task in (first, second, alert)]
    await submit_job(db, NewJob(state["job"], "job", timeout_seconds=60), Plan([first, second, alert, last], [], edges))
    state |= {"first": first.id, "alert": alert.id, "last": last.id, **await register_worker_(db)}
    await claim(db, state)
    await succeed(db, state)
    return state


async def fail(db: Any, state: State) -> None:
    failures = [Failure(state["lease"], error="no luck", fingerprint="no luck")]
    await queue.acknowledge(db, worker_id=state["worker"], failures=failures)


async def add_compensations(db: Any, state: State) -> None:
    """What the compensator does: a chain of tasks, added by a running handler."""
    undo = [make_task(), make_task()]
    await add_to_job(db, state["job"], Plan(undo, [], [(undo[0].id, undo[1].id)]), {}, state["lease"])


async def wait_for_claimed_job(db: Any) -> State:
    """A task waits for the end of a job, the only task of which is claimed."""
    waiting = await submit_two_tasks(db)
    await claim(db, waiting)
    awaited = await submit_one_task(db)
    await begin_wait(Wait("job", job_id=awaited["job"]))(db, waiting)
    await claim(db, awaited)
    return {**awaited, "waiting": waiting["task"]}


async def claim_beside_other_job(db: Any) -> State:
    state = await with_claim(submit_two_tasks)(db)
    return {**state, "other": (await submit_one_task(db))["job"]}


async def enqueue_above_rate(db: Any) -> State:
    """An item of a rate that the claim of another one has used up."""
    await with_claim(enqueue_item, rate="1/3600", rate_key="k")(db)
    return await enqueue_item(db, rate="1/3600", rate_key="k")


async def claim_for_org(db: Any, state: State) -> None:
    """The statement that holds tasks above their rate, without the short one before it."""
    arguments: Any = {"worker_id": state["worker"], "limit": 1, "queues": (), "lease_seconds": 60}
    await queue.claim(db, **arguments, org_id=DEFAULT_ORG_ID)


async def hold_above_rate(db: Any) -> State:
    """An item that is held until its rate allows it."""
    state = await enqueue_above_rate(db)
    await claim(db, state)
    return state


async def promote_later(db: Any, state: State) -> None:
    await queue.promote_due_tasks(db, now=state["now"])


async def route_first_update(db: Any) -> State:
    """A coalesced task waits for a worker, and another update is to be routed."""
    await deploy(db, COALESCED_DAG)
    row = await db.fetchrow(
        "SELECT p.dataset_uuid, p.dataset_version, p.dag_version_id FROM dag_version_datasets p"
        " JOIN datasets d ON d.id = p.dataset_uuid WHERE d.name = 'points.raw'"
    )
    for name in ("first", "second"):
        job_id = await dataset_events.open_job(db, DEFAULT_ORG_ID, name, row["dag_version_id"], {})
        event = dataset_events.Event(DEFAULT_ORG_ID, job_id, row["dataset_uuid"], row["dataset_version"])
        async with db.transaction():
            await dataset_events.count_events(db, await dataset_events.emit_events(db, [event]))
        if name == "first":
            await event_routing.route_events(db)
    return {}


def make_limited_job(when_busy: str, key: str | None = None) -> tuple[NewJob, Plan]:
    policy = JobPolicy(1, when_busy)  # pyright: ignore[reportArgumentType]
    job = NewJob(get_snowflake_id(), "limited", idempotency_key=key, policy=policy)
    return job, Plan([NewTask(get_snowflake_id(), "t")])


async def submit_running_limited(db: Any) -> State:
    await submit_job(db, *make_limited_job("cancel_running"))
    return await register_worker_(db)


async def submit_waiting_limited(db: Any) -> State:
    """A job that runs, and one that waits for its turn."""
    await submit_job(db, *make_limited_job("queue"))
    await submit_job(db, *make_limited_job("queue"))
    return await register_worker_(db)


async def submit_newest(db: Any, _: State) -> None:
    await submit_job(db, *make_limited_job("keep_newest", "once"))


async def submit_replacement(db: Any, _: State) -> None:
    await submit_job(db, *make_limited_job("cancel_running", "once"))


async def debounce(db: Any, state: State, payload: str = '{"n": 2}') -> None:
    task = NewTask(state.get("item", 0) or get_snowflake_id(), "t", kwargs=payload)
    await enqueue_debounced(db, task, Debounce(30, "k"))


async def debounce_first(db: Any) -> State:
    await debounce(db, {}, '{"n": 1}')
    return {}


SCENARIOS = fault_scenarios.SCENARIOS | {
    "end:handlers": Scenario(
        submit_with_handlers, fail, check_query("SELECT readiness::text FROM tasks WHERE id = $1", "alert", is_="READY")
    ),
    "end:last": Scenario(
        prepared_by(submit_with_handlers, fail, claim),
        succeed,
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "last", is_="READY"),
    ),
    "add:compensation": Scenario(
        prepared_by(submit_with_handlers, fail, claim),
        add_compensations,
        check_query(
            "SELECT count(*) >= 2 AND count(*) % 2 = 0 FROM tasks WHERE added_by = $1", "alert"
        ),
    ),
    "end:poll": Scenario(
        with_claim(submit_two_tasks),
        begin_wait(Wait("poll", 60.0, deadline_seconds=3600.0)),
        check_query("SELECT count(*) FROM waits w JOIN tasks t ON t.id = w.task_id WHERE readiness = 'TIME'", is_=1),
    ),
    "end:job": Scenario(
        claim_beside_other_job,
        lambda db, state: begin_wait(Wait("job", job_id=state["other"]))(db, state),
        check_query("SELECT count(*) FROM waits w JOIN jobs j ON j.id = w.job_id AND j.has_waiters", is_=1),
    ),
    "complete:waiter": Scenario(
        wait_for_claimed_job,
        succeed,
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "waiting", is_="READY"),
    ),
    "claim:rate": Scenario(
        lambda db: enqueue_item(db, rate="1/3600", rate_key="k"),
        claim,
        check_query(
            "SELECT t.status = 'CLAIMED' AND r.counts = '{1}' FROM tasks t CROSS JOIN rate_limits r WHERE t.id = $1",
            "task",
        ),
    ),
    "claim:above_rate": Scenario(enqueue_above_rate, claim_for_org, HELD),
    "promote:rate": Scenario(
        two_days_later(hold_above_rate),
        promote_later,
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="READY"),
    ),
    "route:coalesce": Scenario(
        route_first_update,
        lambda db, _: event_routing.route_events(db),
        check_query("SELECT count(*) = 1 AND NOT EXISTS (SELECT FROM outbox) FROM tasks"),
    ),
    "submit_limited:replace": Scenario(
        submit_running_limited,
        submit_replacement,
        check_query("SELECT count(*) FILTER (WHERE status = 'CANCELLED') = 1 AND count(*) = 2 FROM jobs"),
    ),
    "enqueue_debounced:replace": Scenario(
        debounce_first,
        debounce,
        check_query("SELECT count(*) = 1 AND min(kwargs ->> 'n') = '2' FROM tasks"),
    ),
    "submit_limited:keep_newest": Scenario(
        submit_waiting_limited,
        submit_newest,
        check_query("SELECT count(*) FILTER (WHERE status = 'CANCELLED') = 1 AND count(*) = 3 FROM jobs"),
    ),
    "cancel_job:timeout": Scenario(
        two_days_later(submit_begun),
        lambda db, state: maintenance.end_overdue_jobs(db, now=state["now"]),
        check_query(
            "SELECT t.readiness = 'READY' AND j.error IS NOT NULL FROM tasks t JOIN jobs j ON j.id = t.job_id"
            " WHERE t.id = $1", "alert",
        ),
    ),
    "cancel_tasks:child": Scenario(
        prepared_by(with_claim(submit_two_tasks), submit_child),
        lambda db, state: user_actions.cancel_tasks(db, [state["task"]]),
        check_query("SELECT status::text FROM jobs WHERE parent_job_id = $1", "job", is_="CANCELLED"),
    ),
    "promote:event": Scenario(
        two_days_later(prepared_by(with_claim(submit_two_tasks), begin_wait(Wait("event", 60.0, name="paid")))),
        promote_later,
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="READY"),
    ),
    "promote:approval": Scenario(
        two_days_later(
            prepared_by(
                with_claim(submit_two_tasks),
                begin_wait(Wait("approval", 60.0, approval=ApprovalRequest("Pay?", "writer"))),
            )
        ),
        promote_later,
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "task", is_="READY"),
    ),
    "retry:handlers": Scenario(
        prepared_by(submit_with_handlers, fail),
        lambda db, state: user_actions.retry_failed_tasks(db, state["job"]),
        check_query(RESET_HANDLERS, "task", is_=2),
    ),
    "retry:undone": Scenario(
        prepared_by(submit_with_handlers, fail, claim, add_compensations, succeed, claim),
        lambda db, state: user_actions.retry_failed_tasks(db, state["job"]),
        check_query("SELECT readiness::text FROM tasks WHERE id = $1", "first", is_="READY"),
    ),
    "redrive:handlers": Scenario(
        prepared_by(submit_with_handlers, fail),
        lambda db, state: user_actions.redrive_dead_letters(db, task_ids=[state["task"]]),
        check_query(RESET_HANDLERS, "task", is_=2),
    ),
    "clear:handlers": Scenario(
        prepared_by(submit_with_handlers, fail, claim, succeed),
        lambda db, state: user_actions.clear_tasks(db, state["task"]),
        check_query("SELECT count(*) FROM tasks WHERE status = 'PENDING'", is_=3),
    ),
}  # fmt: skip
