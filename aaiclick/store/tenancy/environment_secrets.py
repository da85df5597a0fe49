"""Secrets from environment variables or files of this machine, by the operator's AAICLICK_SECRETS_MAP.

DAGs and requests contain names only. Sources that may hold passwords of the installation are never read: variables of
aaiclick and PostgreSQL, files below AAICLICK_HOME (also behind symbolic links), /proc.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from aaiclick.errors import SecretError
from aaiclick.server_addresses import OWN_VARIABLES, SYSTEM_DIRECTORIES, MappedSecret
from aaiclick.settings import Settings, get_settings

MAX_BYTES = 65_536


def load_mapped_secrets(org: str, settings: Settings | None = None) -> dict[str, MappedSecret]:
    """The entries of an organisation, by name."""
    return {entry.name: entry for entry in (settings or get_settings()).secrets_map if entry.org == org}


def read_mapped_secret(entry: MappedSecret, settings: Settings | None = None) -> str:
    """The value of an entry; raises SecretError, which does not name the location, since tasks show their errors."""
    if entry.source == "env":
        value = None if entry.location.upper().startswith(OWN_VARIABLES) else os.environ.get(entry.location)
    else:
        value = _read_file(Path(entry.location), (settings or get_settings()).home)
    if not value:
        raise SecretError(
            f"The secret {entry.name!r} cannot be read where it is resolved.",
            remedy=f"The operator corrects {entry.key} of AAICLICK_SECRETS_MAP, on workers with database access and on "
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
