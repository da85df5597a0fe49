"""Workers started by the CLI, with the databases of the test."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions
from tests.fork_server import FORK_SERVER, ForkedProcess
from tests.integration.worker.worker_fork_server import WorkerForkServer

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
    raise RuntimeError("connecting to " + get_data_context().endpoint.url + "".join(known))
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
    """A running `aaiclick worker start`."""

    def __init__(self, process: ForkedProcess | subprocess.Popen[str]) -> None:
        self.process = process

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def wait(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()


class WorkerEnvironment:
    """Database, directory with tasks, and workers of a test."""

    def __init__(self, endpoint, directory: Path, environment: dict[str, str], stack: Any = None) -> None:
        """With the stack of the run, tests use its kept connection instead of new ones."""
        self._stack = stack
        self.endpoint = endpoint
        self.directory = directory
        self.environment = environment
        self.workers: list[Worker] = []

    def start(self, *options: str, forked: bool = True, **variables: str) -> Worker:
        arguments = ["worker", "start", "--processes", "1", "--grace-seconds", "0.5", *options]
        how = {"env": self.environment | variables, "cwd": self.directory, "stderr": subprocess.PIPE}
        if forked:
            process = FORK_SERVER.start(arguments, **how)
        else:
            process = subprocess.Popen([sys.executable, "-m", "aaiclick", *arguments], text=True, **how)
        assert process.stderr is not None
        assert "Worker started" in process.stderr.readline()
        self.workers.append(Worker(process))
        return self.workers[-1]

    def drain(self, *options: str, **variables: str) -> None:
        assert self.start("--drain", *options, **variables).wait() == 0

    async def enqueue(self, function: str, kwargs: str = "{}", **options) -> int:
        return (await self.enqueue_many(1, function, kwargs, **options))[0]

    async def enqueue_many(
        self, count: int, function: str, kwargs: str = "{}", org_id=DEFAULT_ORG_ID, **options
    ) -> list[int]:
        name = f"users_tasks.{function}"
        tasks = [NewTask(get_snowflake_id(), name, name, kwargs, options=TaskOptions(**options)) for _ in range(count)]
        return await self._use_connection(lambda connection: enqueue_tasks(connection, tasks, org_id))

    async def task(self, task_id: int) -> asyncpg.Record:
        return (await self.rows("SELECT tasks.*, tasks.log_path FROM tasks WHERE id = $1", task_id))[0]

    async def rows(self, statement: str, *arguments) -> list[asyncpg.Record]:
        return await self._use_connection(lambda connection: connection.fetch(statement, *arguments))

    async def _use_connection(self, work: Callable[..., Awaitable[Any]]) -> Any:
        if self._stack is None:
            connection = await connect(self.endpoint)
            try:
                return await work(connection)
            finally:
                await connection.close()
        return await asyncio.wrap_future(self._stack.start(self._stack.use_connection(self.endpoint.database, work)))

    async def wait_until(
        self, task_id: int, condition: Callable[[asyncpg.Record], bool], seconds: float = 100
    ) -> asyncpg.Record:
        """Wait until a condition holds for a task."""
        return (await self.wait_until_all([task_id], condition, seconds))[0]

    async def wait_until_all(
        self, ids: list[int], condition: Callable[[asyncpg.Record], bool], seconds: float = 100
    ) -> list[asyncpg.Record]:
        """Wait until a condition holds for all tasks at once."""
        question = "SELECT tasks.*, tasks.log_path FROM tasks WHERE id = ANY ($1::bigint[])"
        async with asyncio.timeout(seconds):
            while not all(map(condition, rows := await self.rows(question, ids))):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            return rows

    async def assert_all_completed(self, ids: list[int], seconds: float = 100) -> None:
        """Wait until all tasks have completed, and check that none was charged."""
        rows = await self.wait_until_all(ids, lambda row: row["status"] == "COMPLETED", seconds)
        assert {row["failures"] for row in rows} == {0}


@pytest.fixture
def worker_env(gateway, aaiclick_stack, aaiclick_postgres, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    env = WorkerEnvironment(aaiclick_postgres, tmp_path, gateway.environment, aaiclick_stack)
    yield env
    for worker in env.workers:
        if worker.process.poll() is None:
            for child in [*psutil.Process(worker.process.pid).children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            worker.process.kill()
            worker.process.wait()
        assert worker.process.stderr is not None
        worker.process.stderr.close()


@pytest.fixture
async def proxy(gateway) -> AsyncIterator[TcpProxy]:
    """A proxy for the server of the gateway; closed also after a failure, since an open one fails a later test."""
    proxy = TcpProxy(gateway.upstream)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture(scope="session")
def worker_fork_server():
    fork_server = WorkerForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def worker_processes(worker_fork_server, gateway, aaiclick_postgres, aaiclick_clickhouse, tmp_path):
    (tmp_path / "users_tasks.py").write_text(textwrap.dedent(TASKS))
    return worker_fork_server.at(gateway, aaiclick_postgres, aaiclick_clickhouse, tmp_path)
