"""Fork server for CLI commands in tests: a process that has imported everything and forks each command.

Starting Python and importing takes a second or two of CPU time, forking milliseconds. A forked command runs `python -m
aaiclick` with its own arguments, environment, directory and streams, and can be signalled and waited for. Programs of
aaiclick that it starts are forked as well: worker processes, the server of `up`, workers of a chaos run. Embedded
servers are started normally, and tests of startup use no forks.
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
    "aaiclick.orchestration.worker.main", "aaiclick.orchestration.gateway.http", "aaiclick.server.serve",
    "aaiclick.store.alembic_commands", "aaiclick.client.sync_client", "uvicorn.protocols.http.h11_impl",
    "uvicorn.lifespan.on", "rich.table", "rich.progress", "anyio._backends._asyncio", "httpcore",
)  # fmt: skip
"""Modules that commands import lazily, in addition to `aaiclick.cli`."""
PROGRAMS = ("aaiclick", "aaiclick.orchestration.worker.main")


class ForkedProcess:
    """A forked command with the interface of `subprocess.Popen`."""

    def __init__(
        self, pid: int, exit_socket: socket.socket, arguments: list[str], streams: list[IO[str] | None]
    ) -> None:
        self.pid = pid
        self.args = arguments
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None
        self._exit_socket = exit_socket

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        return self._poll_exit(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._poll_exit(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str | None, str | None]:
        self.wait(timeout)
        outputs = [stream and stream.read() for stream in (self.stdout, self.stderr)]
        self.__exit__()
        return outputs[0], outputs[1]

    def send_signal(self, sign: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sign)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _poll_exit(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._exit_socket], [], [], timeout)[0]:
            data = self._exit_socket.recv(LENGTH.size)
            self.returncode = LENGTH.unpack(data)[0] if data else -signal.SIGKILL
            self._exit_socket.close()
        return self.returncode


class ForkServer:
    """Client of the fork server, which is started with the first command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(
        self, arguments: list[str], env: dict[str, str], cwd: str | Path | None = None,
        stdout: Any = None, stderr: Any = None, stdin: Any = subprocess.DEVNULL, program: str = "aaiclick",
    ) -> ForkedProcess:  # fmt: skip
        """Start a command with these streams.

        A stream is a file, `PIPE`, `DEVNULL`, or None to inherit. With the program "-c" the first argument is Python
        code.
        """
        parent_end, child_end = socket.socketpair()
        streams: list[IO[str] | None] = []
        handles = [self._stream(number, stream, streams) for number, stream in enumerate((stdin, stdout, stderr))]
        order = {"program": program, "arguments": arguments, "env": env, "cwd": str(cwd or Path.cwd())}
        with child_end:
            pid = self._request(order, [*handles, child_end.fileno()])
        for handle in handles:
            os.close(handle)
        return ForkedProcess(pid, parent_end, arguments, streams)

    def run(
        self, arguments: list[str], env: dict[str, str], cwd: str | Path | None = None, timeout: float = 100
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; returns its exit code and output."""
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            command = self.start(arguments, env, cwd, stdout, stderr)
            try:
                code = command.wait(timeout)
            finally:
                command.terminate()  # a late command may have to stop processes of its own
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(15)
                command.kill()
                command.wait(30)
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())

    def close(self) -> None:
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.wait(30)
            self._process = self._control = None

    def _request(self, order: dict[str, Any], handles: list[int]) -> int:
        if self._control is None:
            self._control, child_end = socket.socketpair()
            with child_end:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.fork_server", str(child_end.fileno())],
                    cwd=ROOT, pass_fds=[child_end.fileno()], stdin=subprocess.DEVNULL,
                )  # fmt: skip
        request = json.dumps(order).encode()
        socket.send_fds(self._control, [LENGTH.pack(len(request))], handles)
        self._control.sendall(request)
        return LENGTH.unpack(self._control.recv(LENGTH.size))[0]

    @staticmethod
    def _stream(number: int, stream: Any, streams: list[IO[str] | None]) -> int:
        if stream == subprocess.DEVNULL:
            streams.append(None)
            return os.open(os.devnull, os.O_RDWR)
        if stream != subprocess.PIPE:
            streams.append(None)
            return os.dup(number) if stream is None else os.dup(stream.fileno())
        reading, writing = os.pipe()
        streams.append(os.fdopen(reading) if number else os.fdopen(writing, "w", buffering=1))
        return writing if number else reading


FORK_SERVER = ForkServer()


# --- its process ------------------------------------------------------------------------------------------------------


def serve(control: socket.socket) -> None:
    """Fork commands and report their exit codes until the control socket is closed."""
    import gc
    import importlib
    import pkgutil

    import aaiclick.cli

    names = [module.name for module in pkgutil.iter_modules(aaiclick.cli.__path__)]
    for module in (*MODULES, *(f"aaiclick.cli.{name}" for name in names)):
        importlib.import_module(module)
    from aaiclick.server.ui.templating import build_environment

    for name in build_environment().list_templates():
        build_environment().get_template(name)  # a server compiles all its pages
    _skip_preparations()
    gc.freeze()  # a collection would copy the imported modules
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno())
    exit_sockets: dict[int, int] = {}
    while True:
        ready = select.select([control, woken], [], [])[0]
        if woken in ready:
            woken.recv(4096)
            _reap_children(exit_sockets)
        if control in ready:
            header, handles, *_ = socket.recv_fds(control, LENGTH.size, 4)
            if not header:
                break
            order = json.loads(_receive_exactly(control, LENGTH.unpack(header)[0]))
            pid = os.fork()
            if not pid:
                _run_command(order, handles[:3])
            for handle in handles[:3]:
                os.close(handle)
            exit_sockets[pid] = handles[3]
            control.sendall(LENGTH.pack(pid))
    for pid in exit_sockets:
        os.kill(pid, signal.SIGKILL)


def _skip_preparations() -> None:
    """Make servers create the analysis process and the OpenAPI document when they are needed, which is seldom."""
    from aaiclick.server import app
    from aaiclick.server.analysis_pool import AnalysisPool

    async def skip(*_: object) -> None:
        """Prepare nothing."""

    AnalysisPool.warm_up = app._prepare_openapi = skip  # pyright: ignore[reportPrivateUsage]


def _receive_exactly(control: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += control.recv(count - len(data))
    return data


def _reap_children(exit_sockets: dict[int, int]) -> None:
    for pid in list(exit_sockets):
        reaped_pid, status = os.waitpid(pid, os.WNOHANG)
        if reaped_pid:
            with (
                socket.socket(fileno=exit_sockets.pop(pid)) as exit_socket,
                contextlib.suppress(OSError),
            ):  # the client may be gone
                exit_socket.send(LENGTH.pack(os.waitstatus_to_exitcode(status)), socket.MSG_NOSIGNAL)


def _run_command(order: dict[str, Any], handles: list[int]) -> NoReturn:
    subprocess._fork_exec = _replace_fork_exec(subprocess._fork_exec)  # pyright: ignore[reportAttributeAccessIssue]
    _reset_process_state(order["env"], order["cwd"])
    _run_as_new_process(handles, _find_program(order["program"], order["arguments"]))


def _reset_process_state(environment: dict[str, str], directory: str) -> None:
    """Set environment, directory and settings as a new interpreter would."""
    from aaiclick import failpoints
    from aaiclick.settings import get_settings

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.path[0] = directory
    get_settings.cache_clear()
    failpoints.arm_faults(*(os.environ.get(name, "") for name in failpoints.VARIABLES))  # as at its import


def _find_program(module: str, arguments: list[str]) -> Callable[[], object]:
    """`python -m` of one of `PROGRAMS`, or `python -c`."""
    from aaiclick.cli.main import main as command
    from aaiclick.orchestration.worker.main import main as worker

    if module == "-c":
        code, *arguments = arguments
        sys.argv = [module, *arguments]
        return lambda: exec(code, {"__name__": "__main__"})
    sys.argv = [module, *arguments]
    return {"aaiclick": command, "aaiclick.orchestration.worker.main": worker}[module]


def _replace_fork_exec(original: Callable[..., int]) -> Callable[..., int]:
    """Fork our own programs instead of starting them; the arguments are those of `subprocess._fork_exec`."""

    def fork_exec(*arguments_of_fork: Any) -> int:
        arguments = [os.fsdecode(word) for word in arguments_of_fork[0]]
        passed_fds, directory, variables, stdin, stdout, stderr = (
            arguments_of_fork[index] for index in (3, 4, 5, 6, 9, 11)
        )
        environment = dict(os.environ) if variables is None else _environment(variables)
        # The wrong clock of a chaos run applies from the start of the interpreter. A server starts child processes,
        # which libuv refuses in the fork of a process that has an event loop of uvloop.
        unforkable = "CHAOS_CLOCK" in environment or arguments[3:4] == ["server"]
        if arguments[1:2] != ["-m"] or arguments[2] not in PROGRAMS or unforkable:
            return original(*arguments_of_fork)
        pid = os.fork()
        if not pid:
            if arguments_of_fork[15]:
                os.setsid()
            _reset_process_state(environment, os.fsdecode(directory or os.getcwd()))
            streams = [old if old >= 0 else number for number, old in enumerate((stdin, stdout, stderr))]
            _run_as_new_process(
                streams, _find_program(arguments[2], arguments[3:]), {*passed_fds} - {arguments_of_fork[13]}
            )
        return pid

    return fork_exec


def _environment(variables: list[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs}


def _run_as_new_process(handles: list[int], work: Callable[[], object], passed: Iterable[int] = ()) -> NoReturn:
    """Run a function with these streams and passed handles, as in a new interpreter."""
    import atexit
    import contextvars
    import fcntl
    import threading

    signal.set_wakeup_fd(-1)
    for sign in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    duplicates = [fcntl.fcntl(handle, fcntl.F_DUPFD, 1000) for handle in handles]
    for number, handle in enumerate(duplicates):
        os.dup2(handle, number)
    left = [2, *sorted(passed), 2000]
    for below, above in itertools.pairwise(left):
        os.closerange(below + 1, above)
    # closefd=False: a fork of a fork has replaced them before, and must not close them.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    code: Any = 1
    try:
        contextvars.Context().run(work)  # without the context variables of the parent
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
