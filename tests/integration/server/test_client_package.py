"""The package aaiclick-client in a separate environment that holds its declared dependencies and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
TASKS = """
from aaiclick.data import Object, create_object_from_value
from aaiclick.orchestration import job, task

@task
async def prices() -> Object:
    return await create_object_from_value({"price": [2, 3]})

@task
async def total(rows: Object) -> int:
    return await rows["price"].sum().data()

@job
def shop() -> None:
    total(prices())
"""


def link_distribution(requirement: Requirement, site: Path, linked: set[tuple[str, frozenset[str]]]) -> None:
    """Link the installed files of a requirement and of everything that it requires into `site`."""
    entry = (requirement.name, frozenset(requirement.extras))
    if entry in linked:
        return
    linked.add(entry)
    installed = distribution(requirement.name)
    for name in {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (site / name).exists():
            (site / name).symlink_to(Path(str(installed.locate_file(name))))
    for text in installed.requires or ():
        required = Requirement(text)
        if required.marker is None or any(required.marker.evaluate({"extra": x}) for x in ("", *requirement.extras)):
            link_distribution(required, site, linked)


@pytest.fixture(scope="module")
def install(tmp_path_factory):
    """Returns a function that installs the client package with extras and returns a command line that uses it."""
    wheels = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels]
    subprocess.run([*build, ROOT / "packages" / "client"], check=True, capture_output=True)

    def install_with(*extras: str):
        directory = tmp_path_factory.mktemp("environment")
        venv.create(directory, symlinks=True)
        site = next((directory / "lib").glob("python*/site-packages"))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", site]
        subprocess.run([*pip, next(wheels.glob("*.whl"))], check=True, capture_output=True)
        metadata = next(site.glob("aaiclick_client-*.dist-info")) / "METADATA"
        linked: set[tuple[str, frozenset[str]]] = set()
        for line in metadata.read_text().splitlines():
            required = Requirement(line.partition(": ")[2]) if line.startswith("Requires-Dist: ") else None
            if required and (
                required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in extras)
            ):
                link_distribution(required, site, linked)

        def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
            bare = {name: value for name, value in os.environ.items() if not name.startswith(("AAICLICK_", "PYTHON"))}
            environment = bare | {"AAICLICK_HOME": str(directory / "home")} | variables
            command = [str(directory / "bin" / "python"), "-m", "aaiclick", *arguments]
            return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, timeout=60)

        (directory / "shop_jobs.py").write_text(TASKS)
        return run

    return install_with


def test_client_needs_no_database_and_names_what_is_missing(install, site) -> None:
    client = install()
    server = {"AAICLICK_SERVER": site.server.url, "AAICLICK_API_KEY": site.keys["operator-admin"]}
    listed = client("jobs", "ls", "-o", "json", **server)
    assert (listed.returncode, json.loads(listed.stdout)) == (0, []), listed
    without_server = client("jobs", "ls")
    assert "install aaiclick instead of aaiclick-client" in without_server.stderr.replace("Install", "install")
    worker = client("worker", "start", **server)
    assert worker.returncode == 1
    assert "pip install 'aaiclick-client[worker]'" in worker.stderr
    assert "install it instead of aaiclick-client" in client("server", "start").stderr


def test_worker_package_runs_tasks_over_http(install, site) -> None:
    run = install("worker")
    server = {"AAICLICK_SERVER": site.server.url, "AAICLICK_API_KEY": site.keys["operator-admin"]}
    submitted = run("run", "shop_jobs.shop", "--no-wait", "-o", "json", **server)
    assert submitted.returncode == 0, submitted
    worker_key = server | {"AAICLICK_API_KEY": site.keys["operator-worker"], "AAICLICK_TASK_MODULES": "shop_jobs"}
    worked = run("worker", "start", "--processes", "1", "--drain", **worker_key)
    assert worked.returncode == 0, worked
    job_id = json.loads(submitted.stdout)["id"]
    tasks = json.loads(run("tasks", "ls", job_id, "-o", "json", **server).stdout)
    assert [task["status"] for task in tasks] == ["COMPLETED"] * 2, (tasks, worked)
