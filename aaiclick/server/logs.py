"""Logs of tasks, as far as they are on this machine.

A worker on another machine keeps its logs there unless the directory is shared. The path is made from the task's id
and this server's settings; the path that a worker reported is never opened: it could name any file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from aaiclick.server.sse import Event
from aaiclick.settings import Settings, get_logs_dir

LARGEST_PART = 1_000_000
LARGEST_LOG = 11_000_000
"""Of one attempt; a worker stops before that."""

LOOK_SECONDS = 0.3


def log_path(settings: Settings, task_id: int) -> Path:
    return get_logs_dir(settings) / f"{task_id}.log"


async def read_part(settings: Settings, task_id: int, offset: int, limit: int) -> tuple[str, int]:
    """Up to `limit` bytes from `offset` (a negative one counts from the end), and where to read on."""
    return await asyncio.to_thread(_read, log_path(settings, task_id), offset, limit)


def _read(path: Path, offset: int, limit: int) -> tuple[str, int]:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            start = stream.seek(max(0, size + offset) if offset < 0 else min(offset, size))
            data = _whole(stream.read(limit), start + limit >= size)
    except FileNotFoundError:
        return "", 0
    return data.decode(errors="replace"), start + len(data)


def _whole(data: bytes, at_end: bool) -> bytes:
    """Without a character that is cut in two; what is broken at the end of the file stays broken."""
    for cut in range(1, min(4, len(data)) + 1):
        byte = data[-cut]
        if byte < 0x80:
            return data
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if needed <= cut or (at_end and len(data) == cut) else data[:-cut]
    return data


async def write_part(settings: Settings, task_id: int, attempt: int, offset: int, text: str) -> None:
    """Write what a worker elsewhere sends: at its place within the attempt, so that sending it twice does no harm."""
    path = log_path(settings, task_id)
    await asyncio.to_thread(_write, path, f"=== attempt {attempt},".encode(), offset, text.encode(errors="replace"))


def _write(path: Path, mark: bytes, offset: int, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        file.seek(_begin(file, mark) + min(offset, LARGEST_LOG))
        file.write(data[: max(0, LARGEST_LOG - offset)])


def _begin(file: BinaryIO, mark: bytes) -> int:
    """Where the attempt's part begins: at its mark, or on a new line at the end of the file."""
    content = b"\n" + file.read()
    found = content.find(b"\n" + mark)
    if found >= 0:
        return found
    if not content.endswith(b"\n"):  # an earlier attempt ended within a line
        file.write(b"\n")
    return file.tell()


async def follow_log(
    settings: Settings, task_id: int, over: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[Event | None]:
    """Parts of a log as they are written; None when there is nothing new; an `end` when the task is over."""
    offset = 0
    while True:
        ended = await over()
        while True:
            text, reached = await read_part(settings, task_id, offset, LARGEST_PART)
            if reached <= offset:
                break
            offset = reached
            yield Event("log", {"text": text, "next_offset": offset}, str(offset))
        if ended:
            yield Event("end", {"next_offset": offset})
            return
        yield None
        await asyncio.sleep(LOOK_SECONDS)
