"""Limits of jobs of one name: the policies, submits at the same time, and the order of turns."""

from __future__ import annotations

import asyncio
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from aaiclick.orchestration import OrchContext, run_job_test
from aaiclick.orchestration.waits import run_wait_for_turn
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queries, queue
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.job_concurrency import UnfinishedJob, choose_awaited
from aaiclick.store.engine.leases_and_outcomes import Failure, Success
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.rerun import rerun_job
from aaiclick.store.engine.retry_and_redrive import clear_tasks, redrive_dead_letters, retry_failed_tasks
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import submit_job
from aaiclick.store.job_policy import JobPolicy
from tests.integration.engine.limited_jobs import newest, patient


@pytest.fixture
async def context(aaiclick_env):
    async with OrchContext() as context:
        yield context


async def submit(connection, when_busy: str = "queue", concurrency: int = 1, **fields) -> int:
    job = NewJob(get_snowflake_id(), "limited", policy=JobPolicy(concurrency, when_busy), **fields)
    return await submit_job(connection, job, Plan([NewTask(get_snowflake_id(), "t")]))


async def list_states(connection) -> list[tuple[str, bool]]:
    """State of each job, and whether it has a task that can be claimed and is not the wait for its turn."""
    rows = await connection.fetch(
        "SELECT j.status::text, EXISTS (SELECT FROM tasks t WHERE t.job_id = j.id AND t.readiness = 'READY'"
        " AND t.type <> 'wait_for_turn') AS ready FROM jobs j ORDER BY j.id"
    )
    return [(row["status"], row["ready"]) for row in rows]


async def test_queued_job_waits_for_its_turn(context):
    async with context.connection() as connection:
        first, second = await submit(connection), await submit(connection)
        assert await list_states(connection) == [("PENDING", True), ("PENDING", False)]
        waits = await connection.fetch("SELECT kwargs ->> 'job_id' AS job_id FROM tasks WHERE type = 'wait_for_turn'")
        assert [row["job_id"] for row in waits] == [str(first)]
        assert second != first


async def test_skipped_job_is_the_unfinished_one(context):
    async with context.connection() as connection:
        first = await submit(connection, "skip")
        assert await submit(connection, "skip") == first
        await cancel_job(connection, first)
        assert await submit(connection, "skip") != first


async def test_newest_waiting_job_replaces_those_before_it(context):
    async with context.connection() as connection:
        for _ in range(4):
            await submit(connection, "keep_newest")
        assert [status for status, _ in await list_states(connection)] == [
            "PENDING", "CANCELLED", "CANCELLED", "PENDING",
        ]  # fmt: skip


async def test_running_job_is_cancelled(context):
    async with context.connection() as connection:
        await submit(connection, "cancel_running")
        await submit(connection, "cancel_running")
        assert await list_states(connection) == [("CANCELLED", False), ("PENDING", True)]


async def test_repeated_submit_with_a_key_changes_nothing(context):
    async with context.connection() as connection:
        first = await submit(connection, "cancel_running", idempotency_key="k")
        assert await submit(connection, "cancel_running", idempotency_key="k") == first
        assert await list_states(connection) == [("PENDING", True)]


async def test_turn_comes_before_groups_and_their_members(context):
    async with context.connection() as connection:
        await submit(connection)
        group, member, outside = get_snowflake_id(), get_snowflake_id(), get_snowflake_id()
        plan = Plan(
            [NewTask(member, "t", group_id=group), NewTask(outside, "t")], [NewGroup(group, "g")], [(group, outside)]
        )
        job = NewJob(get_snowflake_id(), "limited", policy=JobPolicy(1))
        await submit_job(connection, job, plan)
        rows = await connection.fetch("SELECT type FROM tasks WHERE job_id = $1 AND readiness = 'READY'", job.id)
        assert [row["type"] for row in rows] == ["wait_for_turn"]


@pytest.mark.parametrize("when_busy", ["queue", "skip", "keep_newest", "cancel_running"])
async def test_submits_at_the_same_time_let_one_job_run(context, when_busy: str):
    async def submit_alone() -> None:
        async with context.connection() as connection:
            await submit(connection, when_busy)

    await asyncio.gather(*(submit_alone() for _ in range(6)))
    async with context.connection() as connection:
        assert sum(ready for _, ready in await list_states(connection)) == 1


async def test_jobs_run_one_after_the_other(aaiclick_env):
    jobs = [await patient(number) for number in range(3)]
    assert run_job_test(jobs[2]).status == "COMPLETED"
    for job in jobs:
        await job.refresh()
    assert [job.status for job in jobs] == ["COMPLETED"] * 3
    assert jobs[0].completed_at <= jobs[1].completed_at <= jobs[2].completed_at
    assert newest.policy.concurrency == 2


async def end_tasks(connection, job_id: int, **fail: object) -> None:
    """Run the ready tasks of a job: they complete, or fail for good."""
    worker = await queue.register_worker(connection, hostname="h", pid=1)
    rows = await connection.fetch("SELECT id FROM tasks WHERE job_id = $1 AND readiness = 'READY'", job_id)
    claims = await queue.claim(connection, worker_id=worker.id, limit=99, queues=[], lease_seconds=60)
    mine = [claim.lease for claim in claims if claim.lease.task_id in {row["id"] for row in rows}]
    releases = [claim.lease for claim in claims if claim.lease not in mine]
    if fail:
        await connection.execute("UPDATE tasks SET max_attempts = 1 WHERE job_id = $1", job_id)
        failures = [Failure(lease, "no", "f", permanent=False) for lease in mine]
        await queue.acknowledge(connection, worker_id=worker.id, failures=failures, releases=releases)
    else:
        successes = [Success(lease, "null") for lease in mine]
        await queue.acknowledge(connection, worker_id=worker.id, successes=successes, releases=releases)


async def take_turns(connection) -> None:
    """Run the waits for turns until none is ready, as workers do."""
    worker = await queue.register_worker(connection, hostname="h", pid=1)
    while True:
        claims = await queue.claim(connection, worker_id=worker.id, limit=99, queues=[], lease_seconds=60)
        turns = [claim for claim in claims if claim.type == "wait_for_turn"]
        successes = [
            Success(claim.lease, "null", wait=await run_wait_for_turn(**json.loads(claim.kwargs))) for claim in turns
        ]
        releases = [claim.lease for claim in claims if claim.type != "wait_for_turn"]
        await queue.acknowledge(connection, worker_id=worker.id, successes=successes, releases=releases)
        await connection.execute("UPDATE tasks SET readiness = 'READY' WHERE readiness = 'TIME' AND type = 't'")
        if not turns:
            return


async def list_running(connection) -> list[int]:
    """Jobs of which a task other than the wait for the turn can run."""
    rows = await connection.fetch(
        "SELECT DISTINCT job_id FROM tasks WHERE type <> 'wait_for_turn' AND (readiness IN ('READY', 'TIME')"
        " OR lease_token IS NOT NULL) ORDER BY 1"
    )
    return [row["job_id"] for row in rows]


async def test_cancelled_waiting_job_lets_no_other_run(context):
    async with context.connection() as connection:
        first, second, third = [await submit(connection) for _ in range(3)]
        await take_turns(connection)
        await cancel_job(connection, second)
        await take_turns(connection)
        assert await list_running(connection) == [first]
        fourth = await submit(connection)
        await cancel_job(connection, first)
        await take_turns(connection)
        assert await list_running(connection) == [third]
        await cancel_job(connection, third)
        await take_turns(connection)
        assert await list_running(connection) == [fourth]
        assert await check_invariants(connection) == []


@pytest.mark.parametrize("restart", ["retry", "redrive", "clear"])
@pytest.mark.parametrize("job_count", [0, 1, 2])
async def test_restarted_job_waits_for_its_turn(context, restart: str, job_count: int):
    async with context.connection() as connection:
        first = await submit(connection)
        await end_tasks(connection, first, fail=True)
        [task] = await connection.fetch("SELECT id, status::text FROM tasks WHERE job_id = $1", first)
        assert task["status"] == "DEAD_LETTER"
        running = [await submit(connection) for _ in range(job_count)]
        if restart == "retry":
            restarted = await retry_failed_tasks(connection, first)
        elif restart == "redrive":
            restarted = await redrive_dead_letters(connection, task_ids=[task["id"]])
        else:
            restarted = await clear_tasks(connection, task["id"])
        assert restarted == {task["id"]}
        later = await submit(connection)
        for job_id in [*running, first, later]:
            await take_turns(connection)
            assert await list_running(connection) == [job_id]
            assert await check_invariants(connection) == []
            await end_tasks(connection, job_id)
        assert {status for status, _ in await list_states(connection)} == {"COMPLETED"}


async def end_in_turn(connection, job_ids: list[int]) -> None:
    """Each of the jobs, and no other one, runs and ends, in this order; then all have ended."""
    for job_id in job_ids:
        await take_turns(connection)
        assert await list_running(connection) == [job_id]
        assert await check_invariants(connection) == []
        await end_tasks(connection, job_id)
    assert await connection.fetchval("SELECT count(*) FROM jobs WHERE completed_at IS NULL") == 0


@pytest.mark.parametrize("cancel", ["none", "last", "both"])
async def test_cancelled_job_is_retried_behind_the_job_that_waited_for_it(context, cancel: str):
    async with context.connection() as connection:
        await connection.execute("SET statement_timeout = '20s'")  # a turn that waits for itself is searched for ever
        first, second, third = [await submit(connection) for _ in range(3)]
        await take_turns(connection)
        await cancel_job(connection, second)
        await retry_failed_tasks(connection, second, cancelled=True)
        order = [first, third, second]
        if cancel != "none":
            await take_turns(connection)
            await cancel_job(connection, third)
            order.remove(third)
        if cancel == "both":
            await cancel_job(connection, second)
            order.remove(second)
        await end_in_turn(connection, [*order, await submit(connection)])


async def test_jobs_that_are_retried_in_turn_do_not_wait_for_each_other(context):
    async with context.connection() as connection:
        first, second = [await submit(connection) for _ in range(2)]
        await take_turns(connection)
        await cancel_job(connection, second)
        await end_tasks(connection, first, fail=True)
        third = await submit(connection)
        await take_turns(connection)
        await retry_failed_tasks(connection, second, cancelled=True)
        await retry_failed_tasks(connection, first)
        await end_in_turn(connection, [third, second, first])


@pytest.mark.parametrize("claimed", [False, True])
async def test_turn_that_has_come_is_kept_when_the_job_before_is_retried(context, claimed: bool):
    async with context.connection() as connection:
        first, second = [await submit(connection) for _ in range(2)]
        await end_tasks(connection, first, fail=True)
        worker = await queue.register_worker(connection, hostname="h", pid=1)
        limit = 1 if claimed else 0
        claims = await queue.claim(connection, worker_id=worker.id, limit=limit, queues=[], lease_seconds=60)
        await retry_failed_tasks(connection, first)
        for claim in claims:
            wait = await run_wait_for_turn(**json.loads(claim.kwargs))
            successes = [Success(claim.lease, "null", wait=wait)]
            await queue.acknowledge(connection, worker_id=worker.id, successes=successes)
        await end_in_turn(connection, [second, first])


async def test_cleared_turn_of_a_running_job_has_come(context):
    async with context.connection() as connection:
        first, second = [await submit(connection) for _ in range(2)]
        await end_tasks(connection, first, fail=True)
        await take_turns(connection)
        await retry_failed_tasks(connection, first)
        turn = "SELECT id FROM tasks WHERE job_id = $1 AND type = 'wait_for_turn'"
        await clear_tasks(connection, await connection.fetchval(turn, second))
        await end_in_turn(connection, [second, first])


async def test_rerun_keeps_labels_call_and_policy_and_waits_for_its_turn(context):
    trigger = json.dumps({"kind": "call", "entrypoint": "m.f", "arguments": {"a": 1}})
    async with context.connection() as connection:
        first = await submit(connection)
        policy = JobPolicy(1, "queue", 3600.0)
        job = NewJob(get_snowflake_id(), "limited", policy=policy, trigger=trigger, tags='{"owner": "ada"}')
        second = await submit_job(connection, job, Plan([NewTask(get_snowflake_id(), "t")]))
        await cancel_job(connection, second)
        row = await queries.get_job(connection, second)
        third = await rerun_job(connection, row)
        copy = await queries.get_job(connection, third)
        for field in ("trigger", "tags", "policy", "concurrency"):
            assert copy[field] == row[field] is not None, field
        assert copy["due_at"] is not None
        turns = await connection.fetch(
            "SELECT kwargs ->> 'job_id' AS awaited FROM tasks WHERE job_id = $1 AND type = 'wait_for_turn'", third
        )
        assert [int(turn["awaited"]) for turn in turns] == [first]
        assert await list_running(connection) == [first]
        await cancel_job(connection, first)
        await take_turns(connection)
        fourth = await rerun_job(connection, await queries.get_job(connection, second))
        await cancel_job(connection, third)
        fifth = await submit(connection)
        await take_turns(connection)
        assert await list_running(connection) == [fourth]
        assert fifth != fourth


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(st.integers(1, 4), st.lists(st.integers(0, 11), max_size=60))
def test_no_more_jobs_run_than_allowed(concurrency: int, steps: list[int]):
    """Steps submit a job (0 to 4), end a running one, or cancel a waiting one, which its follower replaces."""
    awaited: dict[int, int | None] = {}

    def end(number: int) -> None:
        before = awaited.pop(number)
        awaited.update((job, before) for job, other in awaited.items() if other == number)

    def list_running() -> list[int]:
        return [number for number, job in awaited.items() if job is None]

    count = 0
    for step in steps:
        waiting = [number for number, job in awaited.items() if job is not None]
        if step < 5:
            count += 1
            unfinished = [
                UnfinishedJob(number, job) for number, job in sorted(awaited.items(), key=lambda item: -item[0])
            ]
            awaited[count] = choose_awaited(unfinished, concurrency)
        elif jobs := list_running() if step < 8 else waiting:
            end(jobs[step % len(jobs)])
        assert len(list_running()) <= concurrency
    while awaited:
        assert list_running(), "every job gets its turn"
        end(list_running()[-1])
        assert len(list_running()) <= concurrency
