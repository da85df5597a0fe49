"""Secrets that are variables or files of this machine: AAICLICK_SECRETS_MAP, which the operator writes.

A DAG or a request has names only. What holds the installation's own passwords is never read: variables of ours and of
PostgreSQL, files below AAICLICK_HOME (also behind symbolic links), /proc.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from aaiclick.errors import SecretError
from aaiclick.settings import Settings, get_settings
from aaiclick.targets import OWN_VARIABLES, SYSTEM_DIRECTORIES, MappedSecret

MAX_BYTES = 65_536


def mapped_secrets(org: str, settings: Settings | None = None) -> dict[str, MappedSecret]:
    """The entries of an organisation, by name."""
    return {entry.name: entry for entry in (settings or get_settings()).secrets_map if entry.org == org}


def read_mapped_secret(entry: MappedSecret, settings: Settings | None = None) -> str:
    """The value; raises SecretError, which names the entry and not where it leads: tasks show their errors."""
    if entry.kind == "env":
        value = None if entry.place.upper().startswith(OWN_VARIABLES) else os.environ.get(entry.place)
    else:
        value = _read_file(Path(entry.place), (settings or get_settings()).home)
    if not value:
        raise SecretError(
            f"The secret {entry.name!r} cannot be read where it is resolved.",
            remedy=f"The operator corrects {entry.key} of AAICLICK_SECRETS_MAP, on workers beside the databases and on "
            "servers.",
        )
    return value


def _read_file(path: Path, home: Path) -> str | None:
    try:
        actual = path.resolve(strict=True)
        if actual.is_relative_to(home.resolve()) or str(actual).startswith(SYSTEM_DIRECTORIES):
            return None
        with actual.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(MAX_BYTES + 1)
        return None if len(data) > MAX_BYTES else data.decode().removesuffix("\n")
    except (OSError, ValueError):
        return None
