"""One supervised server of the embedded stack: started once, started again when it dies, stopped on request."""

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
from aaiclick.local.clickhouse import EmbeddedClickHouse
from aaiclick.local.home import Home, write_private
from aaiclick.local.postgres import PORT, EmbeddedPostgres, environment, last_words
from aaiclick.local.unprivileged import choose_disguise

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.01
BACKOFF_SECONDS = (0.0, 0.2, 1.0, 3.0, 10.0)
FIRST_TRIES = 4
STEADY_SECONDS = 30.0
"""A server that ran this long counts as healthy: its next restart is immediate again."""


class Server(ABC):
    """A child process with a readiness check and a policy: if it was ready once, keep it running."""

    name: str

    def __init__(self, home: Home, on_change: Callable[[], None], is_ours: Callable[[], bool] = lambda: True) -> None:
        self._home = home
        self._on_change = on_change
        self._is_ours = is_ours
        self._process: Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._up = asyncio.Event()
        self._stopping = False
        self._restarts = 0
        self.endpoint: dict[str, Any] = {}

    @abstractmethod
    async def _spawn(self) -> Process: ...

    @abstractmethod
    async def _is_ready(self) -> bool: ...

    @abstractmethod
    def _address(self) -> dict[str, Any]: ...

    @abstractmethod
    async def _prepare(self) -> None:
        """Stop what a killed keeper left behind, and make what the server needs."""

    stop_signal: signal.Signals
    passing_troubles: tuple[str, ...] = ()

    def _passing(self, error: Exception) -> bool:
        """Whether the failure is one that goes away by itself shortly."""
        return any(trouble in str(error) for trouble in self.passing_troubles)

    async def ready(self) -> None:
        """Return when the server answers; raises StackError if it cannot be started."""
        if self._first is None or (self._first.done() and self._first.exception() is not None):
            self._first = asyncio.get_running_loop().create_future()
            self._supervisor = asyncio.create_task(self._supervise(self._first))
        await asyncio.shield(self._first)
        try:
            await asyncio.wait_for(self._up.wait(), START_SECONDS)
        except TimeoutError:
            raise self._failure(f"died and did not come back within {START_SECONDS:.0f} s") from None

    async def stop(self) -> None:
        self._stopping = True
        if self._supervisor is not None:
            if self._process is None:
                self._supervisor.cancel()
            else:
                await _end(self._process, self.stop_signal)
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        self.endpoint = {}

    def status(self) -> dict[str, Any]:
        running = self._process is not None and self._process.returncode is None
        return {
            "state": "running" if running and self.endpoint else "starting",
            "pid": self._process.pid if running and self._process else None,
            "restarts": self._restarts,
            "log": str(self._home.log_of(self.name)),
        }

    async def _supervise(self, first: asyncio.Future[None]) -> None:
        """Run the server until told to stop. Only the first start may fail for good: somebody is waiting for it."""
        failures = 0
        while not self._stopping and self._is_ours():
            started = time.monotonic()
            try:
                process = await self._start()
            except Exception as error:  # noqa: BLE001  (damaged files raise anything; somebody waits for an answer)
                failures += 1
                if not first.done() and (failures > FIRST_TRIES or not self._passing(error)):
                    first.set_exception(_as_stack_error(error, self._home, self.name))
                    return
                _note(f"{self.name} did not start (try {failures}): {error}")
            else:
                if not first.done():
                    first.set_result(None)
                self._on_change()
                code = await process.wait()
                self._process, self.endpoint = None, {}
                self._up.clear()
                if self._stopping:
                    return
                _note(f"{self.name} ended with {code} after {time.monotonic() - started:.1f} s; starting it again")
                failures = failures + 1 if time.monotonic() - started < STEADY_SECONDS else 0
                self._restarts += 1
            await asyncio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])

    async def _start(self) -> Process:
        await self._prepare()
        process = self._process = await self._spawn()
        deadline = time.monotonic() + START_SECONDS
        while not await self._is_ready():
            if process.returncode is not None:
                self._process = None
                raise self._failure(f"ended with {process.returncode} before it was ready")
            if time.monotonic() > deadline:
                await _end(process, signal.SIGKILL)
                self._process = None
                raise self._failure(f"was not ready within {START_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)
        self.endpoint = self._address()
        self._up.set()
        return process

    def _failure(self, what: str) -> StackError:
        log = self._home.log_of(self.name)
        said = last_words(log.read_text(errors="replace")[-4000:]) if log.exists() else ""
        return StackError(f"The embedded {self.name} server {what}: {said}", remedy=f"Its log is {log}.")


class PostgresServer(Server):
    """PostgreSQL out of its wheel."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: ends sessions, writes a checkpoint
    passing_troubles = ("pre-existing shared memory block",)  # backends of a killed postmaster are still leaving

    def __init__(self, home: Home, on_change: Callable[[], None], is_ours: Callable[[], bool] = lambda: True) -> None:
        super().__init__(home, on_change, is_ours)
        self._server = EmbeddedPostgres(home, choose_disguise())

    async def _prepare(self) -> None:
        self._server.stop_leftover()
        await self._server.initialise()

    async def _spawn(self) -> Process:
        with self._home.log_of(self.name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self._server.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                cwd="/",
                preexec_fn=self._server.disguise.enter,
            )

    async def _is_ready(self) -> bool:
        return self._server.is_ready()

    def _address(self) -> dict[str, Any]:
        return {"host": str(self._home.run), "port": PORT}


class ClickHouseServer(Server):
    """ClickHouse out of its wheel, in a process of `aaiclick.local.node`."""

    name = "clickhouse"
    stop_signal = signal.SIGTERM

    def __init__(self, home: Home, on_change: Callable[[], None], is_ours: Callable[[], bool] = lambda: True) -> None:
        super().__init__(home, on_change, is_ours)
        self._server = EmbeddedClickHouse(home)
        self._pid_file = home.run / "clickhouse.json"

    async def _prepare(self) -> None:
        _end_recorded(self._pid_file)
        self._server.configure()

    async def _spawn(self) -> Process:
        with self._home.log_of(self.name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "aaiclick.local.node",
                stdin=PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        write_private(self._pid_file, json.dumps([process.pid, psutil.Process(process.pid).create_time()]))
        assert process.stdin is not None  # noqa: S101
        process.stdin.write(self._server.order)
        return process

    async def _is_ready(self) -> bool:
        return self._process is not None and await self._server.is_ready(self._process.pid)

    def _address(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self._server.port}


async def _end(process: Process, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sign)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _end_recorded(pid_file: Path) -> None:
    """End the process a pid file names, if it is still that one and not a later one with the same number."""
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
    said = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    return StackError(
        f"The embedded {name} server cannot be started in {home.path}: {said}.",
        remedy=f"See {home.logs}. A damaged file below {home.path / name} may be the cause.",
    )


def _note(text: str) -> None:
    os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n".encode())
