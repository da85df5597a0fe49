"""WorkerProcess: stopping, rejected outcomes, and the claim limit."""

import asyncio
import contextlib
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import asyncpg

from aaiclick.orchestration.worker.process_config import WorkerConfig
from aaiclick.orchestration.worker.worker_process import InFlightExchange, WorkerProcess
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, Success

EXECUTOR = Mock(batches=Mock(batched_items=0))


async def test_task_stopped_before_its_first_step_is_released(tmp_path):
    lease = Lease(1, 1, uuid4())
    claim = Claim(lease, uuid4(), None, None, "x", "m.x", "{}", None, 0, None)
    process = WorkerProcess(WorkerConfig(1, (), 1, 60.0, 60.0, 5.0, tmp_path), Mock(), EXECUTOR, Mock())
    process._accept_claims(InFlightExchange(0.0, [], 1, 0), [claim])
    process.stop()
    process.release_all()
    await asyncio.sleep(0)
    assert process._outcomes == [lease]
    assert not process._running


async def test_rejected_outcome_becomes_a_failure_and_blocks_no_other(tmp_path):
    acknowledged: list[object] = []
    connection, gateway = AsyncMock(), AsyncMock()
    connection.response_deadline = Mock(side_effect=lambda _: contextlib.nullcontext())
    connection.seconds_to_next_due.return_value = None
    gateway.connect.return_value = connection
    good, bad, release = (Lease(n, 1, uuid4()) for n in range(3))

    async def acknowledge_and_claim(*, successes, failures, releases, **_):
        if any(outcome.result == "unstorable" for outcome in successes):
            raise asyncpg.DataError("no such character")
        acknowledged.extend([*successes, *failures, *releases])
        return {outcome.lease.task_id for outcome in (*successes, *failures)}

    connection.acknowledge_and_claim = acknowledge_and_claim
    process = WorkerProcess(WorkerConfig(1, (), 1, 60.0, 60.0, 5.0, tmp_path), gateway, EXECUTOR, Mock())
    process._outcomes = [Success(good, "1"), Success(bad, "unstorable"), release]
    process.stop()
    await process.run()
    assert [getattr(outcome, "lease", outcome) for outcome in acknowledged] == [good, bad, release]
    assert isinstance(acknowledged[1], Failure)
    assert (acknowledged[1].error, acknowledged[1].charged) == ("The outcome cannot be stored: no such character", True)


async def test_two_pumps_claim_no_more_than_the_limit(tmp_path):
    limits, answers = [], asyncio.Event()
    connection, gateway = AsyncMock(), AsyncMock()
    connection.response_deadline = Mock(side_effect=lambda _: contextlib.nullcontext())
    gateway.connect.return_value = connection

    async def acknowledge_and_claim(*, limit, on_claimed, **_):
        limits.append(limit)
        await answers.wait()
        on_claimed([])
        return set()

    connection.acknowledge_and_claim = acknowledge_and_claim
    process = WorkerProcess(WorkerConfig(1, (), 16, 60.0, 60.0, 5.0, tmp_path, max_tasks=10), gateway, EXECUTOR, Mock())
    running = asyncio.create_task(process.run())
    for _ in range(100):
        await asyncio.sleep(0)
    assert limits == [10]
    process.stop()
    answers.set()
    await running
