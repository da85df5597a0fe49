"""Fork server for worker processes in tests: a process that has imported everything and forks them.

Starting Python and importing takes seconds on a busy machine, forking milliseconds. A forked process runs
`aaiclick.orchestration.worker.main` with its configuration on standard input, as started by a supervisor.
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

from aaiclick.orchestration.worker.process_config import EXIT_FINISHED, ProcessSetup, WorkerConfig
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.engine.workers import register_worker
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect

if TYPE_CHECKING:
    from tests.integration.gateways import GatewayEndpoint

ALIVE = 1000


class WorkerForkServer:
    """Client of the fork server: starts, closes and waits for processes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def at(
        self, gateway: GatewayEndpoint, postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint, directory: Path
    ) -> WorkerProcesses:
        """Processes with the databases and tasks of one test."""
        return WorkerProcesses(self, gateway, postgres, clickhouse, directory)

    async def request(self, what: str, **details: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": what} | details) + "\n")
        self._process.stdin.flush()
        return int(await asyncio.to_thread(self._process.stdout.readline))

    def close(self) -> None:
        """End the fork server and all its processes."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(30)


class WorkerProcesses:
    """The processes of one test."""

    def __init__(
        self,
        worker_fork_server: WorkerForkServer,
        gateway: GatewayEndpoint,
        postgres: PostgresEndpoint,
        clickhouse: ClickHouseEndpoint,
        directory: Path,
    ) -> None:
        self._fork_server = worker_fork_server
        self._endpoint = postgres
        self._directory = directory
        self._org_id = None if gateway.work is postgres else DEFAULT_ORG_ID
        clickhouse_endpoint = clickhouse if gateway.work is postgres else None
        self._setup = ProcessSetup(
            gateway.work,
            clickhouse_endpoint,
            directory / "logs",
            imports=("users_tasks",),
            directory=str(directory),
            sends_logs=False,
        )
        self._config = WorkerConfig(0, (), 8, 60.0, 3600.0, 5.0, directory / "logs")
        self.worker_ids: dict[int, int] = {}
        """Of each process, by its pid."""

    async def start(self, faults: str = "", **options: Any) -> int:
        """Start a worker process and register its worker; returns its pid."""
        connection = await connect(self._endpoint)
        worker = await register_worker(
            connection,
            hostname="fork-server",
            pid=os.getpid(),
            org_id=self._org_id,
            log_directory=self._config.log_directory,
        )
        await connection.close()
        order = {
            "setup": self._setup.to_json(),
            "config": replace(self._config, worker_id=worker.id, **options).to_json(),
        }
        pid = await self._fork_server.request(
            "start", order=json.dumps(order), faults=faults, marks=str(self._directory)
        )
        self.worker_ids[pid] = worker.id
        return pid

    def reach_work_by(self, gateway: GatewayEndpoint) -> None:
        """Use another gateway for later processes."""
        self._setup = replace(self._setup, work=gateway.work)

    async def hang_up(self, pid: int) -> None:
        """Close its standard input, as the death of its supervisor does."""
        await self._fork_server.request("hang_up", pid=pid)

    async def wait(self, pid: int, seconds: float = 60) -> int:
        """Wait for its exit code, or the negative signal number."""
        async with asyncio.timeout(seconds):
            while (code := await self._fork_server.request("look", pid=pid)) == ALIVE:  # noqa: ASYNC110
                await asyncio.sleep(0.03)
        return code

    async def end(self, pid: int) -> None:
        await self.hang_up(pid)
        assert await self.wait(pid) == EXIT_FINISHED


def _fork(order: dict[str, Any], inputs: dict[int, int]) -> int:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        inputs[pid] = writing
        os.write(writing, order["order"].encode() + b"\n")
        return pid
    from aaiclick import failpoints
    from aaiclick.orchestration.worker import main

    for other in (writing, *inputs.values()):
        os.close(other)
    os.dup2(reading, 0)
    os.dup2(2, 1)
    sys.stdin = os.fdopen(0)
    failpoints.arm_faults(order["faults"], order["marks"])
    main.main()
    return 0


def _serve() -> None:
    import gc
    import signal

    import aaiclick.orchestration.gateway.http
    import aaiclick.orchestration.worker.main  # noqa: F401

    gc.freeze()  # a collection would copy the imported modules
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
