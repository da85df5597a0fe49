"""The task of `bench.queue_adapter`: counts its executions in a file, and records the time since it was enqueued."""

from __future__ import annotations

import atexit
import os
import threading
import time
from pathlib import Path

from aaiclick.orchestration import handler

FLUSH_SECONDS = 0.01

_latencies: list[float] = []
_count = 0


@handler("bench.counted")
async def count(sent_ns: int = 0) -> None:
    global _count
    if sent_ns:
        _latencies.append((time.monotonic_ns() - sent_ns) / 1e6)
    _count += 1


def _flush() -> None:
    if progress := os.environ.get("QB_PROGRESS"):
        temporary = Path(f"{progress}.new")
        temporary.write_text(str(_count))
        temporary.replace(progress)
    if latencies := os.environ.get("QB_LAT"):
        Path(latencies).write_text("\n".join(map(str, _latencies)))


def _flush_changes() -> None:
    flushed = -1
    while True:
        if flushed != _count:
            flushed = _count
            _flush()
        time.sleep(FLUSH_SECONDS)


threading.Thread(target=_flush_changes, daemon=True).start()
atexit.register(_flush)
