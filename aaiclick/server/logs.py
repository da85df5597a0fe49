"""Logs of tasks, as far as they are on this machine.

A worker on another machine keeps its logs there unless the directory is shared. The path is made from the task's id
and this server's settings; the path that a worker reported is never opened: it could name any file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from aaiclick.server.sse import Event
from aaiclick.settings import Settings, get_logs_dir

LARGEST_PART = 1_000_000
LOOK_SECONDS = 0.3


async def read_part(settings: Settings, task_id: int, offset: int, limit: int) -> tuple[str, int]:
    """Up to `limit` bytes from `offset` (a negative one counts from the end), and where to read on."""
    return await asyncio.to_thread(_read, get_logs_dir(settings) / f"{task_id}.log", offset, limit)


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
