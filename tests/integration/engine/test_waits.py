"""Waits for times, events and jobs: each ends once, and no lost wake-up."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from aaiclick.errors import LimitError, SubmitError
from aaiclick.orchestration.loops import due_task_promoter
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import maintenance, queue, user_actions, waits
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.explain_task import explain_task
from aaiclick.store.engine.leases_and_outcomes import Claim, Success, Wait
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.rerun import rerun_job
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import submit_job
from aaiclick.store.engine.waits import send_event
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.job_policy import JobPolicy
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions
from tests.integration.engine.conftest import Engine

BLOCKED = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"""
EVENT = Wait("event", 3600.0, name="paid", key="42")


async def claim_one(engine: Engine) -> Claim:
    (claim,) = await engine.claim()
    return claim


async def begin(engine: Engine, claim: Claim, wait: Wait) -> set[int]:
    success = Success(claim.lease, wait=wait)
    now = await engine.now() if engine.shift else None
    return await queue.acknowledge(engine.db, worker_id=engine.worker_id, successes=[success], now=now)


async def send(engine: Engine, key: str = "42", payload: str = '{"euros": 7}', **options: Any) -> int:
    now = await engine.now() if engine.shift else None
    return (await send_event(engine.db, DEFAULT_ORG_ID, "paid", key, payload, now=now, **options))[1]


def state(claim: Claim) -> dict[str, Any]:
    return json.loads(claim.kwargs)["aaiclick_wait"]


async def pass_time(engine: Engine, seconds: float) -> None:
    engine.shift += timedelta(seconds=seconds)
    await due_task_promoter.run_once(engine.db, now=await engine.now())


async def test_event_ends_the_wait_with_its_payload(engine: Engine) -> None:
    await engine.submit("a b", edges="a>b")
    assert await begin(engine, await claim_one(engine), EVENT) == {engine.id("a")}
    await engine.check()
    assert await engine.claim() == []
    (reason,) = await explain_task(engine.db, engine.id("a"))
    assert reason.text.startswith("waits for event paid/42 until ")
    assert await send(engine, "43") == 0
    assert await send(engine) == 1
    assert await send(engine) == 0
    claim = await claim_one(engine)
    assert state(claim)["event"] == {"euros": 7}
    await engine.complete(claim)
    assert await engine.run() == ["b"]
    await engine.check()


async def test_event_sent_before_the_wait_counts_until_it_expires(engine: Engine) -> None:
    await engine.submit("a b")
    await send(engine, keep_seconds=100.0)
    first, second = await engine.claim()
    await begin(engine, first, EVENT)
    claim = await claim_one(engine)
    assert state(claim)["event"] == {"euros": 7}
    engine.shift += timedelta(seconds=101)
    await begin(engine, second, EVENT)
    assert await engine.claim() == []
    await maintenance.delete_old_history(engine.db, keep_seconds=1e9, now=await engine.now())
    assert await engine.db.fetchval("SELECT count(*) FROM workflow_events") == 0
    await engine.check()


async def test_one_event_ends_every_wait_for_it(engine: Engine) -> None:
    await engine.submit("a b c")
    for claim in await engine.claim():
        await begin(engine, claim, EVENT)
    assert await send(engine) == 3
    assert len(await engine.claim()) == 3
    await engine.check()


async def test_timeout_ends_the_wait_and_later_events_do_not(engine: Engine) -> None:
    await engine.submit("a")
    await begin(engine, await claim_one(engine), EVENT)
    await pass_time(engine, 3601)
    assert await send(engine) == 0
    claim = await claim_one(engine)
    assert "event" not in state(claim)
    await begin(engine, claim, Wait("time", 60.0))
    assert await send(engine) == 0
    await engine.check()


@pytest.mark.parametrize("order", ["event first", "wait first"])
async def test_concurrent_event_and_wait_meet(engine: Engine, second: Engine, order: str) -> None:
    await engine.submit("a")
    claim = await claim_one(engine)
    waiting, sending = lambda: begin(engine, claim, EVENT), lambda: send(second)
    sessions = [(engine, waiting), (second, sending)]
    (first, act), (then, follow) = sessions if order == "wait first" else sessions[::-1]

    async def run() -> None:
        await follow()

    async with first.db.transaction():
        await act()
        later = asyncio.create_task(run())
        await then.wait_until_idle(first, later)
    await later
    assert state(await claim_one(engine))["event"] == {"euros": 7}
    await engine.check()


async def test_sleeping_task_holds_no_slot_of_its_key(engine: Engine) -> None:
    await engine.submit("a b", concurrency_key="k")
    claim = await claim_one(engine)
    await begin(engine, claim, Wait("time", 60.0))
    assert len(await engine.claim()) == 1
    await engine.check()


async def test_polls_fail_after_their_deadline(engine: Engine) -> None:
    await engine.submit("a")
    poll = Wait("poll", 40.0, deadline_seconds=100.0)
    for _ in range(3):
        await begin(engine, await claim_one(engine), poll)
        assert await engine.claim() == []
        await pass_time(engine, 41)
    await begin(engine, await claim_one(engine), poll)
    assert await engine.status("a", "job") == "FAILED FAILED"
    await engine.check()


async def test_cancel_ends_a_wait(engine: Engine) -> None:
    await engine.submit("a b")
    first, second = await engine.claim()
    await begin(engine, first, EVENT)
    await user_actions.cancel_job(engine.db, engine.id("job"))
    await begin(engine, second, EVENT)
    assert await send(engine) == 0
    assert await engine.status("a", "b", "job") == "CANCELLED CANCELLED CANCELLED"
    await engine.check()


async def test_clear_and_rerun_wait_again(engine: Engine) -> None:
    await engine.submit("a")
    await begin(engine, await claim_one(engine), EVENT)
    await send(engine, keep_seconds=0.0)
    await engine.complete(await claim_one(engine))
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    claim = await claim_one(engine)
    assert claim.kwargs == "{}"
    await begin(engine, claim, EVENT)
    job = await engine.db.fetchrow("SELECT * FROM jobs WHERE id = $1", engine.id("job"))
    await rerun_job(engine.db, job)
    assert (await claim_one(engine)).kwargs == "{}"
    await engine.check()


async def test_rerun_keeps_values_that_look_like_ids(engine: Engine) -> None:
    task_id = get_snowflake_id()
    kwargs = {"default": {"task_id": "abc"}, "task_id": str(task_id), "builder_id": str(task_id)}
    entrypoint = "aaiclick.orchestration.waits.run_wait_for_event"
    plan = Plan([NewTask(task_id, "wait_for_event", entrypoint, json.dumps(kwargs))])
    job = NewJob(get_snowflake_id(), "rerun")
    await submit_job(engine.db, job, plan)
    copy = await rerun_job(engine.db, await engine.db.fetchrow("SELECT * FROM jobs WHERE id = $1", job.id))
    assert json.loads(await engine.db.fetchval("SELECT kwargs::text FROM tasks WHERE job_id = $1", copy)) == kwargs


@pytest.mark.parametrize("end", ["complete", "fail", "cancel", "before"])
async def test_end_of_a_job_ends_waits_for_it(engine: Engine, end: str) -> None:
    await engine.submit("other", job="awaited", max_attempts=1)
    other = await claim_one(engine)
    if end == "before":
        await engine.complete(other, result='{"n": 1}')
    await engine.submit("a")
    await begin(engine, await claim_one(engine), Wait("job", job_id=engine.id("awaited")))
    if end == "complete":
        assert (await explain_task(engine.db, engine.id("a")))[0].code == "job"
        await engine.complete(other, result='{"n": 1}')
    elif end == "fail":
        await engine.fail(other)
    elif end == "cancel":
        await user_actions.cancel_job(engine.db, engine.id("awaited"))
        await engine.complete(other)
    outcome = state(await claim_one(engine))["job"]
    expected = {"fail": ("FAILED", []), "cancel": ("CANCELLED", [])}.get(end, ("COMPLETED", [{"n": 1}]))
    assert (outcome["status"], outcome["results"]) == expected
    await engine.check()


async def test_wait_for_a_job_that_is_ending_gets_its_outcome(engine: Engine) -> None:
    """A wait that begins while another session commits the end of the job."""
    await engine.submit("other", job="awaited")
    ending = await claim_one(engine)
    await engine.submit("a", job="waiting")
    (claim,) = [claim for claim in await engine.claim() if claim.type == "a"]
    session, observer = await connect(engine.endpoint), await connect(engine.endpoint)
    try:
        async with session.transaction():
            await queue.acknowledge(session, worker_id=engine.worker_id, successes=[Success(ending.lease)])
            waiting = asyncio.create_task(begin(engine, claim, Wait("job", 60.0, job_id=engine.id("awaited"))))
            while not await observer.fetchval(BLOCKED):
                assert not waiting.done()
        assert await waiting == {engine.id("a")}
        assert state(await claim_one(engine))["job"]["status"] == "COMPLETED"
    finally:
        await session.close()
        await observer.close()


async def test_wait_for_an_unknown_job_or_itself_fails(engine: Engine) -> None:
    await engine.submit("a b")
    first, second = await engine.claim()
    await begin(engine, first, Wait("job", job_id=1))
    await begin(engine, second, Wait("job", job_id=engine.id("job")))
    assert await engine.status("a", "b") == "FAILED FAILED"


async def test_lost_lease_does_not_begin_a_wait(engine: Engine) -> None:
    await engine.submit("a")
    claim = await claim_one(engine)
    await user_actions.clear_tasks(engine.db, engine.id("a"))
    assert await begin(engine, claim, EVENT) == set()
    assert await engine.db.fetchval("SELECT count(*) FROM waits") == 0


async def test_invalid_events_are_refused(engine: Engine) -> None:
    with pytest.raises(SubmitError, match="The name of an event is ''"):
        await send_event(engine.db, DEFAULT_ORG_ID, "")
    with pytest.raises(SubmitError, match="has a field 'object_type'"):
        await send(engine, payload='{"x": {"object_type": "object", "table_id": "t1"}}')


async def test_stored_events_of_an_org_are_limited(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "MAX_STORED_EVENTS", 2)
    for _ in range(2):
        await send(engine)
    with pytest.raises(LimitError, match="has 2 events that have not expired"):
        await send(engine)
    await send(engine, keep_seconds=0.0)
    assert await engine.db.fetchval("SELECT count(*) FROM workflow_events") == 2


@pytest.mark.parametrize("job_id", ["1_2", "one", "99999999999999999999", "-1", "", 7.5, None, {"a": 1}])
async def test_item_with_the_type_of_turns_disturbs_no_other_task(engine: Engine, job_id: object) -> None:
    """Its arguments are text of its submitter, and statements that read turns run for all organisations."""
    plain = NewTask(engine.id("plain"), "mail", "m.m")
    forged = NewTask(engine.id("forged"), "wait_for_turn", "m.m", json.dumps({"job_id": job_id}))
    await enqueue_tasks(engine.db, [plain, forged])
    claims = {claim.lease.task_id: claim for claim in await engine.claim()}
    outcomes = [
        Success(claims[plain.id].lease),
        Success(claims[forged.id].lease, wait=Wait("job", 60.0, job_id=12)),
    ]
    accepted = await queue.acknowledge(engine.db, worker_id=engine.worker_id, successes=outcomes)
    assert plain.id in accepted
    assert await engine.status("plain") == "COMPLETED"


async def test_limited_job_with_a_forged_turn_ends(engine: Engine) -> None:
    options = TaskOptions(max_attempts=1)
    forged = NewTask(engine.id("forged"), "wait_for_turn", "m.m", json.dumps({"job_id": "one"}), options=options)
    limited = JobPolicy(concurrency=1)
    await submit_job(engine.db, NewJob(engine.id("job"), "nightly", policy=limited), Plan([forged]))
    claim = await claim_one(engine)
    another = NewTask(engine.id("another"), "a", "m.a")
    await submit_job(engine.db, NewJob(get_snowflake_id(), "nightly", policy=limited), Plan([another]))
    await begin(engine, await claim_one(engine), Wait("job", 3600.0, job_id=engine.id("job")))
    await engine.fail(claim)  # the other job has waited for this end
    assert await engine.db.fetchval("SELECT status FROM jobs WHERE id = $1", engine.id("job")) == "FAILED"
    await engine.run()
    assert await engine.status("another") == "COMPLETED"
    await user_actions.retry_failed_tasks(engine.db, engine.id("job"))
