"""Cached results and code versions are named by the log and by the command line."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.orchestration import job, run_job_test, task


@task(cache="input")
def double(number: int) -> int:
    print("computing")
    return 2 * number


@job
def compute() -> None:
    double(21)


def run(*arguments: str) -> str:
    ended = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_cached_result_and_code_version_are_shown(aaiclick_env, tmp_path, monkeypatch):
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path))
    first, second = (run_job_test(asyncio.run(compute())) for _ in range(2))
    [computed], [reused] = (json.loads(run("tasks", "ls", str(job.id), "-o", "json")) for job in (first, second))
    assert "computing" in run("logs", computed["id"])
    assert "computing" not in run("logs", reused["id"])
    assert computed["id"] in run("logs", reused["id"])
    shown = json.loads(run("tasks", "show", reused["id"], "-o", "json"))
    assert (shown["cached_from"], shown["value"]) == (computed["id"], "42")
    assert f"result of task {computed['id']}" in run("tasks", "show", reused["id"])
    [version] = json.loads(run("jobs", "show", str(second.id), "-o", "json"))["code_versions"]
    assert version == shown["code_version"]
    assert version in run("jobs", "show", str(second.id))
    assert version in run("tasks", "show", reused["id"])
