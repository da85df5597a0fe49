"""What a worker process does with the tasks it holds, step by step of its loop."""

import asyncio
from unittest.mock import Mock
from uuid import uuid4

from aaiclick.orchestration.worker.orders import Duty
from aaiclick.orchestration.worker.process import WorkerProcess
from aaiclick.store.leases import Claim, Lease


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
