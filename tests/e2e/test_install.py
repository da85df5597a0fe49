"""Clean environments with pip and uv, by their resolvers: `make installs`. Prints the time and size of each.

TEST_INSTALL turns the tests on: they need the network, some minutes and some gigabytes. TEST_PYTHONS has interpreters.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = os.environ.get("TEST_PYTHONS", sys.executable).split()
TARGETS = {  # requirement: a module that it adds, and one that must be missing
    ".": ("asyncpg", "boto3"),
    ".[aws]": ("boto3", "mcp"),
    ".[otel]": ("opentelemetry.sdk", "boto3"),
    ".[mcp]": ("mcp", "boto3"),
    "./packages/client": ("httpx", "pyarrow"),
    "./packages/client[worker]": ("sqlglot", "fastapi"),
}
CORE = (
    "tests/integration/engine/test_graph.py", "tests/integration/engine/test_api.py",
    "tests/integration/data/test_objects.py",
)  # fmt: skip
TEST_TOOLS = ("pytest>=8.4,<10", "pytest-asyncio>=1.1,<2", "pytest-timeout>=2.3,<3", "pandas", "polars", "hypothesis")
pytestmark = [
    pytest.mark.skipif("TEST_INSTALL" not in os.environ, reason="needs TEST_INSTALL: make installs"),
    pytest.mark.timeout(1200),
]


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="aai", dir="/tmp"))  # short: it will have sockets
    yield path
    shutil.rmtree(path)  # an environment has up to a gigabyte


def clean_environment(directory: Path) -> dict[str, str]:
    bare = {
        name: value for name, value in os.environ.items() if not name.startswith(("AAICLICK_", "PYTHON", "VIRTUAL"))
    }
    return bare | {"AAICLICK_HOME": str(directory / "home"), "TMPDIR": str(directory)}


def run(directory: Path, *command: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=clean_environment(directory), capture_output=True, text=True
    )
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done


def install(directory: Path, tool: str, python: str, *requirements: str) -> tuple[Path, str]:
    """Install into a new environment; returns its directory of programs, and its time and size."""
    environment = directory / "environment"
    run(directory, python, "-m", "venv", environment)
    programs = environment / "bin"
    started = time.monotonic()
    if tool == "pip":
        run(directory, programs / "python", "-m", "pip", "install", "--quiet", *requirements)
    else:
        run(
            directory,
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            programs / "python",
            *requirements,
        )
    seconds = time.monotonic() - started
    megabytes = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file()) // 1_000_000
    return programs, f"{tool} {' '.join(requirements)}: {seconds:.0f} s, {megabytes} MB"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_package_and_extras_install_what_they_name(directory, tool, target) -> None:
    programs, figures = install(directory, tool, PYTHONS[0], target)
    present, missing = TARGETS[target]
    code = f"import importlib.util as u, {present}; assert u.find_spec('{missing}') is None"
    run(directory, programs / "python", "-I", "-c", code)
    assert "0.1.0" in run(directory, programs / "aaiclick", "version").stdout
    with_bytecode = "" if tool == "uv" else ", bytecode included"
    print(f"\n{figures}{with_bytecode}")


def test_uvx_runs_the_demo_without_an_installation(directory) -> None:
    started = time.monotonic()
    command = ("tool", "run", "--python", PYTHONS[0], "--from", ".", "aaiclick", "demo", "--no-serve")
    shown = run(directory, sys.executable, "-m", "uv", *command)
    assert re.search(r"Job COMPLETED: 26 tasks", shown.stderr)
    print(f"\nuvx --from . aaiclick demo: {time.monotonic() - started:.0f} s")


@pytest.mark.parametrize("python", PYTHONS)
def test_demo_and_core_tests_pass_on(directory, python) -> None:
    programs, figures = install(directory, "uv", python, ".", *TEST_TOOLS)
    version = run(directory, programs / "python", "--version").stdout.strip()
    started = time.monotonic()
    shown = run(directory, programs / "aaiclick", "demo", "--no-serve")
    assert re.search(r"Job COMPLETED: 26 tasks", shown.stderr)
    demo_seconds = time.monotonic() - started
    tests = run(directory, programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE)
    print(f"\n{version}: {figures}; demo {demo_seconds:.0f} s; {tests.stdout.strip().splitlines()[-1]}")
