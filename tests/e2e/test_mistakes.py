"""Typical mistakes of new users: the exact output of each command, from `mistakes/*.txt`.

A file has the command, the user's module and the output. `UPDATE_MISTAKES=1` rewrites the outputs; review them as text.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import aaiclick

DIRECTORY = Path(__file__).parent / "mistakes"
PACKAGE = Path(aaiclick.__file__).parents[1]
VARIABLE_PARTS = {
    re.compile(r"\d{18}"): "ID",
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"): "TIME",
    re.compile(r"\b\d+\.\d s\b"): "SECONDS s",
    re.compile(r"0x[0-9a-f]+"): "ADDRESS",
    re.compile(r"PostgreSQL database .*"): "DATABASE",
    re.compile(r".* (?:waits: |failed \(\d of \d attempts\) and is retried).*\n(?:  .*\n)?"): "",
}


@dataclass(frozen=True)
class Mistake:
    """One file of the corpus."""

    path: Path
    variables: str
    command: str
    file: str
    code: str
    output: str

    @classmethod
    def read(cls, path: Path) -> Mistake:
        match = re.fullmatch(
            r"\$ (?P<variables>(?:\w+=\S+ )*)aaiclick (?P<command>.*)\n"
            r"--- (?P<file>[\w.]+)\n(?P<code>.*?)--- output\n(?P<output>.*)",
            path.read_text(),
            re.DOTALL,
        )
        assert match, path
        return cls(path, **match.groupdict())

    def write(self, output: str) -> None:
        text = f"$ {self.variables}aaiclick {self.command}\n--- {self.file}\n{self.code}--- output\n{output}"
        self.path.write_text(text)


MISTAKES = [Mistake.read(path) for path in sorted(DIRECTORY.glob("*.txt"))]


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    """Directory with the modules of all mistakes, and a worker that is running."""
    for mistake in MISTAKES:
        (tmp_path / mistake.file).write_text(mistake.code)
    aaiclick.environment |= {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    with aaiclick.start("worker", "start", "--processes", "1") as worker:
        yield aaiclick
        worker.send_signal(signal.SIGINT)


def normalise(result: subprocess.CompletedProcess[str], directory: Path) -> str:
    text = f"{result.stdout}{result.stderr}exit code {result.returncode}\n"
    for pattern, replacement in VARIABLE_PARTS.items():
        text = pattern.sub(replacement, text)
    text = text.replace(str(directory), "DIRECTORY").replace(directory.name, "DIRECTORY")
    return text.replace(str(PACKAGE), "PACKAGE")


def test_mistakes_get_their_messages(project, tmp_path):
    assert len(MISTAKES) >= 95
    wrong: dict[str, str] = {}
    for mistake in MISTAKES:
        variables = dict(variable.split("=", 1) for variable in mistake.variables.split())
        output = normalise(project(*shlex.split(mistake.command), **variables), tmp_path)
        if os.environ.get("UPDATE_MISTAKES"):
            mistake.write(output)
        elif output != mistake.output:
            wrong[mistake.path.name] = output
    assert not wrong


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.path.stem)
def test_messages_of_mistakes_are_plain(mistake):
    """Each names the line of the user or a word of the command, and the remedy; none calls it a bug of aaiclick."""
    module = mistake.path.stem
    assert "bug in aaiclick" not in mistake.output
    assert "aaiclick/" not in mistake.output
    assert "PermanentError:" not in mistake.output
    assert "Traceback" not in mistake.output or module in mistake.output
    line = re.search(rf"\b{module}\.\w+(\", line \d+|:\d+)", mistake.output)
    command = shlex.split(f"{mistake.variables} {mistake.command}")
    arguments = [argument for argument in command if len(argument) > 3]
    names = [argument.partition("=")[0].strip("-") for argument in arguments]
    names += [argument.rpartition(".")[2] for argument in arguments]
    assert line or any(name in mistake.output for name in names)
    message, _, _ = mistake.output.rpartition("exit code")
    assert len([text for text in message.splitlines() if text.strip()]) > 1
