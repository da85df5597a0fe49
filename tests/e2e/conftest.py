"""The command line as a user runs it: a process of its own, with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.hatchery import HATCHERY, Hatched


@dataclass
class Cli:
    """Runs our command in an environment without any of our variables but those given."""

    environment: dict[str, str]
    cwd: str

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return HATCHERY.run(list(arguments), self.environment | variables, self.cwd)

    def start(self, *arguments: str) -> Hatched:
        return HATCHERY.start(
            list(arguments), self.environment, self.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


class Started(Cli):
    """Runs `python -m aaiclick`, for tests of starting itself."""

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "aaiclick", *arguments],
            env=self.environment | variables,
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=100,
        )


OURS = ("AAICLICK_", "POSTGRES_", "WORKER_", "JOB_")


@pytest.fixture
def aaiclick(tmp_path):
    """A fresh home whose stack, if any, is stopped at the end."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    cli = Cli(bare | {"AAICLICK_HOME": str(tmp_path / "home"), "AAICLICK_LOCAL_LINGER": "5"}, str(tmp_path))
    yield cli
    cli("down")


@pytest.fixture
def started(aaiclick):
    """The same, by `python -m aaiclick`."""
    return Started(aaiclick.environment, aaiclick.cwd)


@pytest.fixture
def no_traceback():
    """Asserts that a failure reads as one clear message."""

    def check(result: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
        assert result.returncode == code, result
        assert "Traceback" not in result.stdout + result.stderr
        for words in said:
            assert words in result.stderr, result.stderr

    return check
