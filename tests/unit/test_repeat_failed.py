"""`make test-failed` repeats a few failed tests, and refuses everything else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import repeat_failed

TESTS = """
def test_passes_alone(): pass
def test_fails(): assert not 1
"""


@pytest.fixture
def last_run(tmp_path, monkeypatch):
    """Writes the cache of a run of tests in a new directory, and changes to it."""

    def write(exit_status, *failed):
        values = {repeat_failed.EXIT_STATUS: exit_status, repeat_failed.FAILED: dict.fromkeys(failed, True)}
        for path, value in values.items():
            (tmp_path / path).parent.mkdir(parents=True)
            (tmp_path / path).write_text(json.dumps(value))
        monkeypatch.chdir(tmp_path)

    return write


def test_failed_tests_of_a_complete_run_are_found(last_run):
    last_run(1, "test_b.py::test_two[a::b]", "test_a.py::test_one")
    assert repeat_failed.find_failed_tests() == ["test_a.py::test_one", "test_b.py::test_two[a::b]"]


@pytest.mark.parametrize(
    ("exit_status", "count", "message"),
    [
        (1, 6, "6 tests failed"),
        (1, 0, "0 tests failed"),
        (2, 1, "did not end with failed tests"),  # interrupted
        (3, 1, "did not end with failed tests"),  # an error of pytest
        (None, 1, "did not end with failed tests"),
    ],
)
def test_other_runs_are_refused(last_run, exit_status, count, message):
    last_run(exit_status, *(f"test_a.py::test_{number}" for number in range(count)))
    with pytest.raises(SystemExit, match=message):
        repeat_failed.find_failed_tests()


def test_files_with_collection_errors_are_refused(last_run):
    last_run(1, "tests/test_a.py")
    with pytest.raises(SystemExit, match=r"cannot collect: tests/test_a\.py"):
        repeat_failed.find_failed_tests()


def test_a_directory_without_a_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="did not end with failed tests"):
        repeat_failed.find_failed_tests()


@pytest.mark.parametrize(
    ("test", "code", "message"),
    [
        ("test_passes_alone", 0, "passed alone; make them independent of the load:\n  test_a.py::test_passes_alone"),
        ("test_fails", 1, "Failed in the run of all tests, and again alone:\n  test_a.py::test_fails"),
        ("test_that_is_gone", 1, "Failed in the run of all tests, and again alone:\n  test_a.py::test_that_is_gone"),
    ],
)
def test_repeated_tests_decide_the_exit_code(last_run, tmp_path, test, code, message):
    last_run(1, f"test_a.py::{test}")
    (tmp_path / "test_a.py").write_text(TESTS)
    command = [sys.executable, repeat_failed.__file__]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == code, run
    assert message in run.stdout + run.stderr
