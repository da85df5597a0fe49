"""What a worker process does with the tasks it holds, step by step of its loop."""

import asyncio
import contextlib
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import asyncpg

from aaiclick.orchestration.worker.orders import Duty
from aaiclick.orchestration.worker.process import WorkerProcess
from aaiclick.store.leases import Claim, Failure, Lease, Success


async def test_a_task_that_is_ended_before_its_first_step_is_given_back(tmp_path):
    lease = Lease(1, 1, uuid4())
    claim = Claim(lease, uuid4(), None, None, "x", "m.x", "{}", None, 0, None)
    process = WorkerProcess(Duty(1, (), 1, 60.0, 60.0, 5.0, tmp_path), Mock(), Mock(), Mock())
    process._take([claim], 1)
    process.stop()
    process.release_all()
    await asyncio.sleep(0)
    assert process._outcomes == [lease]
    assert not process._running


async def test_an_outcome_that_cannot_be_kept_is_a_failure_and_holds_up_no_other(tmp_path):
    said: list[object] = []
    line, transport = AsyncMock(), AsyncMock()
    line.answering_within = Mock(side_effect=lambda _: contextlib.nullcontext())
    line.next_due.return_value = None
    transport.open.return_value = line
    good, bad, release = (Lease(n, 1, uuid4()) for n in range(3))

    async def exchange(*, successes, failures, releases, **_):
        if any(each.result == "unspeakable" for each in successes):
            raise asyncpg.DataError("no such character")
        said.extend([*successes, *failures, *releases])
        return {each.lease.task_id for each in (*successes, *failures)}, []

    line.exchange = exchange
    process = WorkerProcess(Duty(1, (), 1, 60.0, 60.0, 5.0, tmp_path), transport, Mock(), Mock())
    process._outcomes = [Success(good, "1"), Success(bad, "unspeakable"), release]
    process.stop()
    await process.run()
    assert [getattr(each, "lease", each) for each in said] == [good, bad, release]
    assert isinstance(said[1], Failure)
    assert (said[1].error, said[1].charged) == ("What came of it cannot be kept: no such character", True)


async def test_two_pumps_that_begin_together_claim_no_more_than_was_asked_for(tmp_path):
    asked, answers = [], asyncio.Event()
    line, transport = AsyncMock(), AsyncMock()
    line.answering_within = Mock(side_effect=lambda _: contextlib.nullcontext())
    transport.open.return_value = line

    async def exchange(*, limit, **_):
        asked.append(limit)
        await answers.wait()
        return set(), []

    line.exchange = exchange
    process = WorkerProcess(Duty(1, (), 16, 60.0, 60.0, 5.0, tmp_path, max_tasks=10), transport, Mock(), Mock())
    running = asyncio.create_task(process.run())
    for _ in range(100):
        await asyncio.sleep(0)
    assert asked == [10]
    process.stop()
    answers.set()
    await running
