"""Process isolation: runs a task in its own process, to protect others and to find the task that kills its process.

When a worker process dies, it is unknown which of its tasks caused it. All are released uncharged, and from then on
each runs here, alone: a task that kills its process again is charged with an attempt; the others finish. The same
happens when a process with several tasks runs out of memory, since the task that got the MemoryError need not be the
one that used the memory. `--isolation process` runs every task this way.

A child is forked from a fork server that has imported everything (see `fork_server`), within milliseconds. It runs one
task after the other; request and response are a line of JSON each. A task is stopped by killing its child, which no
code can prevent. Most suspects are innocent and short, and a child costs more than they do: a few children run them one
after the other, and more are started only when these are busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from dataclasses import dataclass, replace

import psutil
from pydantic import TypeAdapter

from aaiclick.api.worker_protocol.claims import ClickHouseAccess
from aaiclick.orchestration.gateway import WorkerGateway
from aaiclick.orchestration.worker.executor import Executor
from aaiclick.orchestration.worker.executor_factory import make_executor
from aaiclick.orchestration.worker.failure_outcomes import Outcome, make_failure, stopped_outcome
from aaiclick.orchestration.worker.fork_server import ForkServer, ForkServerLostError, run_fork_server
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.process_config import ProcessSetup, describe_exit
from aaiclick.orchestration.worker.running_task import RunningTask, make_running_task
from aaiclick.store.engine.leases_and_outcomes import CRASH_FINGERPRINT, Claim, Failure

LINE_BYTES = 1 << 30
MAX_IDLE = 2
"""Idle children that are kept for later tasks."""
IDLE_WAIT_SECONDS = 0.25
"""How long a task waits for an idle child before another one is started."""


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """What a child needs to run a task."""

    claim: Claim
    clickhouse_access: ClickHouseAccess | None
    seconds: float


_orders = TypeAdapter(TaskOrder)
_outcomes: TypeAdapter[Outcome] = TypeAdapter(Outcome)


@dataclass(eq=False)
class IsolatedChild:
    """A process that runs one task at a time."""

    pid: int
    fork_server: ForkServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def run_order(self, order: TaskOrder) -> Outcome | None:
        """Send an order and return its outcome; None if the child ended instead."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(_orders.dump_json(order) + b"\n")
            await self.writer.drain()
            line = await self.reader.readline()
            if line.endswith(b"\n"):
                return _outcomes.validate_json(line)
        return None

    async def end(self) -> int | None:
        """Kill the child; returns its exit code if it is known."""
        self.writer.close()
        with contextlib.suppress(ForkServerLostError):
            return await self.fork_server.end_child(self.pid)
        return None


class Isolation:
    """Runs tasks in child processes, one task at a time in each."""

    def __init__(
        self,
        setup: ProcessSetup,
        children: int,
        gateway: WorkerGateway,
        fork_server: ForkServer | None = None,
        *,
        at_once: int | None = None,
    ) -> None:
        """Use up to `children` processes; the first `at_once` (default: all) start without waiting for an idle one."""
        self._setup = setup
        self._at_once = children if at_once is None else at_once
        self._busy = 0
        self._freed = asyncio.Event()
        self._gateway = gateway
        self._fork_server = fork_server
        self._idle: list[IsolatedChild] = []
        self._slots = asyncio.Semaphore(children)

    async def run(self, running: RunningTask) -> Outcome | None:
        """Run a task in a child and return its outcome."""
        try:
            async with self._slots:
                self._busy += 1  # before the child starts: concurrent calls must count it
                try:
                    return await self._run_in_child(running)
                finally:
                    self._busy -= 1
                    self._freed.set()
        except asyncio.CancelledError:
            return stopped_outcome(running)  # it was waiting for a slot
        except OSError as error:
            outcome = make_failure(
                running, f"No process could be started for this task: {error}.", CRASH_FINGERPRINT, permanent=False
            )
            return replace(outcome, charged=False, outcome="LOST")

    async def _run_in_child(self, running: RunningTask) -> Outcome | None:
        child = await self._get_child()
        running.began = time.monotonic()
        try:
            remaining = running.deadline - running.began
            outcome = await child.run_order(TaskOrder(running.claim, self._gateway.export_access(), remaining))
        except asyncio.CancelledError:
            await child.end()
            return stopped_outcome(running)
        if outcome is None:
            code = await child.end()
            cause = "its fork server" if code is None else describe_exit(code)
            return make_failure(
                running, f"The process of this task ended with {cause}.", CRASH_FINGERPRINT, permanent=False
            )
        if len(self._idle) < MAX_IDLE or self._slots.locked():  # a task waits for it
            self._idle.append(child)
        else:
            await child.end()
        return outcome

    async def close(self) -> None:
        for child in self._idle:
            child.writer.close()
        self._idle.clear()
        if self._fork_server is not None:
            await self._fork_server.close()

    async def _get_child(self) -> IsolatedChild:
        child = await self._take_idle_child()
        give_up_at = time.monotonic() + IDLE_WAIT_SECONDS
        while child is None and self._busy > self._at_once and (remaining := give_up_at - time.monotonic()) > 0:
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), remaining)
            child = await self._take_idle_child()
        return child or await self._fork_child()

    async def _take_idle_child(self) -> IsolatedChild | None:
        while self._idle:
            child = self._idle.pop()
            if not child.reader.at_eof() and _is_alive(child.pid):
                return child
            await child.end()  # it was killed while idle: no task is charged
        return None

    async def _fork_child(self) -> IsolatedChild:
        fork_server = self._fork_server
        try:
            return await self._request_child()
        except ForkServerLostError:
            if fork_server is not None and fork_server is self._fork_server:  # else it was replaced meanwhile
                self._fork_server = None
                await fork_server.close()
            return await self._request_child()

    async def _request_child(self) -> IsolatedChild:
        fork_server = self._fork_server = self._fork_server or ForkServer.spawn(__name__)
        parent_end, child_end = socket.socketpair()
        try:
            pid = await fork_server.start_child(child_end)
        except BaseException:
            parent_end.close()  # a child that starts all the same finds it closed and ends
            raise
        reader, writer = await _open_streams(parent_end)
        writer.write(self._setup.to_json().encode() + b"\n")
        return IsolatedChild(pid, fork_server, reader, writer)


async def _open_streams(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    end.setblocking(False)
    return await asyncio.open_unix_connection(sock=end, limit=LINE_BYTES)


def mark_memory_suspect(outcome: Outcome | None) -> Outcome | None:
    """Turn a MemoryError into an uncharged crash: the task is retried in isolation before it is charged."""
    if isinstance(outcome, Failure) and outcome.fingerprint.startswith(f"{MemoryError.__name__}:"):
        return replace(outcome, fingerprint=CRASH_FINGERPRINT, charged=False, delay_seconds=0.0, outcome="LOST")
    return outcome


def _is_alive(pid: int) -> bool:
    """Whether a process is alive; the socket may report its end a moment later."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- the child ----------------------------------------------------------------------------------------------------


def run_isolated_child(end: socket.socket) -> None:
    """Run tasks that arrive on a socket until it is closed."""
    with captured_output():
        asyncio.run(_serve_tasks(end))


async def _serve_tasks(end: socket.socket) -> None:
    reader, writer = await _open_streams(end)
    setup = ProcessSetup.from_json((await reader.readline()).decode())
    executor = await make_executor(setup, threads=1)
    while line := await reader.readline():
        order = _orders.validate_json(line)
        executor.gateway.import_access(order.clickhouse_access)
        writer.write(_outcomes.dump_json(await _execute_claim(executor, order.claim, setup, order.seconds)) + b"\n")
        await writer.drain()


async def _execute_claim(executor: Executor, claim: Claim, setup: ProcessSetup, seconds: float) -> Outcome:
    running = make_running_task(claim, setup.log_directory, seconds, spooled=executor.gateway.sends_logs)
    running.deadline = time.monotonic() + seconds  # the parent enforces it; publishing must end before
    outcome = await executor.execute(running)
    assert outcome is not None  # noqa: S101  (only the parent knows of a lost lease)
    return outcome


if __name__ == "__main__":
    run_fork_server(socket.socket(fileno=int(sys.argv[1])), run_isolated_child)
