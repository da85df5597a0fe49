"""AAICLICK_HOME, the directory with the embedded stack's state: its layout and the checks before use.

format.json      version of the layout and of aaiclick; a newer layout is refused
secrets.json     passwords of both servers, created once, readable by the owner only
secrets.key      keys that encrypt organisations' secrets, unless AAICLICK_SECRETS_KEY is set
keeper.lock      held by the keeper process
start.lock       held while a process starts a keeper
run/             sockets (in a short private directory elsewhere if the path is too long for a socket)
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
"""Length of a unix socket's path in bytes that every system accepts (Linux 107, macOS 103)."""

LOCK_SECONDS = 120.0
TEMPORARY_PREFIXES = (".format.json.", ".secrets.json.", ".secrets.key.")
"""Names of the temporary files of `write_private`, which another process may be writing."""

CHOOSE_ANOTHER = "Set AAICLICK_HOME to a directory that you own and can write to."


@dataclass(frozen=True)
class Secrets:
    """Credentials of the embedded servers, against other users of the machine."""

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
        """Directory of the sockets: in the home, or a short private directory named by the home's hash."""
        usual = self.path / "run"
        if len(os.fsencode(usual / ".s.PGSQL.5432.lock")) <= SOCKET_PATH_LIMIT:
            return usual
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path(f"/tmp/aaiclick-{os.geteuid()}-{digest}")  # noqa: S108  (private, owner checked in `prepare`)

    @property
    def keeper_socket(self) -> Path:
        return self.run / "keeper.sock"

    def log_path(self, server: str) -> Path:
        return self.logs / f"{server}.log"

    def prepare(self) -> None:
        """Create missing directories and files; refuse a directory of another user or another program."""
        try:
            self._check_contents()
            for directory in (self.path, self.run, self.logs, self.postgres, self.clickhouse):
                _make_private_directory(directory)
            with file_lock(self.start_lock):
                self._check_format()
                self._create_secrets()
        except OSError as error:
            raise _unusable_home(self.path, error) from None

    def prepare_run(self) -> None:
        """Create the directory of the sockets."""
        try:
            _make_private_directory(self.run)
        except OSError as error:
            raise _unusable_home(self.run, error) from None

    def owns_sockets(self) -> bool:
        """Whether this user owns the directory of the sockets: in /tmp another user may have created it first."""
        try:
            status = self.run.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()

    def _check_contents(self) -> None:
        """Refuse a directory that is neither empty nor a home."""
        own_names = {"secrets.json", "secrets.key", "keeper.lock", "start.lock", "up.lock"}
        own_names |= {"run", "logs", "postgres", "clickhouse"}
        try:
            names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(TEMPORARY_PREFIXES)}
        except (FileNotFoundError, NotADirectoryError):
            return
        if "format.json" not in names and names - own_names:
            raise HomeError(
                f"AAICLICK_HOME={self.path} contains other files ({min(names - own_names)} …).",
                remedy="Set AAICLICK_HOME to a directory that is empty or does not exist.",
            )

    def read_secrets(self) -> Secrets:
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
            content = json.loads(file.read_text())
            is_supported = int(content["format"]) <= FORMAT
        except (ValueError, TypeError, KeyError):
            raise HomeError(f"{file} is damaged.", remedy=f"Restore it from a backup. {CHOOSE_ANOTHER}") from None
        if not is_supported:
            raise HomeError(
                f"{self.path} was made by aaiclick {content.get('made_by', '?')} (format {content['format']}); "
                f"this is aaiclick {__version__}, which supports format {FORMAT}.",
                remedy="Upgrade aaiclick, or set AAICLICK_HOME to another directory.",
            )

    def _create_secrets(self) -> None:
        if self._secrets_file.exists():
            return
        if (self.postgres / "data").exists():
            raise HomeError(
                f"{self._secrets_file}, which holds the passwords of the servers in {self.path}, is missing.",
                remedy="Restore that file from a backup, or set AAICLICK_HOME to a new directory.",
            )
        new_secrets = Secrets(*(secrets.token_urlsafe(32) for _ in range(3)))
        write_private(self._secrets_file, json.dumps(new_secrets.__dict__))


def write_private(file: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(file)


@contextlib.contextmanager
def file_lock(file: Path) -> Generator[None]:
    """Hold an exclusive file lock between processes; the kernel releases it if the process dies."""
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


def _make_private_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.is_symlink():
        raise HomeError(f"{directory} is a symbolic link.", remedy=CHOOSE_ANOTHER)
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if status.st_uid != os.geteuid():
        raise HomeError(f"{directory} belongs to another user (uid {status.st_uid}).", remedy=CHOOSE_ANOTHER)
    if status.st_mode & 0o077:
        directory.chmod(0o700)


def _unusable_home(path: Path, error: OSError) -> HomeError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HomeError(f"No space is left for {path}.", remedy="Free some space, or set AAICLICK_HOME elsewhere.")
    return HomeError(f"AAICLICK_HOME={path} cannot be used: {error.strerror or error}.", remedy=CHOOSE_ANOTHER)
