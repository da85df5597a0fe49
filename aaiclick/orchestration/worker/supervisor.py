"""Supervisor of a worker: starts worker processes, renews their leases, and kills processes that do not stop.

It runs no code of tasks, so a task cannot block it: neither by a loop that never yields, nor by an extension that holds
the GIL, nor by using up the memory of its process. That is why it sends heartbeats and enforces time limits.

- *Heartbeat.* The leases of all live processes are renewed together. The exit of a process is noticed at once; its
  tasks are released, marked as suspects, and run in isolation from then on (see `isolation`).
- *Time limits and cancellations.* A process stops its tasks itself if it can. A process that holds a task
  `grace_seconds` after its deadline is killed; that task is charged, the other tasks of the process are not.
- *Loops.* Expired leases, due retries, dead workers, job timeouts, schedules: each supervisor stands for election as
  leader (see `loops`). Events of datasets are routed by every supervisor.
- *Stop.* At SIGTERM or SIGINT processes stop claiming and finish their tasks; after `stop_seconds` (or at a second
  signal) running tasks are released, and processes that still do not exit are killed. No process is left behind, also
  during an outage of the queue; the supervisor waits for the queue as long as it has processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import signal
import socket
import time
from asyncio.subprocess import Process
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aaiclick._version import __version__
from aaiclick.code_version import CodeVersion, read_code_version
from aaiclick.errors import EntrypointError, UnreachableError
from aaiclick.orchestration.background_coroutines import run_forever, wait_for_any
from aaiclick.orchestration.gateway import GatewayConnection, make_gateway
from aaiclick.orchestration.gateway.base import Registration
from aaiclick.orchestration.loops import event_router, log_retention
from aaiclick.orchestration.loops.leader import TERM_SECONDS
from aaiclick.orchestration.worker.code_watcher import CodeWatcher
from aaiclick.orchestration.worker.log_shipping import SHIP_SECONDS, LogShipper
from aaiclick.orchestration.worker.process_config import (
    EXIT_FINISHED,
    EXIT_MISCONFIGURED,
    ProcessSetup,
    WorkerConfig,
    describe_exit,
)
from aaiclick.orchestration.worker.process_starter import ProcessStarter
from aaiclick.orchestration.worker.retrying_connection import RETRY_SECONDS, OutageTracker, RetryingConnection
from aaiclick.server_addresses import PostgresEndpoint, RuntimeEndpoint
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import worker_leases
from aaiclick.store.engine.notification_deliveries import has_undelivered

if TYPE_CHECKING:
    from aaiclick.orchestration.loops.notification_sender import NotificationSender

LOOPS_PER_TERM = 3
LOOP_SECONDS = TERM_SECONDS / LOOPS_PER_TERM
LOOPS_PER_LEASE = 10
RESTART_SECONDS = (0.0, 0.5, 2.0, 5.0)
STABLE_SECONDS = 5.0
"""A process that ran this long can work; one that exits sooner is restarted with a delay."""
SEND_SECONDS = 0.5
"""Interval of the notification sender."""
LOOP_TIMEOUT_SECONDS = 30.0
"""Response timeout of loops: their batches take long, and no lease depends on them."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SupervisorConfig:
    """Options of `aaiclick worker start`."""

    processes: int
    worker: WorkerConfig
    setup: ProcessSetup
    heartbeat_seconds: float
    stop_seconds: float
    runtimes: tuple[RuntimeEndpoint, ...] = ()
    """External runtimes that this supervisor dispatches tasks to."""
    resend_seconds: float = 60.0


@dataclass
class WorkerChild:
    """A worker process and the id of its row in `workers`."""

    worker_id: int
    process: Process
    code: CodeVersion
    started: float = field(default_factory=time.monotonic)
    overdue: list[worker_leases.OverdueTask] = field(default_factory=list)
    drained: bool = False


class Supervisor:
    """Runs a number of worker processes until it is stopped."""

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._children: dict[int, WorkerChild] = {}
        self._stopping = asyncio.Event()
        self._gateway = make_gateway(config.setup.work, config.setup.clickhouse, sends_logs=config.setup.sends_logs)
        self._shipper = LogShipper(config.setup.log_directory)
        self._outage = OutageTracker()
        lease_seconds = config.worker.lease_seconds
        loop_timeout = max(lease_seconds, LOOP_TIMEOUT_SECONDS)
        (
            self._registrations,
            self._leases,
            self._limits,
            self._loops,
            self._events,
            self._messages,
            self._runtimes,
            self._logs,
        ) = (
            RetryingConnection(self._gateway, self._outage, self._children, seconds)
            for seconds in (
                lease_seconds,
                lease_seconds / 3,
                lease_seconds,
                loop_timeout,
                loop_timeout,
                loop_timeout,
                loop_timeout,
                loop_timeout,
            )
        )
        self._event_notifier = event_router.EventNotifier()
        self._sender: NotificationSender | None = None
        self._renewed_at = time.monotonic()
        self._registered_code = ""
        self._starter = ProcessStarter(config.processes if config.worker.reload else 0)
        self._code_changed = asyncio.Event()
        self._replaced: set[asyncio.Task[int]] = set()
        """Processes with old code that finish their tasks."""

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Finish running tasks; a second call releases them immediately."""
        if self._stopping.is_set():
            self._close_inputs()
        self._stopping.set()
        self._outage.limit_wait()
        for child in self._children.values():
            _send_signal(child.process, signal.SIGTERM)

    async def run(self) -> None:
        """Run until all processes have ended for good; then raise the error of one that failed."""
        background = (
            self._renew_leases_forever,
            self._kill_overdue,
            self._lead_forever,
            self._route_events,
            self._send_notifications,
            self._dispatch_tasks,
            self._delete_old_logs,
            self._enforce_stop_timeout,
            self._ship_logs,
            self._watch_code,
        )
        background_tasks = [asyncio.create_task(run_forever(work, stop_on=(UnreachableError,))) for work in background]
        try:
            slots = [self._run_slot() for _ in range(self._config.processes)]
            results = await asyncio.gather(*slots, return_exceptions=True)
            results += await asyncio.gather(*self._replaced, return_exceptions=True)
        finally:
            await self._starter.close_spares()
            await self._cancel_background(background_tasks)
            await self._gateway.close()
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, UnreachableError)):
            raise error

    async def _cancel_background(self, tasks: list[asyncio.Task[None]]) -> None:
        """Cancel all background tasks and close their connections.

        The rollback of a cancelled transaction would wait for a server that does not answer. After the close it fails,
        and its error can replace the cancellation, which is therefore repeated.
        """
        pending = set(tasks)
        while pending:
            for task in pending:
                task.cancel()
            for connection in (
                self._registrations, self._leases, self._limits, self._loops, self._events, self._messages,
                self._runtimes, self._logs,
            ):  # fmt: skip
                connection.close()
            _, pending = await asyncio.wait(pending, timeout=RETRY_SECONDS)

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _run_slot(self) -> None:
        """Run one process, and replace it when it dies, until it finishes or the worker stops."""
        failures = 0
        while not self._stopping.is_set():
            changed = self._code_changed
            child = await self._start_process()
            ending = asyncio.create_task(self._await_end(child))
            if await self._is_replaced(child, ending, changed):
                continue
            code = await ending
            if code == EXIT_MISCONFIGURED and self._config.worker.reload:
                _logger.warning("The worker waits for the next change of the code.")
                await wait_for_any(changed.wait(), self._stopping.wait())
                continue
            if code == EXIT_MISCONFIGURED:
                self.stop()
                raise EntrypointError("The worker cannot run: its processes cannot be set up (see above).")
            if code == EXIT_FINISHED or child.drained:
                return
            if not self._stopping.is_set():
                _logger.warning(
                    "A worker process ended with %s. It is replaced; its tasks are retried.", describe_exit(code)
                )
            failures = failures + 1 if time.monotonic() - child.started < STABLE_SECONDS else 0
            with contextlib.suppress(TimeoutError):
                pause = RESTART_SECONDS[min(failures, len(RESTART_SECONDS) - 1)]
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _await_end(self, child: WorkerChild) -> int:
        """Wait for the end of a process and release its tasks; returns the exit code."""
        code = await child.process.wait()
        del self._children[child.worker_id]
        await self._finish_process(child, code)
        return code

    async def _is_replaced(self, child: WorkerChild, ending: asyncio.Task[int], changed: asyncio.Event) -> bool:
        """Wait for the end of a process or a change of its code: it then finishes its tasks, besides a new process."""
        await wait_for_any(ending, changed.wait())
        if ending.done() or self._stopping.is_set():
            return False
        _send_signal(child.process, signal.SIGTERM)
        self._replaced.add(ending)
        return True

    async def _watch_code(self) -> None:
        """Replace all processes when files of the user's code change."""
        if not self._config.worker.reload:
            return
        setup = self._config.setup
        ignored = (get_settings().home, setup.log_directory)
        watcher = await asyncio.to_thread(CodeWatcher, Path(setup.directory), setup.imports, ignored)
        while True:
            names = await watcher.wait_for_change()
            _logger.warning("Reloading: %s changed.", ", ".join(names))
            event, self._code_changed = self._code_changed, asyncio.Event()
            event.set()

    async def _start_process(self) -> WorkerChild:
        worker_id = get_snowflake_id()
        directory, ignored = Path(self._config.setup.directory), (get_settings().home, self._config.setup.log_directory)
        code = await asyncio.to_thread(read_code_version, directory, ignored)
        await self._registrations.run_with_retry(
            lambda connection: connection.register_worker(self._registration(worker_id, code))
        )
        process = await self._starter.start_process()
        assert process.stdin is not None  # noqa: S101
        version = self._config.worker.code_version or str(code)
        registers = self._config.worker.registers_functions and str(code) != self._registered_code
        self._registered_code = str(code)
        worker = replace(self._config.worker, worker_id=worker_id, code_version=version, registers_functions=registers)
        order = {"setup": self._config.setup.to_json(), "config": worker.to_json()}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        child = self._children[worker_id] = WorkerChild(worker_id, process, code)
        if self._stopping.is_set():  # stopped while the process was starting
            _send_signal(process, signal.SIGTERM)
        return child

    def _registration(self, worker_id: int, code: CodeVersion) -> Registration:
        worker = self._config.worker
        return Registration(
            worker_id,
            socket.gethostname(),
            os.getpid(),
            worker.concurrency,
            __version__,
            worker.queues,
            worker.log_directory,
            worker.code_version or str(code),
            code.to_list(),
        )

    async def _finish_process(self, child: WorkerChild, code: int) -> None:
        """Release the tasks of an ended process; a task that is known to have ended it is charged."""
        crashed = None if code == EXIT_FINISHED or child.overdue else describe_exit(code)

        async def finish(connection: GatewayConnection) -> None:
            if self._gateway.sends_logs:
                await self._shipper.send_final_logs(connection, child.worker_id)
            await connection.finish_worker(child.worker_id, child.overdue, crashed)

        await self._registrations.run_with_retry(finish)

    def _close_inputs(self) -> None:
        """Close the input of all processes, which makes them release their tasks."""
        for child in self._children.values():
            if child.process.stdin is not None:
                child.process.stdin.close()

    async def _enforce_stop_timeout(self) -> None:
        """Release running tasks `stop_seconds` after a stop, then kill processes that do not exit."""
        await self._stopping.wait()
        await self._wait_for_exits(self._config.stop_seconds)
        self._close_inputs()
        await self._wait_for_exits(self._config.worker.grace_seconds)
        for child in self._children.values():
            _send_signal(child.process, signal.SIGKILL)

    async def _wait_for_exits(self, seconds: float) -> None:
        results = [asyncio.create_task(child.process.wait()) for child in self._children.values()]
        if results:
            await asyncio.wait(results, timeout=seconds)

    # --- background tasks ---------------------------------------------------------------------------------------------

    async def _renew_leases_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.heartbeat_seconds)
            await self._leases.run_with_retry(self._renew_leases)

    async def _renew_leases(self, connection: GatewayConnection) -> None:
        """Renew the leases of all processes, and register them again after a long pause.

        After an outage, or when the machine was suspended, their rows may have been stopped or deleted.
        """
        lease_seconds, now = self._config.worker.lease_seconds, time.monotonic()
        if now - self._renewed_at > lease_seconds / 2:
            for child in [*self._children.values()]:
                await connection.register_worker(self._registration(child.worker_id, child.code))
        await connection.renew_leases(list(self._children), lease_seconds)
        self._renewed_at = now

    async def _kill_overdue(self) -> None:
        """Kill processes with overdue tasks: nothing else ends code that ignores cancellation."""
        while True:
            await asyncio.sleep(self._gateway.check_seconds)
            overdue_tasks = await self._limits.run_with_retry(self._find_overdue)
            for task in overdue_tasks:
                child = self._children.get(task.worker_id)
                if child is not None:
                    child.overdue.append(task)
                    _send_signal(child.process, signal.SIGKILL)

    async def _lead_forever(self) -> None:
        """Stand for election, and run the loops while leading."""
        while True:
            if self._children:
                await self._loops.run_with_retry(self._run_loops)
            await asyncio.sleep(self._loop_seconds)

    @property
    def _loop_seconds(self) -> float:
        """Interval of the loops; shorter for short leases, so that expired ones are found soon."""
        return min(LOOP_SECONDS, self._config.worker.lease_seconds / LOOPS_PER_LEASE)

    async def _run_loops(self, connection: GatewayConnection) -> None:
        worker_id = next(iter(self._children), None)
        if worker_id is not None:
            await connection.run_leader_loops(worker_id, LOOPS_PER_TERM * self._loop_seconds)
            for drained in await connection.draining_workers(list(self._children)):
                child = self._children.get(drained)
                if child is not None and not child.drained:
                    child.drained = True
                    _send_signal(child.process, signal.SIGTERM)

    async def _route_events(self) -> None:
        """Route events of datasets as they arrive. A server does this for HTTP workers."""
        while isinstance(self._config.setup.work, PostgresEndpoint):
            await self._events.run_with_retry(self._route_pass)
            await self._event_notifier.wait(event_router.POLL_SECONDS)

    async def _send_notifications(self) -> None:
        """Deliver messages about incidents. A server does this for HTTP workers."""
        if not isinstance(self._config.setup.work, PostgresEndpoint):
            return
        while True:
            await self._messages.run_with_retry(self._send_pass)
            await asyncio.sleep(SEND_SECONDS)

    async def _send_pass(self, connection: GatewayConnection) -> None:
        if self._sender is None and await has_undelivered(connection.postgres):
            # Imported when there is a message: an HTTP client takes time and memory.
            loop = importlib.import_module("aaiclick.orchestration.loops.notification_sender")
            self._sender = loop.NotificationSender()
        if self._sender is not None:
            await self._sender.run_once(connection.postgres)

    async def _delete_old_logs(self) -> None:
        await log_retention.run(self._config.worker.log_directory, keep_seconds=get_settings().retention_seconds)

    async def _ship_logs(self) -> None:
        """Send logs of an HTTP worker while their tasks run."""
        while self._gateway.sends_logs:
            await asyncio.sleep(SHIP_SECONDS)
            if await self._shipper.has_unsent():
                await self._logs.run_with_retry(
                    lambda connection: self._shipper.send_logs(connection, list(self._children))
                )

    async def _route_pass(self, connection: GatewayConnection) -> None:
        await self._event_notifier.listen(connection.postgres)
        await event_router.run_once(connection.postgres)

    async def _dispatch_tasks(self) -> None:
        """Dispatch tasks to external runtimes."""
        if not self._config.runtimes or not isinstance(self._config.setup.work, PostgresEndpoint):
            return
        loop = importlib.import_module("aaiclick.orchestration.loops.runtime_dispatcher")  # boto3 is optional
        dispatcher = loop.RuntimeDispatcher(
            self._config.runtimes,
            resend_seconds=self._config.resend_seconds,
            lease_seconds=self._config.worker.lease_seconds,
        )
        while True:
            await self._runtimes.run_with_retry(lambda connection: dispatcher.run_once(connection.postgres))
            await asyncio.sleep(loop.POLL_SECONDS)

    async def _find_overdue(self, connection: GatewayConnection) -> list[worker_leases.OverdueTask]:
        worker = self._config.worker
        return await connection.overdue_tasks(list(self._children), worker.grace_seconds, worker.task_timeout_seconds)


def _send_signal(process: Process, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sign)
