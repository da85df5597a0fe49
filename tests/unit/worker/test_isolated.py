"""A task alone in a process: who is to blame when that ends, and who is not."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from uuid import uuid4

import psutil

from aaiclick.orchestration.transport import make_transport
from aaiclick.orchestration.worker import isolated
from aaiclick.orchestration.worker.executor import make_running
from aaiclick.orchestration.worker.isolated import Isolation
from aaiclick.orchestration.worker.orders import Setup
from aaiclick.store.leases import Claim, Failure, Lease, Success
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import ClickHouseTarget, PostgresTarget

ME = "tests.unit.worker.test_isolated"
NOWHERE = PostgresTarget("127.0.0.1", 1, "nobody", "nothing"), ClickHouseTarget("127.0.0.1", 1, "nobody", "nothing")


def tell(path):
    Path(path).write_text(f"{os.getpid()} {os.getppid()}")


def meet(path, number, wanted):
    """Until that many are here at once."""
    (Path(path) / str(number)).write_text(str(os.getpid()))
    while len(list(Path(path).iterdir())) < wanted:
        time.sleep(0.01)


def leave():
    os._exit(5)


async def run(isolation, directory, function, **arguments):
    lease = Lease(1, 1, uuid4())
    name = f"{ME}.{function}"
    claim = Claim(lease, DEFAULT_ORG_ID, None, None, name, name, json.dumps(arguments), None, 0, None, suspect=True)
    return await isolation.run(make_running(claim, directory, 60))


async def test_suspects_share_a_few_children_unless_these_are_held_up(tmp_path, monkeypatch):
    setup = Setup(*NOWHERE, tmp_path, allowed_modules=("tests",), directory=str(Path(__file__).parents[3]))
    isolation = Isolation(setup, 8, make_transport(*NOWHERE), at_once=2)

    async def met(directory, tasks, wanted):
        directory.mkdir()
        every = (run(isolation, tmp_path, "meet", path=str(directory), number=n, wanted=wanted) for n in range(tasks))
        assert all(isinstance(outcome, Success) for outcome in await asyncio.gather(*every))
        return {each.read_text() for each in directory.iterdir()}

    monkeypatch.setattr(isolated, "SOON_SECONDS", 60.0)
    assert len(await met(tmp_path / "short", 10, wanted=1)) <= 2
    monkeypatch.setattr(isolated, "SOON_SECONDS", 0.05)
    assert len(await met(tmp_path / "long", 5, wanted=5)) == 5
    await isolation.close()


async def test_only_a_task_that_ends_its_process_is_blamed(tmp_path):
    setup = Setup(*NOWHERE, tmp_path, allowed_modules=("tests",), directory=str(Path(__file__).parents[3]))
    isolation = Isolation(setup, 2, make_transport(*NOWHERE))
    told = tmp_path / "told"

    async def asked():
        assert isinstance(await run(isolation, tmp_path, "tell", path=str(told)), Success)
        return [int(word) for word in told.read_text().split()]

    child, template = await asked()
    assert await asked() == [child, template], "it is kept for the next"
    os.kill(child, signal.SIGKILL)
    while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    second, same = await asked()
    assert (second != child, same) == (True, template), "one that was killed while idle is replaced"
    outcome = await run(isolation, tmp_path, "leave")
    assert isinstance(outcome, Failure)
    assert outcome.charged
    assert "The process of this task ended with exit code 5." in outcome.error
    psutil.Process(template).kill()
    child, other = await asked()
    assert other != template, "and so is the template"
    await isolation.close()
    assert not psutil.pid_exists(other)
    assert not psutil.pid_exists(child)
