"""Upgrade from the last tagged version: this one migrates its database and finishes its work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOBS = """
from aaiclick.orchestration import job, task

@task
def add(a: int, b: int) -> int:
    return a + b

@job
def sums(count: int = 3) -> None:
    for number in range(count):
        add(number, 1)
"""


def find_last_tag() -> str | None:
    """The newest version tag before this commit; None in a copy without tags."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None


@pytest.fixture
def old_code(tmp_path) -> Path:
    """Directory with the code of the last tag."""
    tag = find_last_tag()
    if tag is None:
        pytest.skip("there is no tagged version yet")
    directory = tmp_path / "old"
    directory.mkdir()
    archive = subprocess.run(["git", "archive", tag, "aaiclick"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
    return directory


@pytest.mark.timeout(170)
def test_database_of_the_last_version_is_upgraded_with_its_work(old_code, tmp_path, aaiclick_clickhouse) -> None:
    """The embedded PostgreSQL is created by the old code, so that its schema is the released one."""
    (tmp_path / "upgrade_jobs.py").write_text(JOBS)

    def run(code: Path, *arguments: str) -> str:
        variables = {
            "PYTHONPATH": f"{code}:{tmp_path}", "AAICLICK_HOME": str(tmp_path / "home"), "AAICLICK_LOCAL_LINGER": "0",
            "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "aaiclick", *arguments],
            cwd=tmp_path, env=dict(os.environ) | variables, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    finished = json.loads(run(old_code, "run", "upgrade_jobs.sums", "-o", "json"))
    waiting = json.loads(run(old_code, "run", "upgrade_jobs.sums", "--no-wait", "-o", "json"))
    run(ROOT, "migrate")
    run(ROOT, "worker", "start", "--processes", "1", "--drain")
    jobs = {job["id"]: job["status"] for job in json.loads(run(ROOT, "jobs", "ls", "-o", "json"))}
    assert {jobs[finished["id"]], jobs[waiting["id"]]} == {"COMPLETED"}
    run(ROOT, "doctor")
