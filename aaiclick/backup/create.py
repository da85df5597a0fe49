"""`aaiclick backup`: write a directory with both databases of one moment."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import uuid4

from aaiclick._version import __version__
from aaiclick.backup import clickhouse_backup
from aaiclick.backup.consistent_snapshot import open_snapshot
from aaiclick.backup.pg_dump_and_restore import dump_database
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import HomeError, NotFoundError
from aaiclick.local.home import Home
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store.migrations import HEAD

FORMAT = 1
MANIFEST, DUMP, CLICKHOUSE, KEYS = "backup.json", "postgres.dump", "clickhouse", "secrets.key"


@dataclass(frozen=True)
class Manifest:
    """Contents of a backup; written last, so a directory without it is incomplete."""

    format: int
    version: str
    revision: str
    taken_at: str
    database: str
    databases: list[str]
    target: str
    """Where ClickHouse wrote to; empty if the files are in the directory."""

    bytes: int
    locked_seconds: float

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the manifest; raises NotFoundError if the directory is not a complete backup of this format."""
        try:
            manifest = cls(**json.loads((directory / MANIFEST).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise NotFoundError(
                f"{directory} contains no complete backup: {error}.",
                remedy="Name a directory that 'aaiclick backup' has written.",
            ) from None
        if manifest.format != FORMAT:
            raise NotFoundError(
                f"{directory} has format {manifest.format}; this version of aaiclick reads format {FORMAT}.",
                remedy=f"Restore it with aaiclick {manifest.version}.",
            )
        return manifest


async def create_backup(
    postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint, directory: Path, *, home: Home, target: str | None
) -> Manifest:
    """Back up both databases into a new directory; `target` is where ClickHouse writes to, by default the directory."""
    _create_directory(directory)
    client = await connect_clickhouse(clickhouse)
    databases = await clickhouse_backup.list_databases(client)
    name = f"{directory.name}-{uuid4().hex[:12]}"
    destination = target or f"File('{name}')"
    async with open_snapshot(postgres) as cut:
        taken_at = datetime.now(UTC)
        backup_id = await clickhouse_backup.start_backup(client, databases, destination)
        await cut.release_locks()
        async with asyncio.TaskGroup() as group:
            group.create_task(dump_database(postgres, directory / DUMP, cut.snapshot))
            written = group.create_task(clickhouse_backup.wait_for_backup(client, backup_id))
    if target is None:
        shutil.move(home.clickhouse / "backups" / name, directory / CLICKHOUSE)
    _copy_keys(home, directory)
    size = written.result() + (directory / DUMP).stat().st_size
    manifest = Manifest(
        FORMAT, __version__, HEAD, taken_at.isoformat(), clickhouse.database, databases, target or "", size,
        round(cut.locked_seconds, 3),
    )  # fmt: skip
    (directory / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n")
    return manifest


def _create_directory(directory: Path) -> None:
    """Create a directory that only this user can read; refuse one with files."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        has_files = any(directory.iterdir())
    except OSError as error:
        raise HomeError(
            f"{directory} cannot be written: {error.strerror}.", remedy="Choose another directory."
        ) from None
    if has_files:
        raise HomeError(f"{directory} is not empty.", remedy="Name a new directory for each backup.")


def _copy_keys(home: Home, directory: Path) -> None:
    """Copy the key file of organisations' secrets; a key in AAICLICK_SECRETS_KEY is not written anywhere."""
    if (home.path / KEYS).exists():
        shutil.copy(home.path / KEYS, directory / KEYS)
        os.chmod(directory / KEYS, 0o600)  # noqa: PTH101
