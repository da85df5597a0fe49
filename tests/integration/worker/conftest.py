"""A real worker: supervisor and processes, started by the command line, on this test's own databases."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil
import pytest

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import connect
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.plan import NewTask
from aaiclick.store.words import DEFAULT_ORG_ID
from tests.hatchery import HATCHERY, Hatched
from tests.integration.worker.nursery import Nursery

TASKS = """
import asyncio, ctypes, logging, os, sys, time

async def nothing(): pass
def nothing_sync(): pass
async def keep():
    from aaiclick.data import create_object_from_value
    await create_object_from_value([1], name="kept")

async def echo(word): print(word); return word
async def fail(): raise ValueError("no luck")
async def mumble(): raise ValueError(chr(0xd800))
class Speechless(Exception):
    def __str__(self): raise RuntimeError
async def choke(): raise Speechless
def speak(): print("to stdout"); print("to stderr", file=sys.stderr); logging.getLogger("t").warning("to the log")
async def block(seconds): time.sleep(seconds)
def sleep(seconds): time.sleep(seconds)
async def patient(seconds): await asyncio.sleep(seconds)
def hold_the_interpreter(seconds): ctypes.PyDLL(None).sleep(seconds)
def end_the_process(code): os._exit(code)
def kill_the_process(): os.kill(os.getpid(), 9)
def shout(megabytes): [sys.stdout.write("x" * 1_000_000) for _ in range(megabytes)]
def strange(): return object()
def leave(): sys.exit(3)
async def wait_for(path):
    while not os.path.exists(path): await asyncio.sleep(0.02)
async def take(path):
    await wait_for(path)
    os.unlink(path)
async def blab():
    from aaiclick.data import create_object_from_value, get_data_context
    await create_object_from_value([1])
    known = [os.environ.get(name, "") for name in ("AAICLICK_DATABASE_URL", "AAICLICK_API_KEY")]
    raise RuntimeError("connecting to " + get_data_context().target.url + "".join(known))
async def reveal(name):
    from aaiclick.orchestration import get_secret
    value = await get_secret(name)
    print("printed", value)
    logging.getLogger("t").warning("logged %s", value)
    raise RuntimeError(f"raised {value} of {len(value)}")
async def peek(table):
    from aaiclick.data import open_reference
    return await (await open_reference({"object_type": "object", "table_id": table})).data()
async def gather(path, seconds=0.0):
    with open(path, "a") as file: file.write("ran\\n")
    await asyncio.sleep(seconds)
"""


class Worker:
    """One `aaiclick worker start`."""

    def __init__(self, process: Hatched | subprocess.Popen[str]) -> None:
        self.process = process

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def wait(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()


class Bench:
    """This test's database, a directory of tasks, and workers on them."""

    def __init__(self, target, directory: Path, environment: dict[str, str]) -> None:
        self.target = target
        self.directory = directory
        self.environment = environment
        self.workers: list[Worker] = []

    def start(self, *options: str, forked: bool = True, **variables: str) -> Worker:
        arguments = ["worker", "start", "--processes", "1", "--grace-seconds", "0.5", *options]
        how = {"env": self.environment | variables, "cwd": self.directory, "stderr": subprocess.PIPE}
        if forked:
            process = HATCHERY.start(arguments, **how)
        else:
            process = subprocess.Popen([sys.executable, "-m", "aaiclick", *arguments], text=True, **how)
        assert process.stderr is not None
        assert "Worker of" in process.stderr.readline()
        self.workers.append(Worker(process))
        return self.workers[-1]

    def drain(self, *options: str) -> None:
        assert self.start("--drain", *options).wait() == 0

    async def enqueue(self, function: str, kwargs: str = "{}", **options) -> int:
        return (await self.enqueue_many(1, function, kwargs, **options))[0]

    async def enqueue_many(
        self, count: int, function: str, kwargs: str = "{}", org_id=DEFAULT_ORG_ID, **options
    ) -> list[int]:
        name = f"users_tasks.{function}"
        made = [
            NewTask(id=get_snowflake_id(), type=name, entrypoint=name, kwargs=kwargs, **options) for _ in range(count)
        ]
        connection = await connect(self.target)
        try:
            return await enqueue_tasks(connection, made, org_id)
        finally:
            await connection.close()

    async def task(self, task_id: int) -> asyncpg.Record:
        return (await self.rows("SELECT * FROM tasks WHERE id = $1", task_id))[0]

    async def rows(self, statement: str, *arguments) -> list[asyncpg.Record]:
        connection = await connect(self.target)
        try:
            return await connection.fetch(statement, *arguments)
        finally:
            await connection.close()

    async def until(
        self, task_id: int, wanted: Callable[[asyncpg.Record], bool], seconds: float = 100
    ) -> asyncpg.Record:
        """Look until a task is as wanted."""
        return (await self.until_all([task_id], wanted, seconds))[0]

    async def until_all(
        self, ids: list[int], wanted: Callable[[asyncpg.Record], bool], seconds: float = 100
    ) -> list[asyncpg.Record]:
        """Look until all of these tasks are as wanted at once."""
        connection = await connect(self.target)
        question = "SELECT * FROM tasks WHERE id = ANY ($1::bigint[])"
        try:
            async with asyncio.timeout(seconds):
                while not all(map(wanted, rows := await connection.fetch(question, ids))):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                return rows
        finally:
            await connection.close()

    async def all_completed(self, ids: list[int], seconds: float = 100) -> None:
        """And nobody was charged a failure."""
        rows = await self.until_all(ids, lambda row: row["status"] == "COMPLETED", seconds)
        assert {row["failures"] for row in rows} == {0}


@pytest.fixture
def bench(way, aaiclick_postgres, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    made = Bench(aaiclick_postgres, tmp_path, way.environment)
    yield made
    for worker in made.workers:
        if worker.process.poll() is None:
            for child in [*psutil.Process(worker.process.pid).children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            worker.process.kill()
            worker.process.wait()
        assert worker.process.stderr is not None
        worker.process.stderr.close()


@pytest.fixture(scope="session")
def nursery():
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def ward(nursery, way, aaiclick_postgres, aaiclick_clickhouse, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    return nursery.at(way, aaiclick_postgres, aaiclick_clickhouse, tmp_path)
