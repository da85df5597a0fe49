"""Isolation: tasks in their own processes, and which of them is charged for a crash."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from uuid import uuid4

import psutil

from aaiclick.orchestration.gateway import make_gateway
from aaiclick.orchestration.worker import isolation as isolated
from aaiclick.orchestration.worker.isolation import Isolation
from aaiclick.orchestration.worker.process_config import ProcessSetup
from aaiclick.orchestration.worker.running_task import make_running_task
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, Success
from aaiclick.store.enums import DEFAULT_ORG_ID

ME = "tests.unit.worker.test_isolation"
NOWHERE = PostgresEndpoint("127.0.0.1", 1, "nobody", "nothing"), ClickHouseEndpoint("127.0.0.1", 1, "nobody", "nothing")


def tell(path):
    Path(path).write_text(f"{os.getpid()} {os.getppid()}")


def meet(path, number, count):
    """Wait until `count` tasks run at once."""
    (Path(path) / str(number)).write_text(str(os.getpid()))
    while len(list(Path(path).iterdir())) < count:
        time.sleep(0.01)


def leave():
    os._exit(5)


async def run(isolation, directory, function, **arguments):
    lease = Lease(1, 1, uuid4())
    name = f"{ME}.{function}"
    claim = Claim(lease, DEFAULT_ORG_ID, None, None, name, name, json.dumps(arguments), None, 0, None, suspect=True)
    return await isolation.run(make_running_task(claim, directory, 60))


async def test_suspects_share_children_unless_these_are_busy(tmp_path, monkeypatch):
    setup = ProcessSetup(*NOWHERE, tmp_path, allowed_modules=("tests",), directory=str(Path(__file__).parents[3]))
    isolation = Isolation(setup, 8, make_gateway(*NOWHERE), at_once=2)

    async def met(directory, tasks, count):
        directory.mkdir()
        every = (run(isolation, tmp_path, "meet", path=str(directory), number=n, count=count) for n in range(tasks))
        assert all(isinstance(outcome, Success) for outcome in await asyncio.gather(*every))
        return {file.read_text() for file in directory.iterdir()}

    monkeypatch.setattr(isolated, "IDLE_WAIT_SECONDS", 60.0)
    assert len(await met(tmp_path / "short", 10, count=1)) <= 2
    monkeypatch.setattr(isolated, "IDLE_WAIT_SECONDS", 0.05)
    assert len(await met(tmp_path / "long", 5, count=5)) == 5
    await isolation.close()


async def test_only_a_task_that_ends_its_process_is_charged(tmp_path):
    setup = ProcessSetup(*NOWHERE, tmp_path, allowed_modules=("tests",), directory=str(Path(__file__).parents[3]))
    isolation = Isolation(setup, 2, make_gateway(*NOWHERE))
    pid_file = tmp_path / "told"

    async def child_and_server():
        assert isinstance(await run(isolation, tmp_path, "tell", path=str(pid_file)), Success)
        return [int(word) for word in pid_file.read_text().split()]

    child, fork_server = await child_and_server()
    assert await child_and_server() == [child, fork_server], "the child is reused"
    os.kill(child, signal.SIGKILL)
    while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    second, same = await child_and_server()
    assert (second != child, same) == (True, fork_server), "a child that was killed while idle is replaced"
    outcome = await run(isolation, tmp_path, "leave")
    assert isinstance(outcome, Failure)
    assert outcome.charged
    assert "The process of this task ended with exit code 5." in outcome.error
    psutil.Process(fork_server).kill()
    child, other = await child_and_server()
    assert other != fork_server, "a killed fork server is replaced"
    await isolation.close()
    assert not psutil.pid_exists(other)
    assert not psutil.pid_exists(child)
