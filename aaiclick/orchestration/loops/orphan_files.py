"""Orphan files: deletes files of replaced datasets and of failed attempts.

As with tables there are three steps: a file is *marked* in PostgreSQL, *deleted*, and its row *removed*; after a crash
a later pass finds the mark and continues. Only files recorded in PostgreSQL are deleted, never all files under a
prefix. Files on the disk of a remote ClickHouse are deleted by a process on that machine.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from aaiclick.data.io.s3_client import SCHEME, S3Access, S3Object, delete_object
from aaiclick.errors import AaiclickError
from aaiclick.store.catalog import orphan_files
from aaiclick.store.catalog.orphan_files import OrphanFile

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

log = logging.getLogger(__name__)

_FILE_NAME = re.compile(r"\d+-\d+-\d+-\d+\.parquet")
"""File names of attempts: ticket, task, attempt, and number of the file."""


async def delete_orphan_files(
    connection: Connection,
    *,
    retention_seconds: float = orphan_files.RETENTION_SECONDS,
    retry_seconds: float = orphan_files.RETRY_SECONDS,
) -> int:
    """Run one pass; returns how many files were deleted. Files that cannot be deleted stay recorded."""
    total = 0
    while files := await orphan_files.mark_orphan_files(
        connection, retention_seconds=retention_seconds, retry_seconds=retry_seconds
    ):
        deleted = [file for file in files if await _delete_file(file)]
        await orphan_files.delete_orphan_files(connection, deleted)
        total += len(deleted)
        if len(files) < orphan_files.BATCH_SIZE:
            break
    return total


async def _delete_file(file: OrphanFile) -> bool:
    """Delete a file; returns whether it is gone."""
    path = f"{file.location}{file.name}"
    if not (_FILE_NAME.fullmatch(file.name) and file.location.endswith(f"/{file.generation}/")):
        log.warning("%s does not have the name of a dataset file; it is not deleted.", path)
        return False
    try:
        if path.startswith(SCHEME):
            await delete_object(S3Object.parse(path), S3Access.from_environment())
            return True
        return await asyncio.to_thread(_unlink_file, Path(path))
    except (AaiclickError, OSError) as error:
        log.warning("%s could not be deleted, and will be retried: %s", path, error)
        return False


def _unlink_file(path: Path) -> bool:
    """Delete a file that may not exist; False if its directory is not on this machine."""
    if not path.parent.is_dir():
        return False
    path.unlink(missing_ok=True)
    return True
