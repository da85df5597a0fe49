"""The item of `bench.peers`: it does nothing but say how long ago it was sent, if it knows."""

from __future__ import annotations

import os
import time
from pathlib import Path

from aaiclick.orchestration import handler

LATENCIES = "BENCH_LATENCIES"
"""The variable that names the file for milliseconds."""


def arrived(sent_ns: int) -> None:
    if sent_ns:
        with Path(os.environ[LATENCIES]).open("a") as file:
            file.write(f"{(time.monotonic_ns() - sent_ns) / 1e6}\n")


@handler("bench.item")
async def item(sent_ns: int = 0) -> None:
    arrived(sent_ns)
