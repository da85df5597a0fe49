"""Pool of child processes that analyse users' SQL and YAML off the event loop."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aaiclick.catalog.errors import AnalysisLimitError
from aaiclick.catalog.sql_yaml_analysis import current_client
from aaiclick.server.analysis_process import LENGTH
from aaiclick.server.problem_responses import BusyError, TooManyRequestsError

PROCESSES = 2
CPU_SECONDS = 5.0
"""CPU time limit of one call."""

MAX_WAITING = 64
MAX_CLIENT_WAITING = 4
"""Limits of calls that run or wait, in total and per client. Some hold a connection to PostgreSQL meanwhile."""

CALL_SECONDS = 60.0
"""Wall-clock limit for an overloaded machine; the process has a shorter CPU limit."""


class AnalysisPool:
    """Starts processes on demand and replaces those that exit."""

    def __init__(self, size: int = PROCESSES, cpu_seconds: float = CPU_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        self._free_slots = asyncio.Semaphore(size)
        self._client_locks: dict[str, asyncio.Lock] = {}
        self._waiting = Counter[str]()
        self._idle: list[AnalysisProcess] = []

    async def warm_up(self) -> None:
        """Start one idle process."""
        if not self._idle:
            self._idle.append(await AnalysisProcess.start(self._cpu_seconds))

    async def run(self, function: Callable[..., object], *args: object, **kwargs: object) -> Any:
        request = pickle.dumps((function, args, kwargs))
        async with self._acquire_slot(current_client.get()):
            is_error, result = await self._call_process(self._take_idle(), request)
        if isinstance(result, MemoryError | RecursionError):
            raise _limit_error()
        if is_error:
            raise result
        return result

    async def _call_process(self, idle: AnalysisProcess | None, request: bytes) -> tuple[bool, Any]:
        process = idle or await AnalysisProcess.start(self._cpu_seconds)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                response = await process.call(request)
        except asyncio.IncompleteReadError:
            exit_code = await process.wait()
            if idle is not None and exit_code != -signal.SIGPROF:
                return await self._call_process(None, request)  # the idle process may have exited before the call
            raise _limit_error() from None
        except BaseException as error:
            process.kill()
            if isinstance(error, TimeoutError):
                raise BusyError("The server is too busy to analyse this text.", remedy="Try again later.") from None
            raise
        self._idle.append(process)
        return response

    def _take_idle(self) -> AnalysisProcess | None:
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
    async def _acquire_slot(self, client: str) -> AsyncGenerator[None]:
        if self._waiting.total() >= MAX_WAITING:
            raise BusyError("Too many texts wait for analysis.", remedy="Try again later.")
        if self._waiting[client] >= MAX_CLIENT_WAITING:
            raise TooManyRequestsError("Too many texts of this client are being analysed.", remedy="Wait for them.")
        self._waiting[client] += 1
        lock = self._client_locks.setdefault(client, asyncio.Lock())
        try:
            async with lock, self._free_slots:
                yield
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client], self._client_locks[client]


def _limit_error() -> AnalysisLimitError:
    return AnalysisLimitError(
        "This text takes too much time or memory to analyse.", remedy="Make it shorter or simpler."
    )


class AnalysisProcess:
    """One child process, called over its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        self._process = process
        self._requests = process.stdin
        self._responses = process.stdout

    @classmethod
    async def start(cls, cpu_seconds: float) -> AnalysisProcess:
        process = cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "aaiclick.server.analysis_process", str(cpu_seconds),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )
        )  # fmt: skip
        try:
            await process._read_frame()
        except BaseException:
            process.kill()
            raise
        return process

    async def call(self, request: bytes) -> tuple[bool, Any]:
        with suppress(ConnectionError):  # the process has exited: reading raises
            self._requests.write(LENGTH.pack(len(request)) + request)
            await self._requests.drain()
        return await self._read_frame()

    async def _read_frame(self) -> Any:
        (length,) = LENGTH.unpack(await self._responses.readexactly(LENGTH.size))
        return pickle.loads(await self._responses.readexactly(length))  # noqa: S301  (from our own child process)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    def kill(self) -> None:
        self._requests.close()  # otherwise its transport outlives the process
        with suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> int:
        """Wait for the exit and return its code; a negative code is a signal."""
        self._requests.close()
        return await self._process.wait()
