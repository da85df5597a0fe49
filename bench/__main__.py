"""`make bench`: run all benchmarks one after the other."""

from __future__ import annotations

import subprocess
import sys

PARTS = (
    "bench.data",
    "bench.tpch",
    "bench.db_benchmark",
    "bench.queue",
    "bench.map",
    "bench.latency",
    "bench.ui",
    "bench.peers",
)


def main() -> int:
    """Run every benchmark in its own process; exit with 1 if one fails."""
    return max(subprocess.run([sys.executable, "-m", part, *sys.argv[1:]], check=False).returncode for part in PARTS)


if __name__ == "__main__":
    sys.exit(main())
