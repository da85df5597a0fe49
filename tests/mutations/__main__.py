"""Run mutations; see `tests.mutations`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mutations import Mutation
from tests.mutations.engine import ENGINE_MUTATIONS
from tests.mutations.flow import FLOW_MUTATIONS
from tests.mutations.guards import GUARD_MUTATIONS
from tests.mutations.incidents import INCIDENT_MUTATIONS
from tests.mutations.literals import LITERAL_MUTATIONS
from tests.mutations.requests import REQUEST_MUTATIONS

ROOT = Path(__file__).parent.parent.parent
MUTATIONS = (
    *ENGINE_MUTATIONS,
    *FLOW_MUTATIONS,
    *GUARD_MUTATIONS,
    *INCIDENT_MUTATIONS,
    *LITERAL_MUTATIONS,
    *REQUEST_MUTATIONS,
)
TIMEOUT_BANNER = "+ Timeout +"
"""What pytest-timeout prints when it ends the process of a test that does not end."""


def run_mutation(mutation: Mutation, directory: Path) -> str | None:
    """The name of the test that fails without the guard; None if none does."""
    copy = directory / "copy"
    make_copy(copy)
    path = copy / mutation.file
    text = path.read_text()
    if mutation.old not in text:
        raise SystemExit(f"{mutation.file} has no {mutation.old!r}: bring tests/mutations up to date.")
    path.write_text(text.replace(mutation.old, mutation.new))
    # The databases of one stack are copies of one that was migrated once: a changed schema needs a stack of its own.
    is_schema = "migrations" in mutation.file
    home = Path(tempfile.mkdtemp(prefix="home-", dir=directory)) if is_schema else directory / "home"
    result = run_tests(copy, home, mutation.tests)
    if result.returncode == pytest.ExitCode.OK:
        return None
    failed = re.search(r"^FAILED \S+::(.+?)(?: - .*)?$", result.stdout, re.MULTILINE)
    if result.returncode != pytest.ExitCode.TESTS_FAILED or not (
        failed or TIMEOUT_BANNER in result.stdout + result.stderr
    ):
        raise SystemExit(f"Without {mutation.guard}, no test failed; the tests were not run:\n{result.stdout[-3000:]}")
    if failed:
        return failed.group(1)
    return re.findall(r"^\S+::(.+?)(?: PASSED.*)?$", result.stdout, re.MULTILINE)[-1]  # the one that did not end


def check(tests: Iterable[str], directory: Path) -> None:
    """The tests pass without a mutation."""
    copy = directory / "whole"
    make_copy(copy)
    result = run_tests(copy, directory / "home", tests)
    if result.returncode != pytest.ExitCode.OK:
        raise SystemExit(f"A test fails without a mutation.\n{result.stdout[-3000:]}\n{result.stderr[-1000:]}")


def make_copy(copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    for name in ("aaiclick", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)


def run_tests(copy: Path, home: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in a process group of their own, and end what is left of it: a mutated process may never end."""
    command = [sys.executable, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", "--timeout", "40", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "AAICLICK_TEST_HOME": str(home)}
    output = copy.with_suffix(".out"), copy.with_suffix(".err")
    with output[0].open("w") as stdout, output[1].open("w") as stderr:
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode, *(path.read_text() for path in output))


def main() -> int:
    filters = sys.argv[1:]
    chosen = [candidate for candidate in MUTATIONS if not filters or any(word in candidate.guard for word in filters)]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="aaiclick-mutations-", ignore_cleanup_errors=True) as directory:
        check(dict.fromkeys(test for mutation in chosen for test in mutation.tests), Path(directory))
        print("| removed guard | failing test |\n|---|---|", flush=True)
        for mutation in chosen:
            failed = run_mutation(mutation, Path(directory))
            survivors += failed is None
            print(f"| {mutation.guard} | {f'`{failed}`' if failed else '**nothing**'} |", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
