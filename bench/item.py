"""The queue item of `bench.peers`: records the time since it was sent."""

from __future__ import annotations

import os
import time
from pathlib import Path

from aaiclick.orchestration import handler

LATENCIES = "BENCH_LATENCIES"
"""Environment variable with the path of the output file."""


def arrived(sent_ns: int) -> None:
    if sent_ns:
        with Path(os.environ[LATENCIES]).open("a") as file:
            file.write(f"{(time.monotonic_ns() - sent_ns) / 1e6}\n")


@handler("bench.item")
async def item(sent_ns: int = 0) -> None:
    arrived(sent_ns)
