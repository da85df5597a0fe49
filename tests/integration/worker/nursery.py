"""Worker processes by the dozen: one process that has imported everything and forks a real one whenever it is asked.

Starting Python and importing takes seconds on a busy machine, forking milliseconds. What is forked is
`aaiclick.orchestration.worker.main`, with its orders on standard input, exactly as a supervisor starts it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aaiclick.orchestration.worker.orders import FINISHED, Duty, Setup
from aaiclick.store.engine import connect
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.store.workers import register_worker
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from tests.integration.transports import Way

ALIVE = 1000


class Nursery:
    """The test's side: start, hang up on, and wait for processes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def at(self, way: Way, postgres: PostgresTarget, clickhouse: ClickHouseTarget, directory: Path) -> Ward:
        """Processes for one test's databases and tasks."""
        return Ward(self, way, postgres, clickhouse, directory)

    async def ask(self, what: str, **details: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": what} | details) + "\n")
        self._process.stdin.flush()
        return int(await asyncio.to_thread(self._process.stdout.readline))

    def close(self) -> None:
        """Everything it forked ends with it."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(30)


class Ward:
    """The processes of one test."""

    def __init__(
        self, nursery: Nursery, way: Way, postgres: PostgresTarget, clickhouse: ClickHouseTarget, directory: Path
    ) -> None:
        self._nursery = nursery
        self._target = postgres
        self._directory = directory
        self._org_id = None if way.work is postgres else DEFAULT_ORG_ID
        known = clickhouse if way.work is postgres else None
        self._setup = Setup(
            way.work, known, directory / "logs", imports=("users_tasks",), directory=str(directory), sends_logs=False
        )
        self._duty = Duty(0, (), 8, 60.0, 3600.0, 5.0, directory / "logs")
        self.worker_ids: dict[int, int] = {}
        """Of each process, by its pid."""

    async def start(self, faults: str = "", **duty: Any) -> int:
        """A process with a worker row of its own; returns its pid."""
        connection = await connect(self._target)
        worker = await register_worker(
            connection,
            hostname="nursery",
            pid=os.getpid(),
            org_id=self._org_id,
            log_directory=self._duty.log_directory,
        )
        await connection.close()
        order = {"setup": self._setup.to_json(), "duty": replace(self._duty, worker_id=worker.id, **duty).to_json()}
        pid = await self._nursery.ask("start", order=json.dumps(order), faults=faults, marks=str(self._directory))
        self.worker_ids[pid] = worker.id
        return pid

    def reach_work_by(self, way: Way) -> None:
        """From now on processes are given this way."""
        self._setup = replace(self._setup, work=way.work)

    async def hang_up(self, pid: int) -> None:
        """What happens when its supervisor dies."""
        await self._nursery.ask("hang_up", pid=pid)

    async def wait(self, pid: int, seconds: float = 60) -> int:
        """Its exit code; minus the signal that ended it."""
        async with asyncio.timeout(seconds):
            while (code := await self._nursery.ask("look", pid=pid)) == ALIVE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return code

    async def end(self, pid: int) -> None:
        await self.hang_up(pid)
        assert await self.wait(pid) == FINISHED


def _fork(order: dict[str, Any], inputs: dict[int, int]) -> int:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        inputs[pid] = writing
        os.write(writing, order["order"].encode() + b"\n")
        return pid
    from aaiclick import faults
    from aaiclick.orchestration.worker import main

    for other in (writing, *inputs.values()):
        os.close(other)
    os.dup2(reading, 0)
    os.dup2(2, 1)
    sys.stdin = os.fdopen(0)
    faults.arm(order["faults"], order["marks"])
    main.main()
    return 0


def _serve() -> None:
    import gc
    import signal

    import aaiclick.orchestration.transport.remote
    import aaiclick.orchestration.worker.main  # noqa: F401

    gc.freeze()  # looking through what was imported would copy it
    inputs: dict[int, int] = {}
    alive: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        answer = 0
        if order["op"] == "start":
            answer = _fork(order, inputs)
            alive.add(answer)
        elif order["op"] == "hang_up":
            os.close(inputs.pop(order["pid"]))
        else:
            pid, status = os.waitpid(order["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else ALIVE
            alive.discard(pid)
            if pid in inputs:
                os.close(inputs.pop(pid))
        print(answer, flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
