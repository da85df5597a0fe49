"""Task logs in the log directory of this server.

A worker on another machine keeps its logs there unless the directory is shared or it sends them. The path is derived
from the task id and the settings; a path that a worker reports is never opened, since it could name any file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from aaiclick.operations.log_files import log_path, read_part
from aaiclick.server.sse import ServerSentEvent
from aaiclick.settings import Settings

MAX_PART_BYTES = 1_000_000
MAX_LOG_BYTES = 11_000_000
"""Maximum log size of one attempt; a worker stops before that."""

POLL_SECONDS = 0.3


async def write_part(settings: Settings, task_id: int, attempt: int, offset: int, text: str) -> None:
    """Write a part that a remote worker sends at its offset within the attempt, which makes repeats harmless."""
    path = log_path(settings, task_id)
    await asyncio.to_thread(
        _write_file, path, f"=== attempt {attempt},".encode(), offset, text.encode(errors="replace")
    )


def _write_file(path: Path, header: bytes, offset: int, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        file.seek(_attempt_offset(file, header) + min(offset, MAX_LOG_BYTES))
        file.write(data[: max(0, MAX_LOG_BYTES - offset)])


def _attempt_offset(file: BinaryIO, header: bytes) -> int:
    """Offset of the attempt's log: at its header line, or on a new line at the end of the file."""
    content = b"\n" + file.read()
    offset = content.find(b"\n" + header)
    if offset >= 0:
        return offset
    if not content.endswith(b"\n"):  # the previous attempt ended without a newline
        file.write(b"\n")
    return file.tell()


async def follow_log(
    settings: Settings, task_id: int, has_ended: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[ServerSentEvent | None]:
    """Yield parts of a log as they are written, None while there is nothing new, and `end` after the task."""
    offset = 0
    while True:
        ended = await has_ended()
        while True:
            text, next_offset = await read_part(log_path(settings, task_id), offset, MAX_PART_BYTES)
            if next_offset <= offset:
                break
            offset = next_offset
            yield ServerSentEvent("log", {"text": text, "next_offset": offset}, str(offset))
        if ended:
            yield ServerSentEvent("end", {"next_offset": offset})
            return
        yield None
        await asyncio.sleep(POLL_SECONDS)
