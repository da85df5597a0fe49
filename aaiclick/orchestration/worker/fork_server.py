"""Fork server: a process that has imported everything, holds no connections, and forks on request.

Starting Python and importing what tasks need takes seconds on a busy machine, forking milliseconds. A worker process
forks its fork server first, while it has no event loop, thread or connection, so that the fork server needs no second
import and shares its memory. Where that is not possible, because the process is the user's own or its fork server was
killed, one is started as a program.

They communicate over a socket, one number each way: 0, along with the socket for the child, requests a child and
returns its pid; a pid ends that child and returns its exit code. Only the fork server waits for its children, so a pid
always means the child it was returned for. When the socket is closed, the fork server kills its children and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

START_CHILD = 0
NUMBER = struct.Struct("=q")
CLOSE_SECONDS = 1.0

ChildFunction = Callable[[socket.socket], None]
"""Function that a child runs, with its end of a socket to the requesting process."""


class ForkServerLostError(ConnectionError):
    """The fork server has ended."""


class ForkServer:
    """Client of a fork server."""

    def __init__(self, control: socket.socket, reap: Callable[[], object]) -> None:
        control.setblocking(False)
        self._control = control
        self._reap = reap
        self._lock = asyncio.Lock()

    @classmethod
    def fork(cls, child_function: ChildFunction) -> ForkServer:
        """Fork this process as its own fork server."""
        parent_end, child_end = socket.socketpair()
        pid = os.fork()
        if not pid:
            parent_end.close()
            run_fork_server(child_end, child_function)
        child_end.close()
        return cls(parent_end, lambda: os.waitpid(pid, 0))

    @classmethod
    def spawn(cls, module: str) -> ForkServer:
        """Start a module as a fork server; it calls `run_fork_server` with the socket of its first argument."""
        parent_end, child_end = socket.socketpair()
        with child_end:
            handle = child_end.fileno()
            process = subprocess.Popen([sys.executable, "-P", "-m", module, str(handle)], pass_fds=[handle])
        return cls(parent_end, process.wait)

    async def start_child(self, end: socket.socket) -> int:
        """Start a child that uses `end` of a socket; returns its pid."""
        with end:
            pid = await self._request(START_CHILD, end.fileno())
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    async def end_child(self, pid: int) -> int:
        """Kill a child unless it has ended; returns its exit code, or the negative signal number."""
        return await self._request(pid)

    async def close(self) -> None:
        """End the fork server and all its children."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS), self._lock:
                with contextlib.suppress(OSError):
                    while await asyncio.get_running_loop().sock_recv(self._control, NUMBER.size):
                        pass
                with contextlib.suppress(ChildProcessError):
                    self._reap()
        self._control.close()

    async def _request(self, *request: int) -> int:
        """Send a request. Its response is read even if the caller is cancelled, or the next request would get it."""
        return await asyncio.shield(asyncio.create_task(self._exchange(*request)))

    async def _exchange(self, number: int, *handles: int) -> int:
        async with self._lock:
            try:
                socket.send_fds(self._control, [NUMBER.pack(number)], list(handles))
                answer = await asyncio.get_running_loop().sock_recv(self._control, NUMBER.size)
            except OSError as error:
                raise ForkServerLostError from error
        if len(answer) < NUMBER.size:
            raise ForkServerLostError
        return NUMBER.unpack(answer)[0]


def run_fork_server(control: socket.socket, child_function: ChildFunction) -> NoReturn:
    """Serve requests until the socket is closed."""
    for name in (signal.SIGTERM, signal.SIGINT):  # it ends with its client, which may finish first
        signal.signal(name, _ignore_signal)
    with open(os.devnull) as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    gc.freeze()  # a collection would copy the imported modules
    alive: set[int] = set()
    ended: dict[int, int] = {}
    with contextlib.suppress(OSError):
        while True:
            request, handles, *_ = socket.recv_fds(control, NUMBER.size, 1)
            if len(request) < NUMBER.size:
                break
            (number,) = NUMBER.unpack(request)
            _reap_children(alive, ended)
            answer = (
                _fork_child(control, handles[0], child_function, alive)
                if number == START_CHILD
                else _end_child(number, alive, ended)
            )
            control.sendall(NUMBER.pack(answer))
    for pid in list(alive):
        _end_child(pid, alive, ended)
    os._exit(0)


def _ignore_signal(*_: object) -> None:
    """Ignore a signal; SIG_IGN would be inherited by programs that a task starts."""


def _fork_child(control: socket.socket, handle: int, child_function: ChildFunction, alive: set[int]) -> int:
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or 1)
    if not pid:
        control.close()
        _run_child(socket.socket(fileno=handle), child_function)
    os.close(handle)
    if pid > 0:
        alive.add(pid)
    return pid


def _run_child(end: socket.socket, child_function: ChildFunction) -> NoReturn:
    code = 0
    try:
        child_function(end)
    except BaseException:  # noqa: BLE001  (no code of the fork server may run in the child)
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # does not wait for threads of a task


def _end_child(pid: int, alive: set[int], ended: dict[int, int]) -> int:
    if pid in alive:
        os.kill(pid, signal.SIGKILL)  # no effect on a child that is exiting
        alive.discard(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return ended.pop(pid, 0)


def _reap_children(alive: set[int], ended: dict[int, int]) -> None:
    """Collect exit codes of children that ended by themselves, for later requests."""
    for pid in list(alive):
        reaped_pid, status = os.waitpid(pid, os.WNOHANG)
        if reaped_pid:
            alive.discard(pid)
            ended[pid] = os.waitstatus_to_exitcode(status)
