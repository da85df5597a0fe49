"""Limits of jobs of one name: the policies, submits at the same time, and the order of turns."""

from __future__ import annotations

import asyncio

import hypothesis
import pytest
from hypothesis import strategies as st

from aaiclick.orchestration import OrchContext, run_job_test
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.cancel import cancel_job
from aaiclick.store.engine.job_concurrency import choose_awaited
from aaiclick.store.engine.new_jobs import NewJob
from aaiclick.store.engine.plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import submit_job
from tests.integration.engine.limited_jobs import newest, patient


@pytest.fixture
async def context(aaiclick_env):
    async with OrchContext() as context:
        yield context


async def submit(connection, when_busy: str = "queue", concurrency: int = 1, **fields) -> int:
    job = NewJob(get_snowflake_id(), "limited", concurrency=concurrency, when_busy=when_busy, **fields)
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
        job = NewJob(get_snowflake_id(), "limited", concurrency=1)
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
    assert newest.concurrency == 2


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(st.integers(1, 4), st.lists(st.integers(0, 9), max_size=40))
def test_no_more_jobs_run_than_allowed(concurrency: int, steps: list[int]):
    """Steps submit a job (0 to 5) or end a running one; a job runs when the one that it waits for has ended."""
    awaited: dict[int, int | None] = {}
    unfinished: list[int] = []

    def list_running() -> list[int]:
        return [job for job in unfinished if awaited[job] is None or awaited[job] not in unfinished]

    for number, step in enumerate(steps):
        running = list_running()
        if step <= 5 or not running:
            awaited[number] = choose_awaited(unfinished, concurrency)
            unfinished.append(number)
        else:
            unfinished.remove(running[step % len(running)])
        assert len(list_running()) <= concurrency
    while unfinished:
        assert list_running(), "every job gets its turn"
        unfinished.remove(list_running()[-1])
