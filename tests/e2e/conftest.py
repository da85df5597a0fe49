"""Fixtures that run the command line in a separate process with its own home."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.fork_server import FORK_SERVER, ForkedProcess


@dataclass
class Cli:
    """Runs aaiclick in an environment without other settings."""

    environment: dict[str, str]
    cwd: str

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return FORK_SERVER.run(list(arguments), self.environment | variables, self.cwd)

    def start(self, *arguments: str) -> ForkedProcess:
        return FORK_SERVER.start(
            list(arguments), self.environment, self.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


class SubprocessCli(Cli):
    """Runs `python -m aaiclick` in a new interpreter."""

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "aaiclick", *arguments],
            env=self.environment | variables,
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=100,
        )


SETTING_PREFIXES = ("AAICLICK_", "POSTGRES_", "WORKER_", "JOB_")


@pytest.fixture
def aaiclick(tmp_path):
    """Command line with a new home; its stack is stopped at the end."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(SETTING_PREFIXES)}
    cli = Cli(bare | {"AAICLICK_HOME": str(tmp_path / "home"), "AAICLICK_LOCAL_LINGER": "5"}, str(tmp_path))
    yield cli
    cli("down")


@pytest.fixture
def started(aaiclick):
    """The same command line by `python -m aaiclick`."""
    return SubprocessCli(aaiclick.environment, aaiclick.cwd)


@pytest.fixture
def no_traceback():
    """Asserts an exit code and messages on standard error, without a traceback."""

    def check_error(result: subprocess.CompletedProcess[str], code: int, *messages: str) -> None:
        assert result.returncode == code, result
        assert "Traceback" not in result.stdout + result.stderr
        for message in messages:
            assert message in result.stderr, result.stderr

    return check_error
