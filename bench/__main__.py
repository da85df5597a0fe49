"""`make bench`: everything that is measured, one after the other; each part runs by itself too."""

from __future__ import annotations

import subprocess
import sys

PARTS = ("bench.data", "bench.queue", "bench.map", "bench.latency", "bench.ui", "bench.peers")


def main() -> int:
    """Run every part, each in a process of its own; the exit code says whether all of them ran."""
    return max(subprocess.run([sys.executable, "-m", part, *sys.argv[1:]], check=False).returncode for part in PARTS)


if __name__ == "__main__":
    sys.exit(main())
