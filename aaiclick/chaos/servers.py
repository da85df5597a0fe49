"""Separate servers of a run, and programs that reach them through proxies.

The programs are workers on the databases, an API server, and workers that know only the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import psutil

from aaiclick.chaos.tcp_proxy import TcpProxy
from aaiclick.errors import StackError
from aaiclick.local.home import Home
from aaiclick.local.stack_connection import StackConnection, ask_keeper
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.migrate import upgrade_if_needed

HEARTBEAT_SECONDS = 1.0
LEASE_SECONDS = 5.0
CODE_VERSION = "chaos"
"""The version of the code that all workers run: jobs may be pinned to it."""
CONCURRENCY = 16
STOP_SECONDS = 30.0
FULL_DISK_BYTES = 65_536
CLOCK = """import ctypes, datetime, gc, os, time
def _shift():
    with open(os.environ["CHAOS_CLOCK"]) as file: return float(file.read())
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + int(_shift() * 1e9)
def _wrong(right, delta=datetime.timedelta):
    return classmethod(
        lambda cls, *zone, **zones: right.__get__(None, cls)(*zone, **zones) + delta(seconds=_shift()))
_methods = gc.get_referents(datetime.datetime.__dict__)[0]
for _name in ("now", "utcnow"):
    _methods[_name] = _wrong(_methods[_name])
ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))
"""
"""`sitecustomize.py` with a wrong wall clock, for Python child processes.

`datetime.now` does not call `time.time`, so it is patched in the class itself: C extensions hold a reference to that
class and would ignore a subclass."""


class Servers:
    """PostgreSQL and ClickHouse; the stack keeper restarts a killed one."""

    def __init__(self, directory: Path) -> None:
        self._home = Home(directory / "home")
        self._stack_connection = StackConnection(self._home, linger_seconds=5)
        self.postgres: PostgresEndpoint
        self.clickhouse: ClickHouseEndpoint

    async def start(self) -> None:
        await asyncio.to_thread(self._stack_connection.require_servers, "postgres", "clickhouse")
        self.postgres, self.clickhouse = (
            self._stack_connection.postgres_endpoint(),
            self._stack_connection.clickhouse_endpoint(),
        )
        await upgrade_if_needed(self.postgres)

    def kill(self, name: str) -> bool:
        with contextlib.suppress(StackError, ProcessLookupError, KeyError):
            os.kill(self.pids()[name], signal.SIGKILL)
            return True
        return False

    def pids(self) -> dict[str, int]:
        """Return the process ids of running servers."""
        status = ask_keeper(self._home, {"op": "status"}) or {"status": {"servers": {}}}
        return {name: server["pid"] for name, server in status["status"]["servers"].items() if server["pid"]}

    def stop(self) -> None:
        self._stack_connection.close()
        with contextlib.suppress(StackError):
            ask_keeper(self._home, {"op": "stop"})

    def make_proxy(self, server: str) -> TcpProxy:
        if server == "postgres":
            return TcpProxy(f"{self.postgres.host}/.s.PGSQL.{self.postgres.port}")
        return TcpProxy((self.clickhouse.host, self.clickhouse.port))


@dataclass(eq=False)
class Route:
    """The proxies between one process and its servers; `queue` is PostgreSQL, or the API server for HTTP workers."""

    proxies: dict[str, TcpProxy]
    postgres: PostgresEndpoint
    clickhouse: ClickHouseEndpoint

    @classmethod
    async def make(cls, servers: Servers, api_port: int | None = None, *, data: bool = True) -> Route:
        """Start the proxies; with `data` also one to ClickHouse."""
        queue = servers.make_proxy("postgres") if api_port is None else TcpProxy(("127.0.0.1", api_port))
        proxies = {"queue": queue} | ({"clickhouse": servers.make_proxy("clickhouse")} if data else {})
        for proxy in proxies.values():
            await proxy.start()
        return cls(
            proxies,
            replace(servers.postgres, host="127.0.0.1", port=queue.port, options=(("sslmode", "disable"),)),
            replace(servers.clickhouse, port=proxies["clickhouse"].port if data else 0),
        )

    async def add(self, name: str, proxy: TcpProxy) -> None:
        """Add a proxy."""
        self.proxies[name] = proxy
        await proxy.start()

    async def close(self) -> None:
        for proxy in self.proxies.values():
            await proxy.stop()


class Program:
    """An aaiclick command, its processes and its route to the servers."""

    name = "program"

    def __init__(self, number: int, directory: Path, way: Route, variables: Mapping[str, str]) -> None:
        self.number = number
        self._extra_variables = variables
        self.route = way
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._known_processes: set[psutil.Process] = set()
        self._disk: Path | None = None

    def start(self, *, clock_seconds: float = 0.0, full_disk: bool = False) -> None:
        logs = self._directory / f"logs of {self.name} {self.number}"
        logs.mkdir(exist_ok=True)
        if full_disk and _mount_small_disk(logs):
            self._disk = logs
        environment = {**os.environ, **self._variables(logs)}
        if clock_seconds:
            environment |= make_wrong_clock(self._directory, clock_seconds)
        with (self._directory / f"{self.name}{self.number}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "aaiclick", *self._command()],
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _variables(self, logs: Path) -> dict[str, str]:
        return {
            "AAICLICK_DATABASE_URL": self.route.postgres.dsn,
            "AAICLICK_CLICKHOUSE_URL": self.route.clickhouse.url,
            "AAICLICK_LOG_DIR": str(logs),
            "TMPDIR": str(self._directory),  # killed processes do not remove their files
            "AAICLICK_TASK_MODULES": "aaiclick.chaos.tasks,aaiclick.operators,aaiclick.catalog",
            "WORKER_HEARTBEAT_INTERVAL": str(HEARTBEAT_SECONDS),
            "WORKER_TIMEOUT": str(LEASE_SECONDS),
            "WORKER_MAX_RETRIES": "100",
            **self._extra_variables,
        }

    @property
    def has_full_disk(self) -> bool:
        return self._disk is not None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def processes(self) -> list[psutil.Process]:
        """Return the supervisor first, then its child processes."""
        with contextlib.suppress(psutil.Error):
            supervisor = psutil.Process(self.pid)
            processes = [supervisor, *supervisor.children(recursive=True)]
            self._known_processes.update(processes)
            return processes
        return []

    def list_remaining(self) -> list[int]:
        """Return the ids of its processes that are still running."""
        pids: list[int] = []
        for process in self._known_processes:
            with contextlib.suppress(psutil.Error):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    pids.append(process.pid)
        return pids

    async def stop(self) -> None:
        """Stop gracefully."""
        self.processes()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)

    async def kill_all(self) -> None:
        """Kill all its processes, close its proxies and unmount its disk."""
        self.processes()
        for process in self._known_processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        await self.route.close()
        if self._disk is not None:
            subprocess.run(["umount", "--lazy", self._disk], check=False, capture_output=True)  # noqa: S607, ASYNC221
            self._disk = None


class ChaosWorker(Program):
    """`aaiclick worker start` on the databases."""

    name = "worker"

    def _command(self) -> list[str]:
        options = ["--processes", "1", "--concurrency", str(CONCURRENCY), "--code-version", CODE_VERSION]
        return ["worker", "start", *options]


class ApiServer(Program):
    """`aaiclick server start`, always at the same port."""

    name = "server"

    def __init__(self, directory: Path, way: Route, variables: Mapping[str, str]) -> None:
        super().__init__(1, directory, way, variables)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def _command(self) -> list[str]:
        return ["server", "start", "--host", "127.0.0.1", "--port", str(self.port)]


class HttpWorker(ChaosWorker):
    """`aaiclick worker start --server`: has an API key, and no database connection."""

    def __init__(self, number: int, directory: Path, way: Route, variables: Mapping[str, str], key: str) -> None:
        super().__init__(number, directory, way, variables)
        self._key = key

    def _variables(self, logs: Path) -> dict[str, str]:
        hidden = ("AAICLICK_DATABASE_URL", "AAICLICK_CLICKHOUSE_URL")
        variables = {name: value for name, value in super()._variables(logs).items() if name not in hidden}
        return variables | {
            "AAICLICK_SERVER": f"http://127.0.0.1:{self.route.proxies['queue'].port}",
            "AAICLICK_API_KEY": self._key,
        }


def make_wrong_clock(directory: Path, seconds: float) -> dict[str, str]:
    """Return the environment of a process with a clock that is wrong by `seconds`; see `set_clock`."""
    (directory / "clock").mkdir(exist_ok=True)
    (directory / "clock" / "sitecustomize.py").write_text(CLOCK)
    paths = [str(directory / "clock"), os.environ.get("PYTHONPATH", "")]
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CHAOS_CLOCK": str(directory / "clock" / f"shift {uuid4().hex}"),
    }
    set_clock(variables, seconds)
    return variables


def set_clock(variables: Mapping[str, str], seconds: float) -> None:
    """Change the clock offset of running processes with this environment."""
    path = Path(variables["CHAOS_CLOCK"])
    path.with_suffix(".new").write_text(str(seconds))
    path.with_suffix(".new").replace(path)


def _mount_small_disk(directory: Path) -> bool:
    """Mount a small disk that fills up soon; returns False without the permission."""
    options = f"size={FULL_DISK_BYTES}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "chaos", directory],  # noqa: S607
        check=False,
        capture_output=True,
    )
    return done.returncode == 0
