"""docs/cookbook.md: every recipe runs as written and gives what its comments say."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from aaiclick.api.tenancy import SetSecretRequest
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.orchestration import Decision, OrchContext, run_job_test
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.api_keys import create_key
from tests.integration.catalog.test_pages_with_examples import run
from tests.integration.server.conftest import start_server

PAGE = (Path(__file__).parents[3] / "docs" / "cookbook.md").read_text()
BLOCK = re.compile(r"```(?:python|yaml|sh)\n# (\w+)\.(py|yaml|sh)\n(.*?)```", re.DOTALL)
COMMENT = re.compile(r"^# (result|status|log|query|rows|total): (.*)$", re.MULTILINE)
MIN_RECIPES = 25
DECISIONS = {"Pay the invoice?": Decision(approved=True, by="ada")}
SECRETS = {"shop-token": "sesame", "hook-key": "a signing key"}
MESSAGES = {  # what a line of the output of a script contains
    "webhook": "job_id", "redrive": "1 tasks redriven", "slack": "", "backup": "", "http_worker": "", "api": "order 42",
}  # fmt: skip


@dataclass
class Recipe:
    """One file of the page and its trailing comments."""

    name: str
    suffix: str
    text: str

    @property
    def expected(self) -> dict[str, str]:
        return dict(COMMENT.findall(self.text))

    @property
    def file(self) -> str:
        return f"{self.name}.{self.suffix}"


RECIPES = [Recipe(*match) for match in BLOCK.findall(PAGE)]
JOBS = [recipe for recipe in RECIPES if "def recipe(" in recipe.text]
DAGS = [recipe for recipe in RECIPES if "query" in recipe.expected]
SCRIPTS = [recipe for recipe in RECIPES if recipe.suffix == "sh"]
OTHERS = {"test_each_item", "notebook"}


@pytest.fixture
def files(aaiclick_env, tmp_path, monkeypatch):
    """Write all files of the page into the current directory."""
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("AAICLICK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AAICLICK_PARQUET_PREFIXES", f"{tmp_path}/lake/")
    get_settings.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for recipe in RECIPES:
        (tmp_path / recipe.file).write_text(recipe.text.replace("/tmp/aaiclick-", f"{tmp_path}/"))
        sys.modules.pop(recipe.name, None)
    yield tmp_path
    for recipe in RECIPES:
        sys.modules.pop(recipe.name, None)


def set_secrets(**more: str) -> None:
    with open_operations() as operations:
        for name, value in (SECRETS | more).items():
            operations.set_secret(name, SetSecretRequest(value=value))


def test_every_recipe_is_run_by_a_test() -> None:
    names = {recipe.name for recipe in RECIPES}
    assert {recipe.name for recipe in (*JOBS, *DAGS, *SCRIPTS)} | OTHERS == names
    assert MESSAGES.keys() == {recipe.name for recipe in SCRIPTS}
    sections = PAGE.split("\n## ")[1:]
    assert len(sections) >= MIN_RECIPES
    assert all(BLOCK.search(section) for section in sections)


async def test_jobs_have_their_results(files) -> None:
    await asyncio.to_thread(set_secrets)
    async with OrchContext():
        for recipe in JOBS:
            module = importlib.import_module(recipe.name)
            job = await module.recipe()
            await asyncio.to_thread(run_job_test, job, decisions=DECISIONS)
            outcome = {"status": job.status}
            if job.status == "COMPLETED":
                outcome["result"] = repr(await job.result())
            if "log" in recipe.expected:
                outcome["log"] = repr(module.log)
            expected = {"status": "COMPLETED"} | recipe.expected
            assert outcome == expected, (recipe.name, await job.logs())


def test_datasets_have_their_rows(files) -> None:
    set_secrets()
    for recipe in DAGS:
        run("dag", "validate", recipe.file)
        run("dag", "deploy", recipe.file)
        run("dag", "run", recipe.name)
        rows = json.loads(run("datasets", "query", recipe.expected["query"], "-o", "json"))
        assert repr(rows) == recipe.expected["rows"], recipe.name
    assert len(json.loads(run("datasets", "query", "SELECT * FROM readings__rejected", "-o", "json"))) == 1
    assert list((files / "lake").rglob("*.parquet"))


async def prepare_server(log: Path):
    """Create a failed job, keys and a server."""
    async with OrchContext():
        job = await importlib.import_module("after_failure").recipe()
        await asyncio.to_thread(run_job_test, job)
    connection = await connect(get_settings().postgres)
    try:
        keys = {
            scope: (await create_key(connection, org_id=DEFAULT_ORG_ID, name=scope, scopes=[scope])).text
            for scope in ("admin", "worker")
        }
    finally:
        await connection.close()
    return keys, await asyncio.to_thread(start_server, dict(os.environ), log)


@pytest.mark.timeout(240)
async def test_scripts_run(files, hook, monkeypatch) -> None:
    monkeypatch.setenv("AAICLICK_PRIVATE_HOSTS", "127.0.0.1")
    get_settings.cache_clear()
    await asyncio.to_thread(set_secrets)
    await asyncio.to_thread(run, "dag", "deploy", "hooked.yaml")
    keys, server = await prepare_server(files / "server.log")
    program = files / "bin" / "aaiclick"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m aaiclick "$@"\n')
    program.chmod(0o755)
    remote = {
        "AAICLICK_SERVER": server.url, "AAICLICK_API_KEY": keys["admin"], "WORKER_KEY": keys["worker"],
        "ORG_ID": str(DEFAULT_ORG_ID), "HOOK_KEY": SECRETS["hook-key"], "SLACK_URL": f"{hook[0]}/services/T0",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    try:
        for recipe in sorted(SCRIPTS, key=lambda recipe: recipe.name == "http_worker"):  # last: it runs the jobs
            environment = dict(os.environ) | remote
            if recipe.name == "backup":  # of an embedded stack of its own
                for name in ("AAICLICK_SERVER", "AAICLICK_DATABASE_URL", "AAICLICK_CLICKHOUSE_URL"):
                    del environment[name]
                environment["AAICLICK_LOCAL_LINGER"] = "0"
            command = ["bash", "-euo", "pipefail", recipe.file]
            done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, (recipe.name, done)
            assert MESSAGES[recipe.name] in done.stdout + done.stderr, (recipe.name, done)
    finally:
        await asyncio.to_thread(server.stop)
    assert b"Test of the channel team" in hook[1][0]
    assert (files / "backup").is_dir()
    jobs = json.loads(await asyncio.to_thread(run, "jobs", "ls", "-o", "json"))
    assert {job["name"]: job["status"] for job in jobs}["order 42"] == "COMPLETED"


def test_test_of_a_job_passes(files) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_each_item.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


async def test_notebook_cell_has_its_result(files) -> None:
    [cell] = [recipe for recipe in RECIPES if recipe.name == "notebook"]
    names: dict[str, object] = {}
    code = compile(cell.text, "notebook", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run_worker() -> None:
        connection = await connect(get_settings().postgres)
        try:
            while (job_id := await connection.fetchval("SELECT max(id) FROM jobs")) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # a row has no event
        finally:
            await connection.close()
        await run_until_job_ends(job_id)

    await asyncio.gather(eval(code, names), asyncio.to_thread(asyncio.run, run_worker()))
    assert str(names["total"]) == cell.expected["total"]
