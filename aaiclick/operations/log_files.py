"""Task logs in the log directory of this machine.

A worker on another machine keeps its logs there unless the directory is shared or it sends them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from aaiclick.settings import Settings, get_logs_dir


def log_path(settings: Settings, task_id: int) -> Path:
    return get_logs_dir(settings) / f"{task_id}.log"


async def read_part(path: Path, offset: int, limit: int) -> tuple[str, int]:
    """Read up to `limit` bytes from `offset` (negative: from the end); returns the text and the next offset."""
    return await asyncio.to_thread(_read_file, path, offset, limit)


def _read_file(path: Path, offset: int, limit: int) -> tuple[str, int]:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            start = stream.seek(max(0, size + offset) if offset < 0 else min(offset, size))
            data = trim_split_character(stream.read(limit), start + limit >= size)
    except FileNotFoundError:
        return "", 0
    return data.decode(errors="replace"), start + len(data)


def trim_split_character(data: bytes, is_at_end: bool) -> bytes:
    """Drop an incomplete UTF-8 character at the end of a part, unless it is the end of the file."""
    for cut in range(1, min(4, len(data)) + 1):
        byte = data[-cut]
        if byte < 0x80:
            return data
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if needed <= cut or (is_at_end and len(data) == cut) else data[:-cut]
    return data
