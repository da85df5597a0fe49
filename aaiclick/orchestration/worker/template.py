"""A process that has imported everything and opened nothing, and forks whenever it is asked.

Starting Python and importing what tasks need takes seconds on a busy machine, forking milliseconds. A worker process
splits its template off as the first thing it does, while it has no loop, no thread and no connection of its own, so
that the template costs no second import and shares its memory. Where that is not possible, because the process is the
user's own or its template was killed, one is started as a program.

The two talk over a socket, a number each way: 0, along with the socket of the child to be, asks for a child and is
answered by its pid; a pid ends that child and is answered by its exit code. Only the template waits for its children,
so a pid always means the child that it was given for. When the socket is closed, for whatever reason, the template
kills its children and ends.
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

START = 0
NUMBER = struct.Struct("=q")
CLOSE_SECONDS = 1.0

Work = Callable[[socket.socket], None]
"""What a child does, with its end of a socket to whoever asked for it."""


class TemplateLostError(ConnectionError):
    """The template has gone."""


class Template:
    """The side of who asks."""

    def __init__(self, control: socket.socket, reap: Callable[[], object]) -> None:
        control.setblocking(False)
        self._control = control
        self._reap = reap
        self._lock = asyncio.Lock()

    @classmethod
    def fork(cls, work: Work) -> Template:
        """A copy of this process as it is now."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            ours.close()
            serve(theirs, work)
        theirs.close()
        return cls(ours, lambda: os.waitpid(pid, 0))

    @classmethod
    def spawn(cls, module: str) -> Template:
        """A program of its own: a module that calls `serve` with the socket whose number is its argument."""
        ours, theirs = socket.socketpair()
        with theirs:
            handle = theirs.fileno()
            process = subprocess.Popen([sys.executable, "-m", module, str(handle)], pass_fds=[handle])
        return cls(ours, process.wait)

    async def start(self, end: socket.socket) -> int:
        """A child at that end of a socket; returns its pid."""
        with end:
            pid = await self._ask(START, end.fileno())
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    async def end(self, pid: int) -> int:
        """Kill a child that was started here, unless it has ended; returns its exit code, or minus its signal."""
        return await self._ask(pid)

    async def close(self) -> None:
        """All its children end with it."""
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

    async def _ask(self, *order: int) -> int:
        """Who asked may be cancelled; the answer is taken all the same, or the next one would get it."""
        return await asyncio.shield(asyncio.create_task(self._exchange(*order)))

    async def _exchange(self, number: int, *handles: int) -> int:
        async with self._lock:
            try:
                socket.send_fds(self._control, [NUMBER.pack(number)], list(handles))
                answer = await asyncio.get_running_loop().sock_recv(self._control, NUMBER.size)
            except OSError as error:
                raise TemplateLostError from error
        if len(answer) < NUMBER.size:
            raise TemplateLostError
        return NUMBER.unpack(answer)[0]


def serve(control: socket.socket, work: Work) -> NoReturn:
    """Be the template, until nobody asks any more."""
    for name in (signal.SIGTERM, signal.SIGINT):  # it ends with who asks, who may finish first
        signal.signal(name, _go_on)
    with open(os.devnull) as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    gc.freeze()  # looking through what was imported would copy it
    alive: set[int] = set()
    ended: dict[int, int] = {}
    with contextlib.suppress(OSError):
        while True:
            order, handles, *_ = socket.recv_fds(control, NUMBER.size, 1)
            if len(order) < NUMBER.size:
                break
            (number,) = NUMBER.unpack(order)
            _bury(alive, ended)
            answer = _fork(control, handles[0], work, alive) if number == START else _end(number, alive, ended)
            control.sendall(NUMBER.pack(answer))
    for pid in list(alive):
        _end(pid, alive, ended)
    os._exit(0)


def _go_on(*_: object) -> None:
    """Not SIG_IGN, which programs that a task starts would inherit."""


def _fork(control: socket.socket, handle: int, work: Work, alive: set[int]) -> int:
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or 1)
    if not pid:
        control.close()
        _be_child(socket.socket(fileno=handle), work)
    os.close(handle)
    if pid > 0:
        alive.add(pid)
    return pid


def _be_child(end: socket.socket, work: Work) -> NoReturn:
    code = 0
    try:
        work(end)
    except BaseException:  # noqa: BLE001  (nothing of the template's may run here after it)
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # threads of a task must not keep it


def _end(pid: int, alive: set[int], ended: dict[int, int]) -> int:
    if pid in alive:
        os.kill(pid, signal.SIGKILL)  # it changes nothing for one that is at its end
        alive.discard(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return ended.pop(pid, 0)


def _bury(alive: set[int], ended: dict[int, int]) -> None:
    """Those that ended unasked: their codes are kept for whoever asks."""
    for pid in list(alive):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            alive.discard(pid)
            ended[pid] = os.waitstatus_to_exitcode(status)
