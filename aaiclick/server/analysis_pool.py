"""Pool of child processes that analyse users' SQL and YAML, so that the event loop never does."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any

from aaiclick.catalog.errors import CatalogError
from aaiclick.server.analysis_process import LENGTH
from aaiclick.server.problems import BusyError, TooManyRequestsError

PROCESSES = 2
CPU_SECONDS = 5.0
"""Processor time of one call."""

WAITING = 64
CLIENT_WAITING = 4
"""Calls that run or wait, in all and of one client. Some hold a connection to PostgreSQL meanwhile."""

CALL_SECONDS = 60.0
"""Limit by the clock, for a machine that is too busy; the process has a shorter limit of processor time."""

current_client: ContextVar[str] = ContextVar("analysis_client", default="")
"""The organisation of the request. One client has one process at a time."""


class AnalysisLimitError(CatalogError):
    """A text takes too much time or memory to analyse."""


class AnalysisPool:
    """Starts processes when they are needed, and replaces those that end."""

    def __init__(self, size: int = PROCESSES, cpu_seconds: float = CPU_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        self._free = asyncio.Semaphore(size)
        self._clients: dict[str, asyncio.Lock] = {}
        self._waiting = Counter[str]()
        self._idle: list[_Process] = []

    async def warm_up(self) -> None:
        """Have one process ready."""
        if not self._idle:
            self._idle.append(await _Process.start(self._cpu_seconds))

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        request = pickle.dumps((function, args, kwargs))
        async with self._turn(current_client.get()):
            is_error, result = await self._call(self._take(), request)
        if isinstance(result, MemoryError | RecursionError):
            raise _limit_error()
        if is_error:
            raise result
        return result

    async def _call(self, idle: _Process | None, request: bytes) -> tuple[bool, Any]:
        process = idle or await _Process.start(self._cpu_seconds)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                response = await process.call(request)
        except asyncio.IncompleteReadError:
            exit_code = await process.wait()
            if idle is not None and exit_code != -signal.SIGPROF:
                return await self._call(None, request)  # it may have ended before the call
            raise _limit_error() from None
        except BaseException as error:
            process.kill()
            if isinstance(error, TimeoutError):
                raise BusyError("The server is too busy to analyse this.", remedy="Send it again later.") from None
            raise
        self._idle.append(process)
        return response

    def _take(self) -> _Process | None:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
        return None

    async def close(self) -> None:
        while self._idle:
            process = self._idle.pop()
            process.kill()
            await process.wait()

    @asynccontextmanager
    async def _turn(self, client: str) -> AsyncGenerator[None]:
        if self._waiting.total() >= WAITING:
            raise BusyError("The server has too many texts to analyse.", remedy="Send it again later.")
        if self._waiting[client] >= CLIENT_WAITING:
            raise TooManyRequestsError("Too many texts of this client are being analysed.", remedy="Wait for them.")
        self._waiting[client] += 1
        lock = self._clients.setdefault(client, asyncio.Lock())
        try:
            async with lock, self._free:
                yield
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client], self._clients[client]


def _limit_error() -> AnalysisLimitError:
    return AnalysisLimitError(
        "This text takes too much time or memory to analyse.", remedy="Make it shorter or simpler."
    )


class _Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        self._process = process
        self._requests = process.stdin
        self._responses = process.stdout

    @classmethod
    async def start(cls, cpu_seconds: float) -> _Process:
        process = cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "aaiclick.server.analysis_process", str(cpu_seconds),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )
        )  # fmt: skip
        try:
            await process._read()
        except BaseException:
            process.kill()
            raise
        return process

    async def call(self, request: bytes) -> tuple[bool, Any]:
        with suppress(ConnectionError):  # it has ended: reading says so
            self._requests.write(LENGTH.pack(len(request)) + request)
            await self._requests.drain()
        return await self._read()

    async def _read(self) -> Any:
        (length,) = LENGTH.unpack(await self._responses.readexactly(LENGTH.size))
        return pickle.loads(await self._responses.readexactly(length))  # noqa: S301  (of our own child)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    def kill(self) -> None:
        self._requests.close()  # else its transport outlives the process
        with suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> int:
        """The exit code; negative is a signal."""
        self._requests.close()
        return await self._process.wait()
