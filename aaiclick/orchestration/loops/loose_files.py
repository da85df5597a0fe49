"""Files of datasets that were replaced, or written by attempts that died, are deleted when nobody can read them.

As with tables, an end has three steps: the file is *marked* in PostgreSQL, *deleted*, and *forgotten*; a crash leaves a
mark, and whoever finds it later goes on. Which files they are PostgreSQL says, never what lies under a prefix: other
files are never touched. Those on the disk of a ClickHouse that runs elsewhere stay until a process beside it looks.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from aaiclick.data.s3 import SCHEME, S3Access, S3Object, delete
from aaiclick.errors import AaiclickError
from aaiclick.store import loose_files
from aaiclick.store.loose_files import LooseFile

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

log = logging.getLogger(__name__)

_OURS = re.compile(r"\d+-\d+-\d+\.parquet")
"""How attempts name their files: by ticket, task and attempt."""


async def delete_loose_files(
    connection: Connection,
    *,
    kept_seconds: float = loose_files.KEPT_SECONDS,
    again_seconds: float = loose_files.AGAIN_SECONDS,
) -> int:
    """One pass; returns how many files are gone. What cannot be deleted from here stays known."""
    total = 0
    while found := await loose_files.mark(connection, kept_seconds=kept_seconds, again_seconds=again_seconds):
        gone = [each for each in found if await _delete(each)]
        await loose_files.forget(connection, gone)
        total += len(gone)
        if len(found) < loose_files.AT_ONCE:
            break
    return total


async def _delete(file: LooseFile) -> bool:
    """Whether it is gone."""
    path = f"{file.location}{file.name}"
    if not (_OURS.fullmatch(file.name) and file.location.endswith(f"/{file.generation}/")):
        log.warning("%s is not a file of ours, and stays.", path)
        return False
    try:
        if path.startswith(SCHEME):
            await delete(S3Object.parse(path), S3Access.from_environment())
            return True
        return await asyncio.to_thread(_unlink, Path(path))
    except (AaiclickError, OSError) as error:
        log.warning("%s could not be deleted, and is tried again later: %s", path, error)
        return False


def _unlink(path: Path) -> bool:
    """Also if it was never written; but not if its directory is not on this machine."""
    if not path.parent.is_dir():
        return False
    path.unlink(missing_ok=True)
    return True
