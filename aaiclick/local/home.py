"""The directory that holds the embedded stack's state: what lies where, and whether we may use it.

format.json      who made it and in which format: a newer one is refused, not guessed at
secrets.json     passwords of both servers, made once, readable by the owner alone
secrets.key      keys that organisations' secrets are encrypted with, unless AAICLICK_SECRETS_KEY has them
keeper.lock      held by the one keeper process
start.lock       held while somebody starts a keeper
run/             sockets (moved to a short private directory when the path is too long for one)
postgres/        the PostgreSQL cluster
clickhouse/      ClickHouse's data and the configuration generated for it
logs/            postgres.log, clickhouse.log, keeper.log
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from aaiclick._version import __version__
from aaiclick.errors import HomeError

FORMAT = 1
SOCKET_PATH_LIMIT = 100
"""Bytes of a unix socket's path that every system takes (Linux 107, macOS 103)."""

LOCK_SECONDS = 120.0
TEMPORARY = (".format.json.", ".secrets.json.", ".secrets.key.")
"""What `write_private` makes for a moment, perhaps in another process."""

CHOOSE_ANOTHER = "Set AAICLICK_HOME to a directory that you own and can write to."


@dataclass(frozen=True)
class Secrets:
    """What guards the embedded servers from other users of the machine."""

    postgres_password: str
    clickhouse_password: str
    clickhouse_path: str


@dataclass(frozen=True)
class Home:
    """One AAICLICK_HOME."""

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def clickhouse(self) -> Path:
        return self.path / "clickhouse"

    @property
    def keeper_lock(self) -> Path:
        return self.path / "keeper.lock"

    @property
    def start_lock(self) -> Path:
        return self.path / "start.lock"

    @property
    def run(self) -> Path:
        """Where the sockets are: in the home, or in a short private directory named after it."""
        usual = self.path / "run"
        if len(os.fsencode(usual / ".s.PGSQL.5432.lock")) <= SOCKET_PATH_LIMIT:
            return usual
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path(f"/tmp/aaiclick-{os.geteuid()}-{digest}")  # noqa: S108  (private, owner checked in `prepare`)

    @property
    def keeper_socket(self) -> Path:
        return self.run / "keeper.sock"

    def log_of(self, server: str) -> Path:
        return self.logs / f"{server}.log"

    def prepare(self) -> None:
        """Create what is missing and refuse what is not ours; cheap when all is there."""
        try:
            self._refuse_foreign()
            for directory in (self.path, self.run, self.logs, self.postgres, self.clickhouse):
                _private_directory(directory)
            with locked(self.start_lock):
                self._check_format()
                self._make_secrets()
        except OSError as error:
            raise _unusable(self.path, error) from None

    def prepare_run(self) -> None:
        """Create the directory of the sockets alone."""
        try:
            _private_directory(self.run)
        except OSError as error:
            raise _unusable(self.run, error) from None

    def is_private(self) -> bool:
        """Whether the directory of the sockets is ours: in /tmp somebody else may have made it first."""
        try:
            found = self.run.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()

    def _refuse_foreign(self) -> None:
        """Make a home of nothing or of an empty directory, never of one that holds something else."""
        known = {"secrets.json", "secrets.key", "keeper.lock", "start.lock", "up.lock"}
        known |= {"run", "logs", "postgres", "clickhouse"}
        try:
            found = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(TEMPORARY)}
        except (FileNotFoundError, NotADirectoryError):
            return
        if "format.json" not in found and found - known:
            raise HomeError(
                f"AAICLICK_HOME={self.path} holds something else already ({min(found - known)} …).",
                remedy="Set AAICLICK_HOME to a directory that is empty or does not exist.",
            )

    def secrets(self) -> Secrets:
        try:
            return Secrets(**json.loads(self._secrets_file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise HomeError(
                f"The passwords of the embedded servers cannot be read from {self._secrets_file}: {error}.",
                remedy="Restore that file from a backup, or set AAICLICK_HOME to a new directory.",
            ) from None

    @property
    def _secrets_file(self) -> Path:
        return self.path / "secrets.json"

    def _check_format(self) -> None:
        file = self.path / "format.json"
        if not file.exists():
            write_private(file, json.dumps({"format": FORMAT, "made_by": __version__}))
            return
        try:
            found = json.loads(file.read_text())
            known = int(found["format"]) <= FORMAT
        except (ValueError, TypeError, KeyError):
            raise HomeError(f"{file} is damaged.", remedy=f"Restore it from a backup. {CHOOSE_ANOTHER}") from None
        if not known:
            raise HomeError(
                f"{self.path} was made by aaiclick {found.get('made_by', '?')} (format {found['format']}); "
                f"this is aaiclick {__version__}, which knows format {FORMAT}.",
                remedy="Upgrade aaiclick, or set AAICLICK_HOME to another directory.",
            )

    def _make_secrets(self) -> None:
        if self._secrets_file.exists():
            return
        if (self.postgres / "data").exists():
            raise HomeError(
                f"{self._secrets_file} is gone, and with it the passwords of the servers in {self.path}.",
                remedy="Restore that file from a backup, or set AAICLICK_HOME to a new directory.",
            )
        made = Secrets(*(secrets.token_urlsafe(32) for _ in range(3)))
        write_private(self._secrets_file, json.dumps(made.__dict__))


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner reads: whole or not at all."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(file)


@contextlib.contextmanager
def locked(file: Path) -> Generator[None]:
    """Hold a lock between processes; the kernel releases it if we die."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise HomeError(
                        f"Another process has held {file} for {LOCK_SECONDS:.0f} s.",
                        remedy=f"End it: fuser -k '{file}'",
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _private_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.is_symlink():
        raise HomeError(f"{directory} is a symbolic link.", remedy=CHOOSE_ANOTHER)
    found = directory.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if found.st_uid != os.geteuid():
        raise HomeError(f"{directory} belongs to another user (uid {found.st_uid}).", remedy=CHOOSE_ANOTHER)
    if found.st_mode & 0o077:
        directory.chmod(0o700)


def _unusable(path: Path, error: OSError) -> HomeError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HomeError(f"No space is left for {path}.", remedy="Free some space, or set AAICLICK_HOME elsewhere.")
    return HomeError(f"AAICLICK_HOME={path} cannot be used: {error.strerror or error}.", remedy=CHOOSE_ANOTHER)
