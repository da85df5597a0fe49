"""Times of commands on a warm stack with a worker: wall-clock time and CPU time of the process of the command.

    python -m bench.cli [--repeats 10]

A stack and a worker in a home of their own, with one deployed DAG. The rounds are interleaved: every round runs each
command once. The overhead of `aaiclick run` is its time for a job with one task that does nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aaiclick._version import __version__

CODE = """
from aaiclick.orchestration import job, task


@task
def nothing() -> None: ...


@job
def empty() -> None:
    nothing()


def rows() -> list[dict[str, int]]:
    return [{"day": 1, "euros": 2}]
"""
DAG = """
name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: manual}
    outputs: [orders]
    config: {function: "bench_cli_jobs:rows"}
publish: [orders]
"""
COMMANDS = ("version", "--help", "datasets ls", "dag ls", "dag versions shop", "jobs ls", "run bench_cli_jobs.empty")
TARGET_SECONDS = 0.5


def run_command(directory: Path, environment: dict[str, str], *arguments: str) -> tuple[float, float]:
    """Run a command; return its wall-clock and CPU seconds."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "aaiclick", *arguments]
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {error.decode()}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


def measure(directory: Path, environment: dict[str, str], repeats: int) -> dict[str, dict[str, float]]:
    """Return the median and the maximum of both times of each command, in seconds."""
    times: dict[str, list[tuple[float, float]]] = {command: [] for command in COMMANDS}
    for number in range(repeats + 1):
        for command in COMMANDS:
            took = run_command(directory, environment, *command.split())
            if number:  # the first round fills caches of files
                times[command].append(took)
    return {
        command: {
            "wall": statistics.median(wall for wall, _ in pairs),
            "wall max": max(wall for wall, _ in pairs),
            "cpu": statistics.median(cpu for _, cpu in pairs),
        }
        for command, pairs in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "bench_cli_jobs.py").write_text(CODE)
        (directory / "shop.yaml").write_text(DAG)
        package = Path(__file__).parents[1]
        environment = os.environ | {"AAICLICK_HOME": str(directory / "home"), "PYTHONPATH": str(package)}
        run_command(directory, environment, "dag", "deploy", "shop.yaml")
        worker = subprocess.Popen(
            [sys.executable, "-m", "aaiclick", "worker", "start", "--processes", "1"],
            cwd=directory, env=environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert worker.stderr is not None
            worker.stderr.readline()  # it has started
            run_command(directory, environment, "dag", "run", "shop")
            results = measure(directory, environment, repeats)
        finally:
            worker.terminate()
            worker.communicate()
            run_command(directory, environment, "down")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}; Python {platform.python_version()}, aaiclick {__version__}")
    for command, seconds in results.items():
        mark = "" if seconds["wall"] <= TARGET_SECONDS else f"  above {TARGET_SECONDS} s"
        texts = "  ".join(f"{key} {value:.3f} s" for key, value in seconds.items())
        print(f"aaiclick {command:28} {texts}{mark}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
