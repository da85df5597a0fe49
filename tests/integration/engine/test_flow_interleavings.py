"""Concurrent sessions around awaited jobs, children, handlers, limited jobs, debounced items, schedules and Coalesce.

The orders are those of `test_interleavings`: each session runs one action in a transaction of its own, and the sessions
begin and commit in all possible orders.
"""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from aaiclick.catalog.deploy import deploy
from aaiclick.errors import AaiclickError, NotFoundError
from aaiclick.orchestration.loops import scheduler
from aaiclick.orchestration.schedule_spec import ScheduleSpec
from aaiclick.orchestration.scheduled_runs import start_run
from aaiclick.orchestration.schedules import NewSchedule, save_schedule
from aaiclick.orchestration.waits import run_wait_for_turn
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.catalog import dataset_events, event_routing
from aaiclick.store.engine import queue, schedules, user_actions
from aaiclick.store.engine.enqueue import Debounce, enqueue_debounced
from aaiclick.store.engine.leases_and_outcomes import Claim, Lease, Success, Wait
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.job_policy import JobPolicy
from tests.integration.engine import test_interleavings as interleavings
from tests.integration.engine.conftest import Engine
from tests.integration.engine.fault_scenarios import DAG
from tests.integration.engine.test_interleavings import (
    chosen_orders,
    clear,
    crew,
    drain_and_check,
    engine,
    play,
    sessions,
)

__all__ = ["crew", "engine", "sessions"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER = timedelta(hours=2)
COALESCED_DAG = DAG.replace("activation: reactive,", "activation: reactive, execution_strategy: Coalesce,")
CLAIMED: list[dict[str, Any]] = []
"""Payloads that were claimed in the current order."""


def action(function: interleavings.Action) -> interleavings.Action:
    assert interleavings.ACTIONS.setdefault(function.__name__, function) is function
    return function


async def acknowledge(session: Engine, success: Success) -> object:
    return await queue.acknowledge(session.db, worker_id=session.worker_id, successes=[success])


@action
async def wait_for_b(session: Engine, claims: dict[str, Claim]) -> object:
    """The task a waits for the end of the job of b."""
    return await acknowledge(session, Success(claims["a"].lease, wait=Wait("job", job_id=session.id("other"))))


@action
async def cancel_other(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.cancel_job(session.db, session.id("other"))


@action
async def poll_again(session: Engine, claims: dict[str, Claim]) -> object:
    wait = Wait("poll", 60.0, deadline_seconds=3600.0)
    return await acknowledge(session, Success(claims["a"].lease, wait=wait))


@action
async def cancel_a(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.cancel_tasks(session.db, [session.id("a")])


@action
async def clear_a(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.clear_tasks(session.db, session.id("a"))


@action
async def redrive(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.redrive_dead_letters(session.db)


@action
async def clear_b(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.clear_tasks(session.db, session.id("b"))


@action
async def fail_b(session: Engine, claims: dict[str, Claim]) -> object:
    return await session.fail(claims["b"], permanent=True)


@action
async def choose_b(session: Engine, claims: dict[str, Claim]) -> object:
    """Complete b with a branch that leaves out its dependents."""
    return await acknowledge(session, Success(claims["b"].lease, branch=()))


@action
async def promote(session: Engine, claims: dict[str, Claim]) -> object:
    return await queue.promote_due_tasks(session.db, now=await session.now() + LATER)


@action
async def submit_child(session: Engine, claims: dict[str, Claim]) -> object:
    """Attempts of a submit the same child once: by its idempotency key."""
    job = NewJob(get_snowflake_id(), "child", idempotency_key="child", parent=claims["a"].lease)
    task = NewTask(get_snowflake_id(), "c", "m.c")
    session.ids[f"c{task.id}"] = task.id
    try:
        return await submit_job(session.db, job, Plan([task]))
    except AaiclickError as error:
        return error


@action
async def add_undo(session: Engine, claims: dict[str, Claim]) -> object:
    """The compensator, as `a`, adds the compensations as a chain."""
    name = f"undo{session.worker_id}"
    try:
        return await session.add("job", f"{name}y {name}x", "", f"{name}y>{name}x", claims["a"].lease)
    except AaiclickError as error:
        return error


@action
async def debounce(session: Engine, claims: dict[str, Claim]) -> object:
    kwargs = json.dumps({str(session.worker_id): 1})
    task = NewTask(get_snowflake_id(), "mail", kwargs=kwargs)
    session.ids[f"mail{task.id}"] = task.id
    return await enqueue_debounced(session.db, task, Debounce(30, "k", is_merged=True))


@action
async def claim_due(session: Engine, claims: dict[str, Claim]) -> object:
    now = await session.now() + LATER
    await queue.promote_due_tasks(session.db, now=now)
    claimed = await queue.claim(session.db, worker_id=session.worker_id, limit=9, queues=[], lease_seconds=9e4, now=now)
    CLAIMED.extend(json.loads(item.kwargs) for item in claimed)
    return await session.complete(*claimed)


@action
async def submit_limited(session: Engine, claims: dict[str, Claim], when_busy: str = "queue") -> int:
    policy = JobPolicy(1, when_busy)  # pyright: ignore[reportArgumentType]
    job, task = NewJob(get_snowflake_id(), "limited", policy=policy), NewTask(get_snowflake_id(), "w", "m.w")
    session.ids[f"w{task.id}"] = task.id
    return await submit_job(session.db, job, Plan([task]))


@action
async def submit_newest(session: Engine, claims: dict[str, Claim]) -> object:
    return await submit_limited(session, claims, "keep_newest")


@action
async def submit_cancelling(session: Engine, claims: dict[str, Claim]) -> object:
    return await submit_limited(session, claims, "cancel_running")


@action
async def cancel_waiting(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.cancel_job(session.db, session.id("other"))


@action
async def retry_waiting(session: Engine, claims: dict[str, Claim]) -> object:
    return await user_actions.retry_failed_tasks(session.db, session.id("other"), cancelled=True)


@action
async def schedule_runs(session: Engine, claims: dict[str, Claim]) -> object:
    return await scheduler.start_due_schedules(session.db, now=await session.now() + LATER)


@action
async def backfill(session: Engine, claims: dict[str, Claim]) -> object:
    """Start the next nominal time, which the scheduler starts too."""
    schedule = await schedules.lock_schedule(session.db, DEFAULT_ORG_ID, "hourly")
    if schedule is None:
        return None
    nominal: datetime = session.ids["nominal"]  # pyright: ignore[reportAssignmentType]
    return await start_run(session.db, schedule, nominal, "backfill")


@action
async def pause_hourly(session: Engine, claims: dict[str, Claim]) -> object:
    with suppress(NotFoundError):
        await schedules.pause_schedule(session.db, DEFAULT_ORG_ID, "hourly")
    return None


@action
async def remove_hourly(session: Engine, claims: dict[str, Claim]) -> object:
    with suppress(NotFoundError):
        await schedules.delete_schedule(session.db, DEFAULT_ORG_ID, "hourly")
    return None


@action
async def route(session: Engine, claims: dict[str, Claim]) -> object:
    return await event_routing.route_events(session.db)


def pairs(names: str) -> list[tuple[str, str]]:
    """All pairs: either may begin first."""
    return list(itertools.product(names.split(), repeat=2))


def with_first(name: str, names: str) -> list[tuple[str, str]]:
    """Pairs of one action with each other one, of which either begins first."""
    return sorted({pair for other in names.split() for pair in ((name, other), (other, name))})


async def submit_beside_dead_letter(engine: Engine, tasks: str, edges: str) -> None:
    """A job with a dead letter `dead` that has the same handlers: a restart resets those."""
    handlers = " ".join(name.partition("@")[0] for name in tasks.split() if name.endswith(("@failed", "@ended")))
    edges += "".join(f" dead>{handler}" for handler in handlers.split())
    await engine.submit(f"dead {tasks}", "", edges, max_attempts=1)
    [dead] = await engine.claim(1)
    assert dead.type == "dead"
    await engine.fail(dead)


async def begin(engine: Engine) -> None:
    await clear(engine)
    await engine.db.execute("DELETE FROM waits; DELETE FROM schedules; DELETE FROM outbox")
    CLAIMED.clear()


async def run_pair(
    engine: Engine,
    sessions: list[Engine],
    pair: tuple[str, str],
    order: list[tuple[int, str]],
    claims: dict[str, Claim] | None = None,
) -> None:
    await play(engine, sessions, list(pair), order, claims)
    await engine.check()


JOB_WAITS = [
    *with_first("wait_for_b", "complete_b choose_b fail_b cancel_other reap cancel expire promote clear_a"),
    ("complete_b", "cancel"),
]  # fmt: skip


@pytest.mark.parametrize("pair", JOB_WAITS, ids="-".join)
async def test_end_of_a_job_ends_each_wait_for_it(
    engine: Engine, sessions: list[Engine], pair: tuple[str, str]
) -> None:
    for order in chosen_orders(pair):
        await begin(engine)
        await engine.submit("a n", "", "a>n")
        await engine.submit("b c" if "choose_b" in pair else "b", "", "b>c" if "choose_b" in pair else "", job="other")
        await run_pair(engine, sessions, pair, order)
        if set(pair) <= {"wait_for_b", "complete_b", "choose_b", "fail_b", "cancel_other"}:
            ready = "SELECT readiness::text FROM tasks WHERE id = $1"
            ended = await engine.db.fetchval("SELECT completed_at FROM jobs WHERE id = $1", engine.id("other"))
            expected = "READY" if ended is not None else "TIME"
            assert await engine.db.fetchval(ready, engine.id("a")) == expected
            assert await engine.db.fetchval("SELECT count(*) FROM waits") == (ended is None)
        await drain_and_check(engine, sessions)


@pytest.mark.parametrize("restart", ["retry_waiting", "redrive", "clear_b"])
@pytest.mark.parametrize("first", [0, 1], ids=["wait_first", "restart_first"])
async def test_wait_for_a_job_that_restarts(engine: Engine, sessions: list[Engine], restart: str, first: int) -> None:
    """The awaited job has failed, or it waits: a wait that began before ended at once, one that begins later waits."""
    pair = ("wait_for_b", restart) if first == 0 else (restart, "wait_for_b")
    for order in chosen_orders(pair):
        await begin(engine)
        await engine.submit("b", "", "", job="other", max_attempts=1)
        await engine.fail(*await engine.claim())
        await engine.submit("a n", "", "a>n")
        await run_pair(engine, sessions, pair, order)
        assert await engine.status("other") == "RUNNING"
        await drain_and_check(engine, sessions)


@pytest.mark.parametrize("pair", with_first("poll_again", "cancel cancel_a reap clear_a poll_again"), ids="-".join)
async def test_poll_of_a_sensor(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    for order in chosen_orders(pair):
        await begin(engine)
        await engine.submit("a n alert@failed last@ended", "", "a>n a>alert n>alert n>last alert>last")
        await run_pair(engine, sessions, pair, order)
        if "cancel_a" in pair or "cancel" in pair:  # a cancellation that was accepted is not undone by a poll
            assert await engine.status("a") == "CANCELLED"
        await drain_and_check(engine, sessions)


CHILDREN = with_first(
    "submit_child", "cancel cancel_a clear_a expire reap complete_a fail_a retry redrive submit_child"
)


@pytest.mark.parametrize("pair", CHILDREN, ids="-".join)
async def test_child_job_is_cancelled_with_its_parent(
    engine: Engine, sessions: list[Engine], pair: tuple[str, str]
) -> None:
    for order in chosen_orders(pair):
        await begin(engine)
        await submit_beside_dead_letter(engine, "a n alert@failed", "a>n a>alert")
        await run_pair(engine, sessions, pair, order)
        states = [row["status"] for row in await engine.db.fetch("SELECT status::text FROM jobs WHERE name = 'child'")]
        assert len(states) <= 1
        if {"cancel", "cancel_a", "expire"} & set(pair):
            assert set(states) <= {"CANCELLED"}
        await drain_and_check(engine, sessions)


CHILD_ENDS = list(itertools.product(["retry", "redrive", "clear_a"], ["complete_b", "fail_b", "cancel_other"]))


@pytest.mark.parametrize("pair", CHILD_ENDS, ids="-".join)
async def test_restarted_parent_finds_its_child(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """A parent that failed after its submit submits the child b again: a new one if that did not succeed."""
    for order in chosen_orders(pair):
        await begin(engine)
        await engine.submit("a n", "", "a>n", max_attempts=1)
        [parent] = await engine.claim()
        job = NewJob(engine.id("other"), "child", idempotency_key="child", parent=parent.lease)
        await submit_job(engine.db, job, engine.plan("b"))
        [child] = await engine.claim()
        await engine.fail(parent)
        await run_pair(engine, sessions, pair, order, {"b": child})
        [parent] = await engine.claim()
        child_id = await submit_child(engine, {"a": parent})
        ended = await engine.status("other")
        is_kept = pair[0] != "clear_a" and ended in ("COMPLETED", "RUNNING")
        assert (child_id == engine.id("other")) == is_kept
        await drain_and_check(engine, sessions)


UNDO = with_first("add_undo", "cancel expire cancel_a retry redrive clear_a reap complete_a")


@pytest.mark.parametrize("pair", UNDO, ids="-".join)
async def test_compensations_are_added_once(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """A step has failed, and the compensator runs as `a`; its chain is complete, or absent."""
    for order in chosen_orders(pair):
        await begin(engine)
        await engine.submit("step a@failed last@ended", "", "step>a step>last a>last", max_attempts=1)
        await engine.fail(*await engine.claim())
        await run_pair(engine, sessions, pair, order)
        added = await engine.db.fetchval("SELECT count(*) FROM tasks WHERE added_by = $1", engine.id("a"))
        assert added in (0, 2)
        await complete_leased(engine)
        await drain_and_check(engine, sessions)
        ends = await engine.db.fetch(
            "SELECT completed_at FROM tasks WHERE type LIKE 'undo%' AND status = 'COMPLETED' ORDER BY type DESC"
        )  # fmt: skip
        assert len(ends) in ((added,) if "expire" in pair else (0, 2))  # a timeout leaves compensations running
        assert ends == sorted(ends)
        assert await engine.status("last") != "PENDING"


RESTARTS = [
    *with_first("redrive", "redrive retry clear_a cancel complete_b fail_b claim reap"),
    *with_first("clear_a", "clear_a complete_b choose_b fail_b cancel claim retry"),
    *with_first("expire", "expire redrive retry clear_a complete_b fail_b"),
    ("choose_b", "redrive"), ("choose_b", "retry"), ("redrive", "choose_b"),
]  # fmt: skip


@pytest.mark.parametrize("pair", RESTARTS, ids="-".join)
async def test_restarts_with_handlers(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """The dead letter a and the running b have handlers."""
    for order in chosen_orders(pair):
        await begin(engine)
        await engine.submit("a", "", "", max_attempts=1)
        [first] = await engine.claim()
        await engine.add(
            "job", "b c j@any alert@failed last@ended", "", "b>c b>j a>alert b>alert c>last j>last alert>last"
        )
        await engine.fail(first)
        await run_pair(engine, sessions, pair, order)
        await drain_and_check(engine, sessions)
        status = await engine.status("job")
        assert (await engine.status("last")) in (
            ("COMPLETED",) if status != "CANCELLED" else ("COMPLETED", "CANCELLED")
        )


@pytest.mark.parametrize("pair", pairs("debounce claim_due"), ids="-".join)
async def test_debounced_payload_is_claimed_once(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """A waiting item is replaced and claimed: each payload is in one item that runs."""
    for order in chosen_orders(pair):
        await begin(engine)
        await debounce(engine, {})
        await run_pair(engine, sessions, pair, order)
        await claim_due(engine, {})
        written = {str(engine.worker_id), *(str(sessions[n].worker_id) for n in range(2) if pair[n] == "debounce")}
        assert {key for payload in CLAIMED for key in payload} == written
        assert await engine.db.fetchval("SELECT count(*) FROM tasks WHERE completed_at IS NULL") == 0
        assert len(CLAIMED) == await engine.db.fetchval("SELECT count(*) FROM tasks")


LIMITED = [
    *pairs("submit_limited submit_newest submit_cancelling"),
    *[(end, submit) for end in ("complete_a", "cancel", "expire", "cancel_waiting", "reap", "clear_a")
      for submit in ("submit_limited", "submit_newest", "submit_cancelling")],
]  # fmt: skip
RUNNING = """
    SELECT count(*) FROM jobs j WHERE j.name = 'limited' AND j.completed_at IS NULL AND EXISTS (
        SELECT FROM tasks t WHERE t.job_id = j.id AND t.type <> 'wait_for_turn'
          AND (t.status IN ('CLAIMED', 'RUNNING') OR t.readiness = 'READY'))
"""


LEASED = "SELECT id, attempt, lease_token FROM tasks WHERE status IN ('CLAIMED', 'RUNNING') ORDER BY id"


async def take_turns(engine: Engine) -> dict[str, Claim]:
    """Let waiting jobs begin to wait, and go on when it is their turn, as their worker does; returns other claims."""
    running: dict[str, Claim] = {}
    while claims := await engine.claim():
        running |= {claim.type: claim for claim in claims if claim.type != "wait_for_turn"}
        for claim in claims:
            if claim.type == "wait_for_turn":
                kwargs = json.loads(claim.kwargs)
                wait = await run_wait_for_turn(**kwargs)
                await acknowledge(engine, Success(claim.lease, wait=wait))
    return running


async def complete_leased(engine: Engine) -> None:
    for row in await engine.db.fetch(LEASED):
        await acknowledge(engine, Success(Lease(row["id"], row["attempt"], row["lease_token"], True, True)))


async def end_jobs_in_turn(engine: Engine) -> None:
    """Complete the tasks that run until none gets its turn any more."""
    await take_turns(engine)
    while leases := await engine.db.fetch(LEASED):
        assert await engine.db.fetchval(RUNNING) <= 1
        lease = Lease(leases[0]["id"], leases[0]["attempt"], leases[0]["lease_token"], True, True)
        await acknowledge(engine, Success(lease))
        await take_turns(engine)


@pytest.mark.parametrize("pair", LIMITED, ids="-".join)
async def test_limited_jobs_run_one_at_a_time(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """A limited job, as "job", runs its task a; another one, "other", waits for it."""
    for order in chosen_orders(pair):
        await begin(engine)
        job = NewJob(engine.id("job"), "limited", policy=JobPolicy(1))
        await submit_job(engine.db, job, engine.plan("a"))
        engine.ids["other"] = await submit_limited(engine, {})
        await run_pair(engine, sessions, pair, order, await take_turns(engine))
        assert await engine.db.fetchval(RUNNING) <= 1
        await end_jobs_in_turn(engine)
        if "reap" not in pair:  # else a waits for its retry
            assert await engine.db.fetchval("SELECT count(*) FROM jobs WHERE completed_at IS NULL") == 0


@pytest.mark.parametrize("pair", [("cancel_waiting", "complete_a"), ("complete_a", "cancel_waiting")], ids="-".join)
async def test_turn_passes_over_a_cancelled_job(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """A third job waits for the second one; if that is cancelled, for the first one."""
    for order in chosen_orders(pair):
        await begin(engine)
        await submit_job(engine.db, NewJob(engine.id("job"), "limited", policy=JobPolicy(1)), engine.plan("a"))
        engine.ids["other"] = await submit_limited(engine, {})
        await submit_limited(engine, {})
        claims = await take_turns(engine)
        await run_pair(engine, sessions, pair, order, claims)
        assert list(await take_turns(engine)) == ["w"]
        assert await engine.db.fetchval("SELECT count(*) FROM jobs WHERE completed_at IS NULL") == 1


RETRIED = with_first("retry_waiting", "retry_waiting complete_a cancel submit_limited")


@pytest.mark.parametrize("pair", RETRIED, ids="-".join)
async def test_cancelled_job_is_retried(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """The second job was cancelled before its turn, and the third one has passed over it."""
    for order in chosen_orders(pair):
        await begin(engine)
        await submit_job(engine.db, NewJob(engine.id("job"), "limited", policy=JobPolicy(1)), engine.plan("a"))
        engine.ids["other"] = await submit_limited(engine, {})
        await submit_limited(engine, {})
        claims = await take_turns(engine)
        await user_actions.cancel_job(engine.db, engine.id("other"))
        await run_pair(engine, sessions, pair, order, claims)
        assert await engine.db.fetchval(RUNNING) <= 1
        await end_jobs_in_turn(engine)
        assert await engine.db.fetchval("SELECT count(*) FROM jobs WHERE completed_at IS NULL") == 0


async def test_turn_behind_a_cancelled_job_waits_for_the_running_one(engine: Engine) -> None:
    await begin(engine)
    await submit_job(engine.db, NewJob(engine.id("job"), "limited", policy=JobPolicy(1)), engine.plan("a"))
    second = await submit_limited(engine, {})
    await submit_limited(engine, {})
    claims = await take_turns(engine)
    await user_actions.cancel_job(engine.db, second)
    assert await take_turns(engine) == {}
    await engine.complete(claims["a"])
    assert list(await take_turns(engine)) == ["w"]


async def test_further_replacement_leaves_final_tasks_alone(engine: Engine) -> None:
    await begin(engine)
    plan = engine.plan("a last@ended", "", "a>last")
    await submit_job(engine.db, NewJob(engine.id("job"), "limited", policy=JobPolicy(1)), plan)
    claims = await take_turns(engine)
    await submit_cancelling(engine, {})
    await submit_cancelling(engine, {})
    await engine.complete(claims["a"])
    assert await engine.run() == ["last wait_for_turn", "w"]
    assert await engine.status("a", "last") == "CANCELLED COMPLETED"


@pytest.mark.parametrize("pair", pairs("schedule_runs backfill pause_hourly remove_hourly"), ids="-".join)
async def test_each_nominal_time_starts_one_run(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    for order in chosen_orders(pair):
        await begin(engine)
        spec = ScheduleSpec.parse(None, "1h", missed="all", overlap="allow")
        await save_schedule(engine.db, DEFAULT_ORG_ID, NewSchedule("hourly", spec, "m.j", "hourly"), replace=True)
        engine.ids["nominal"] = await engine.db.fetchval("SELECT next_run_at FROM schedules")
        await run_pair(engine, sessions, pair, order)
        if "schedule_runs" in pair:  # it passes over a schedule that another session holds
            await schedule_runs(engine, {})
        del engine.ids["nominal"]
        runs = [row["nominal"] for row in await engine.db.fetch("SELECT trigger ->> 'nominal' AS nominal FROM jobs")]
        assert len(set(runs)) == len(runs)
        if "schedule_runs" in pair and "pause_hourly" not in pair and "remove_hourly" not in pair:
            assert len(runs) == 2


async def emit_update(session: Engine) -> None:
    row = await session.db.fetchrow(
        "SELECT p.dataset_uuid, p.dataset_version, p.dag_version_id FROM dag_version_datasets p"
        " JOIN datasets d ON d.id = p.dataset_uuid WHERE d.name = 'points.raw'"
    )
    job_id = await dataset_events.open_job(session.db, DEFAULT_ORG_ID, "update", row["dag_version_id"], {})
    event = dataset_events.Event(DEFAULT_ORG_ID, job_id, row["dataset_uuid"], row["dataset_version"])
    async with session.db.transaction():
        await dataset_events.count_events(session.db, await dataset_events.emit_events(session.db, [event]))


@pytest.mark.parametrize("pair", [("route", "claim"), ("claim", "route"), ("route", "route")], ids="-".join)
async def test_coalesced_update_is_not_lost(engine: Engine, sessions: list[Engine], pair: tuple[str, str]) -> None:
    """A task waits for a worker, and another update is routed: a task that was claimed before does not read it."""
    for order in chosen_orders(pair):
        await begin(engine)
        if not await engine.db.fetchval("SELECT count(*) FROM dag_versions"):
            await deploy(engine.db, COALESCED_DAG)
        await emit_update(engine)
        await event_routing.route_events(engine.db)
        assert await engine.db.fetchval("SELECT count(*) FROM tasks") == 1
        await emit_update(engine)
        await run_pair(engine, sessions, pair, order, {})
        await event_routing.route_events(engine.db)
        assert await engine.db.fetchval("SELECT count(*) FROM outbox") == 0
        assert await engine.db.fetchval("SELECT count(*) FROM tasks") == (2 if pair[0] == "claim" else 1)
