"""Commands by the hundred: one process that has imported everything and forks a real one whenever it is asked.

Starting Python and importing takes a second or two of a core, forking milliseconds. What is forked runs `python -m
aaiclick` with its own arguments, environment, directory and streams; it is a process like any other, to be signalled
and waited for. What it would start of ours it forks in turn: a supervisor its processes, `up` its server, a chaos run
its workers. The embedded servers are started as ever; tests of starting itself do without forks.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[1]
LENGTH = struct.Struct("=q")
MODULES = (
    "aaiclick.orchestration.worker.main", "aaiclick.orchestration.transport.remote", "aaiclick.server.run",
    "aaiclick.store.alembic_commands", "aaiclick.client.synchronous", "uvicorn.protocols.http.h11_impl",
    "uvicorn.lifespan.on", "rich.table", "rich.progress",
)  # fmt: skip
"""What the commands import when they are called, beside `aaiclick.cli`."""
PROGRAMS = ("aaiclick", "aaiclick.orchestration.worker.main")


class Hatched:
    """A forked command, as `subprocess.Popen` would show it."""

    def __init__(self, pid: int, ending: socket.socket, arguments: list[str], streams: list[IO[str] | None]) -> None:
        self.pid = pid
        self.args = arguments
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None
        self._ending = ending

    def __enter__(self) -> Hatched:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str | None, str | None]:
        self.wait(timeout)
        said = [stream and stream.read() for stream in (self.stdout, self.stderr)]
        self.__exit__()
        return said[0], said[1]

    def send_signal(self, sign: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sign)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ending], [], [], timeout)[0]:
            said = self._ending.recv(LENGTH.size)
            self.returncode = LENGTH.unpack(said)[0] if said else -signal.SIGKILL
            self._ending.close()
        return self.returncode


class Hatchery:
    """The test's side; its process is started when the first command is."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(
        self, arguments: list[str], env: dict[str, str], cwd: str | Path | None = None,
        stdout: Any = None, stderr: Any = None, stdin: Any = subprocess.DEVNULL, program: str = "aaiclick",
    ) -> Hatched:  # fmt: skip
        """A command with these streams: a file, `PIPE` or `DEVNULL` of `subprocess`, or None for ours. The program may
        also be "-c", as of Python: its first argument is what it does.
        """
        ours, theirs = socket.socketpair()
        shown: list[IO[str] | None] = []
        given = [self._stream(number, stream, shown) for number, stream in enumerate((stdin, stdout, stderr))]
        order = {"program": program, "arguments": arguments, "env": env, "cwd": str(cwd or Path.cwd())}
        with theirs:
            pid = self._ask(order, [*given, theirs.fileno()])
        for handle in given:
            os.close(handle)
        return Hatched(pid, ours, arguments, shown)

    def run(
        self, arguments: list[str], env: dict[str, str], cwd: str | Path | None = None, timeout: float = 100
    ) -> subprocess.CompletedProcess[str]:
        """A command from its start to its end, and what it said."""
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            hatched = self.start(arguments, env, cwd, stdout, stderr)
            try:
                code = hatched.wait(timeout)
            finally:
                hatched.kill()
                hatched.wait(30)
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())

    def close(self) -> None:
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.wait(30)
            self._process = self._control = None

    def _ask(self, order: dict[str, Any], handles: list[int]) -> int:
        if self._control is None:
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.hatchery", str(theirs.fileno())],
                    cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                )  # fmt: skip
        said = json.dumps(order).encode()
        socket.send_fds(self._control, [LENGTH.pack(len(said))], handles)
        self._control.sendall(said)
        return LENGTH.unpack(self._control.recv(LENGTH.size))[0]

    @staticmethod
    def _stream(number: int, wanted: Any, shown: list[IO[str] | None]) -> int:
        if wanted == subprocess.DEVNULL:
            shown.append(None)
            return os.open(os.devnull, os.O_RDWR)
        if wanted != subprocess.PIPE:
            shown.append(None)
            return os.dup(number) if wanted is None else os.dup(wanted.fileno())
        reading, writing = os.pipe()
        shown.append(os.fdopen(reading) if number else os.fdopen(writing, "w", buffering=1))
        return writing if number else reading


HATCHERY = Hatchery()


# --- its process ------------------------------------------------------------------------------------------------------


def serve(control: socket.socket) -> None:
    """Fork commands, and say of each how it ended, until nobody asks any more."""
    import gc
    import importlib
    import pkgutil

    import aaiclick.cli

    names = [found.name for found in pkgutil.iter_modules(aaiclick.cli.__path__)]
    for module in (*MODULES, *(f"aaiclick.cli.{name}" for name in names)):
        importlib.import_module(module)
    from aaiclick.server.ui.rendering import environment

    for name in environment().list_templates():
        environment().get_template(name)  # a server compiles all its pages
    gc.freeze()  # looking through what was imported would copy it
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno())
    endings: dict[int, int] = {}
    while True:
        ready = select.select([control, woken], [], [])[0]
        if woken in ready:
            woken.recv(4096)
            _bury(endings)
        if control in ready:
            said, handles, *_ = socket.recv_fds(control, LENGTH.size, 4)
            if not said:
                break
            order = json.loads(_exactly(control, LENGTH.unpack(said)[0]))
            pid = os.fork()
            if not pid:
                _be(order, handles[:3])
            for handle in handles[:3]:
                os.close(handle)
            endings[pid] = handles[3]
            control.sendall(LENGTH.pack(pid))
    for pid in endings:
        os.kill(pid, signal.SIGKILL)


def _exactly(control: socket.socket, count: int) -> bytes:
    said = b""
    while len(said) < count:
        said += control.recv(count - len(said))
    return said


def _bury(endings: dict[int, int]) -> None:
    for pid in list(endings):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with socket.socket(fileno=endings.pop(pid)) as ending, contextlib.suppress(OSError):  # nobody may wait
                ending.send(LENGTH.pack(os.waitstatus_to_exitcode(status)), socket.MSG_NOSIGNAL)


def _be(order: dict[str, Any], handles: list[int]) -> NoReturn:
    subprocess._fork_exec = _forking(subprocess._fork_exec)  # pyright: ignore[reportAttributeAccessIssue]
    _find_itself(order["env"], order["cwd"])
    _begin_anew(handles, _program(order["program"], order["arguments"]))


def _find_itself(environment: dict[str, str], directory: str) -> None:
    """What an interpreter that starts there has read, and the one before it may have read otherwise."""
    from aaiclick import faults
    from aaiclick.settings import get_settings

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.path[0] = directory
    get_settings.cache_clear()
    faults.arm(*(os.environ.get(name, "") for name in faults.VARIABLES))  # as at its import


def _program(module: str, arguments: list[str]) -> Callable[[], object]:
    """`python -m` of one of `PROGRAMS`, or `python -c`."""
    from aaiclick.cli.main import main as command
    from aaiclick.orchestration.worker.main import main as worker

    if module == "-c":
        code, *arguments = arguments
        sys.argv = [module, *arguments]
        return lambda: exec(code, {"__name__": "__main__"})
    sys.argv = [module, *arguments]
    return {"aaiclick": command, "aaiclick.orchestration.worker.main": worker}[module]


def _forking(otherwise: Callable[..., int]) -> Callable[..., int]:
    """Our programs are forked: see `subprocess.Popen._execute_child`, whose arguments these are."""

    def fork_exec(*given: Any) -> int:
        arguments = [os.fsdecode(word) for word in given[0]]
        kept, directory, variables, stdin, stdout, stderr = (given[place] for place in (3, 4, 5, 6, 9, 11))
        environment = dict(os.environ) if variables is None else _environment(variables)
        # A clock that a chaos run has set wrong is so from the interpreter's start. A server starts child processes,
        # which libuv refuses in the fork of a process that has an event loop of uvloop.
        unforkable = "CHAOS_CLOCK" in environment or arguments[3:4] == ["server"]
        if arguments[1:2] != ["-m"] or arguments[2] not in PROGRAMS or unforkable:
            return otherwise(*given)
        pid = os.fork()
        if not pid:
            if given[15]:
                os.setsid()
            _find_itself(environment, os.fsdecode(directory or os.getcwd()))
            streams = [old if old >= 0 else number for number, old in enumerate((stdin, stdout, stderr))]
            _begin_anew(streams, _program(arguments[2], arguments[3:]), {*kept} - {given[13]})
        return pid

    return fork_exec


def _environment(variables: list[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(each).partition("=") for each in variables)
    return {name: value for name, _, value in pairs}


def _begin_anew(handles: list[int], work: Callable[[], object], passed: Iterable[int] = ()) -> NoReturn:
    """Run something with these streams, and other handles that are passed, as if the interpreter had started for it."""
    import atexit
    import contextvars
    import fcntl
    import threading

    signal.set_wakeup_fd(-1)
    for sign in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = [fcntl.fcntl(handle, fcntl.F_DUPFD, 1000) for handle in handles]
    for number, handle in enumerate(kept):
        os.dup2(handle, number)
    left = [2, *sorted(passed), 2000]
    for below, above in itertools.pairwise(left):
        os.closerange(below + 1, above)
    # Not to be closed with the last that knows them, as a fork of a fork has done this before.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    code: Any = 1
    try:
        contextvars.Context().run(work)  # what the parent was about is no business of the child's
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  (as the interpreter does)
        import traceback

        traceback.print_exc()
    finally:
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
