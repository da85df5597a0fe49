"""Repeat the failed tests of the last run, alone in one process: `make test-failed`.

A test that fails only while other tests run depends on the load. It must be fixed, but it does not fail the build.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

LIMIT = 5
"""If more tests failed, something is broken, and none is repeated."""
FAILED = Path(".pytest_cache/v/cache/lastfailed")
EXIT_STATUS = Path(".pytest_cache/v/aaiclick/exit_status")
"""Of the last run of tests, written by tests/conftest.py."""


def find_failed_tests() -> list[str]:
    """Return the failed tests of a run that has run all its tests; raises SystemExit if they cannot be repeated."""
    if _read(EXIT_STATUS) != pytest.ExitCode.TESTS_FAILED:
        raise SystemExit("The last run did not end with failed tests; none is repeated.")
    tests = sorted(_read(FAILED) or ())
    if broken := [test for test in tests if "::" not in test]:
        raise SystemExit(f"Files that pytest cannot collect: {', '.join(broken)}")
    if not 0 < len(tests) <= LIMIT:
        raise SystemExit(f"{len(tests)} tests failed; only up to {LIMIT} are repeated.")
    return tests


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    tests = find_failed_tests()
    names = "".join(f"\n  {test}" for test in tests)
    print(f"\nRepeating alone, in one process:{names}", flush=True)
    if code := pytest.main(["-n", "0", *tests]):
        sys.exit(f"Failed in the run of all tests, and again alone:{names}")
    print(f"\nFailed in the run of all tests, and passed alone; make them independent of the load:{names}")
    sys.exit(code)


if __name__ == "__main__":
    main()
