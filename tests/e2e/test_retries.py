"""Tasks without retries never run twice, unless they are repeatable."""

import json

import pytest

CODE = """
import os
import signal
from pathlib import Path
from aaiclick.orchestration import job, task

def note(name: str) -> int:
    path = Path(__file__).parent / name
    with path.open("a") as file:
        file.write("x")
    return len(path.read_text())

def die_once(name: str) -> str:
    if note(name) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"

@task(retries=0)
def pay(name: str) -> str:
    return die_once(name)

@task(retries=0, repeatable=True)
def count(name: str) -> str:
    return die_once(name)

@job
def paying() -> None:
    pay("payments")

@job
def counting() -> None:
    count("counts")
"""


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    (tmp_path / "project.py").write_text(CODE)
    aaiclick.environment |= {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
    }
    return aaiclick


def test_task_without_retries_that_kills_its_process_runs_once(project, tmp_path):
    ran = project("run", "project.paying", "-o", "json")
    assert (ran.returncode, json.loads(ran.stdout)["status"]) == (1, "FAILED"), ran
    assert (tmp_path / "payments").read_text() == "x"
    assert "It is not run again: it has no retries and is not repeatable." in ran.stderr


def test_repeatable_task_without_retries_runs_again(project, tmp_path):
    ran = project("run", "project.counting", "-o", "json")
    assert json.loads(ran.stdout)["results"] == [{"name": "count", "value": "survived"}], ran
    assert (tmp_path / "counts").read_text() == "xx"


def test_postgres_host_is_announced(aaiclick):
    shown = aaiclick("run", "project.paying", POSTGRES_HOST="/nowhere", POSTGRES_DB="shop")
    assert "PostgreSQL: database 'shop' at /nowhere, since POSTGRES_HOST is set." in shown.stderr
    assert "POSTGRES_HOST" not in aaiclick("version", POSTGRES_HOST="/nowhere").stderr
