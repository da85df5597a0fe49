"""The servers of a run, in a home of their own, and programs that reach them through proxies of their own: workers on
the databases, an API server, and workers that know nothing but that.
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

from aaiclick.chaos.proxy import Proxy
from aaiclick.errors import StackError
from aaiclick.local.home import Home
from aaiclick.local.lease import Lease, ask
from aaiclick.store.migrate import ensure_current
from aaiclick.targets import ClickHouseTarget, PostgresTarget

HEARTBEAT_SECONDS = 1.0
LEASE_SECONDS = 5.0
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
"""A wall clock that is wrong, for every Python process below.

`datetime.now` asks the system and not `time.time`. It is changed in the class itself: drivers written in C know that
class, and no other that would take its place."""


class Servers:
    """PostgreSQL and ClickHouse; whoever kills one gets it back from their keeper."""

    def __init__(self, directory: Path) -> None:
        self._home = Home(directory / "home")
        self._lease = Lease(self._home, linger_seconds=5)
        self.postgres: PostgresTarget
        self.clickhouse: ClickHouseTarget

    async def start(self) -> None:
        await asyncio.to_thread(self._lease.require, "postgres", "clickhouse")
        self.postgres, self.clickhouse = self._lease.postgres(), self._lease.clickhouse()
        await ensure_current(self.postgres)

    def kill(self, name: str) -> bool:
        with contextlib.suppress(StackError, ProcessLookupError, KeyError):
            os.kill(self.pids()[name], signal.SIGKILL)
            return True
        return False

    def pids(self) -> dict[str, int]:
        """Of those that run."""
        answer = ask(self._home, {"op": "status"}) or {"status": {"servers": {}}}
        return {name: each["pid"] for name, each in answer["status"]["servers"].items() if each["pid"]}

    def stop(self) -> None:
        self._lease.close()
        with contextlib.suppress(StackError):
            ask(self._home, {"op": "stop"})

    def proxy_of(self, server: str) -> Proxy:
        if server == "postgres":
            return Proxy(f"{self.postgres.host}/.s.PGSQL.{self.postgres.port}")
        return Proxy((self.clickhouse.host, self.clickhouse.port))


@dataclass(eq=False)
class Way:
    """How one process reaches the servers that it uses; `queue` is PostgreSQL, or the API server for those who go
    there.
    """

    lines: dict[str, Proxy]
    to_postgres: PostgresTarget
    to_clickhouse: ClickHouseTarget

    @classmethod
    async def make(cls, servers: Servers, api_port: int | None = None, *, data: bool = True) -> Way:
        """With `data` also to ClickHouse."""
        queue = servers.proxy_of("postgres") if api_port is None else Proxy(("127.0.0.1", api_port))
        lines = {"queue": queue} | ({"clickhouse": servers.proxy_of("clickhouse")} if data else {})
        for proxy in lines.values():
            await proxy.start()
        return cls(
            lines,
            replace(servers.postgres, host="127.0.0.1", port=queue.port, options=(("sslmode", "disable"),)),
            replace(servers.clickhouse, port=lines["clickhouse"].port if data else 0),
        )

    async def add(self, name: str, proxy: Proxy) -> None:
        """One more line."""
        self.lines[name] = proxy
        await proxy.start()

    async def close(self) -> None:
        for proxy in self.lines.values():
            await proxy.stop()


class Program:
    """One command of ours, its processes and its way to the servers."""

    name = "program"

    def __init__(self, number: int, directory: Path, way: Way, variables: Mapping[str, str]) -> None:
        self.number = number
        self._more = variables
        self.way = way
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._known: set[psutil.Process] = set()
        self._disk: Path | None = None

    def start(self, *, clock_seconds: float = 0.0, full_disk: bool = False) -> None:
        logs = self._directory / f"logs of {self.name} {self.number}"
        logs.mkdir(exist_ok=True)
        if full_disk and _mount(logs):
            self._disk = logs
        environment = {**os.environ, **self._variables(logs)}
        if clock_seconds:
            environment |= wrong_clock(self._directory, clock_seconds)
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
            "AAICLICK_DATABASE_URL": self.way.to_postgres.dsn,
            "AAICLICK_CLICKHOUSE_URL": self.way.to_clickhouse.url,
            "AAICLICK_LOG_DIR": str(logs),
            "TMPDIR": str(self._directory),  # who is killed clears nothing away
            "AAICLICK_TASK_MODULES": "aaiclick.chaos.bodies,aaiclick.operators,aaiclick.catalog",
            "WORKER_HEARTBEAT_INTERVAL": str(HEARTBEAT_SECONDS),
            "WORKER_TIMEOUT": str(LEASE_SECONDS),
            "WORKER_MAX_RETRIES": "100",
            **self._more,
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
        """The supervisor first, then what it started."""
        with contextlib.suppress(psutil.Error):
            supervisor = psutil.Process(self.pid)
            found = [supervisor, *supervisor.children(recursive=True)]
            self._known.update(found)
            return found
        return []

    def left(self) -> list[int]:
        """Those of its processes that still live."""
        found: list[int] = []
        for process in self._known:
            with contextlib.suppress(psutil.Error):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found

    async def stop(self) -> None:
        """In good order."""
        self.processes()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)

    async def clear(self) -> None:
        """Leave nothing of it."""
        self.processes()
        for process in self._known:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        await self.way.close()
        if self._disk is not None:
            subprocess.run(["umount", "--lazy", self._disk], check=False, capture_output=True)  # noqa: S607, ASYNC221
            self._disk = None


class Worker(Program):
    """`aaiclick worker start` on the databases."""

    name = "worker"

    def _command(self) -> list[str]:
        return ["worker", "start", "--processes", "1", "--concurrency", str(CONCURRENCY)]


class ApiServer(Program):
    """`aaiclick server start`, always at the same port."""

    name = "server"

    def __init__(self, directory: Path, way: Way, variables: Mapping[str, str]) -> None:
        super().__init__(1, directory, way, variables)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def _command(self) -> list[str]:
        return ["server", "start", "--host", "127.0.0.1", "--port", str(self.port)]


class ServedWorker(Worker):
    """`aaiclick worker start --server`: it has a key, and no database."""

    def __init__(self, number: int, directory: Path, way: Way, variables: Mapping[str, str], key: str) -> None:
        super().__init__(number, directory, way, variables)
        self._key = key

    def _variables(self, logs: Path) -> dict[str, str]:
        hidden = ("AAICLICK_DATABASE_URL", "AAICLICK_CLICKHOUSE_URL")
        known = {name: value for name, value in super()._variables(logs).items() if name not in hidden}
        return known | {
            "AAICLICK_SERVER": f"http://127.0.0.1:{self.way.lines['queue'].port}",
            "AAICLICK_API_KEY": self._key,
        }


def wrong_clock(directory: Path, seconds: float) -> dict[str, str]:
    """The environment of a process whose clock is wrong by that much; see `set_clock`."""
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
    """Have the clock of running processes with this environment jump to be wrong by that much."""
    path = Path(variables["CHAOS_CLOCK"])
    path.with_suffix(".new").write_text(str(seconds))
    path.with_suffix(".new").replace(path)


def _mount(directory: Path) -> bool:
    """A disk of its own, so small that it is soon full; only who may mount can have one."""
    options = f"size={FULL_DISK_BYTES}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "chaos", directory],  # noqa: S607
        check=False,
        capture_output=True,
    )
    return done.returncode == 0
