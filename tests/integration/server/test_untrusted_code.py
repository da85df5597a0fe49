"""Writers cannot make a shared worker run code of their choice, by requests or by a DAG."""

from __future__ import annotations

import subprocess
from uuid import UUID

import pytest

from tests.fork_server import FORK_SERVER

HOSTILE = {
    "os.system": {"command": "touch {}"},
    "subprocess.run": {"args": ["touch", "{}"]},
    "test.support.script_helper.make_script": {"script_dir": "{}", "script_basename": "planted", "source": "x = 1"},
    "test.support.os_helper.rmtree": {"path": "{}"},
    "test.support.os_helper.create_empty_file": {"filename": "{}/planted"},
    "_testcapi.run_in_subinterp": {"code": "open('{}/planted', 'w')"},
    "__main__._exit": {"code": 3},
    "__main__.os._exit": {"status": 3},
    "aaiclick.orchestration.worker.main._exit": {"code": 3},
    "aaiclick.local.stop_stack": {},
    "given.mkdir": {"path": "{}/planted"},
    "given.Path": {},
    "not_given.plant": {"path": "{}/planted"},
}
DAG = """
name: hostile
jobs:
  - name: run
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [rows]
    update_strategy: append
    unique_key: [id]
    config: {{function: "{function}", arguments: {arguments}}}
"""


@pytest.fixture
def worker(site, tmp_path):
    """Runs all ready tasks by one shared worker; `given` is the module that it imports."""
    work = tmp_path / "work"
    work.mkdir()
    plant = "from os import mkdir\nfrom pathlib import Path\ndef plant(path): Path(path).touch()\n"
    for name in ("given", "not_given"):
        (work / f"{name}.py").write_text(plant)

    def run() -> None:
        arguments = ["worker", "start", "--processes", "1", "--drain", "--import", "given"]
        process = FORK_SERVER.start(arguments, env=site.environment, cwd=work, stderr=subprocess.PIPE)
        assert process.wait(60) == 0
        assert "A process ended" not in process.stderr.read()
        process.stderr.close()

    return run


def filled(arguments: dict, victim) -> dict:
    def fill(value):
        if isinstance(value, list):
            return [fill(item) for item in value]
        return value.replace("{}", str(victim)) if isinstance(value, str) else value

    return {name: fill(value) for name, value in arguments.items()}


def test_writers_cannot_choose_code_by_request_or_dag(site, worker, tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    jobs = {}
    for role in ("writer", "other-writer", "operator-writer"):
        for entrypoint, arguments in HOSTILE.items():
            body = {"name": "hostile", "entrypoint": entrypoint, "kwargs": filled(arguments, victim)}
            answer = site.as_(role).post("/v1/jobs", json=body)
            if answer.status_code < 300:
                jobs[answer.json()["id"]] = entrypoint
    admin = site.as_("admin")
    for entrypoint in ("test.support.script_helper.make_script", "__main__._exit", "not_given.plant"):
        function = ":".join(entrypoint.rsplit(".", 1))
        text = DAG.format(function=function, arguments=filled(HOSTILE[entrypoint], victim))
        answer = admin.post("/v1/dags/deploy", json={"text": text})
        assert answer.status_code == 200, answer.text
        answer = admin.post("/v1/dags/hostile/run", json={})
        assert answer.status_code == 201, answer.text
        jobs[answer.json()["id"]] = function
    allowed = site.as_("writer").post(
        "/v1/jobs", json={"name": "given", "entrypoint": "given.plant", "kwargs": {"path": str(tmp_path / "allowed")}}
    )
    worker()
    assert (tmp_path / "allowed").exists(), site.sql(
        "SELECT error FROM tasks WHERE job_id = $1", int(allowed.json()["id"])
    )
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert len(jobs) >= len(HOSTILE)
    for job_id, entrypoint in jobs.items():
        [row] = site.sql("SELECT status::text, error FROM tasks WHERE job_id = $1", int(job_id))
        assert row["status"] == "FAILED", (entrypoint, row)
        assert repr(entrypoint) in row["error"]


def test_task_cannot_run_a_definition_of_another_organisation(site, worker, tmp_path) -> None:
    text = DAG.format(function="given:plant", arguments={"path": str(tmp_path / "planted")})
    answer = site.as_("admin").post("/v1/dags/deploy", json={"text": text})
    assert answer.status_code == 200, answer.text
    [row] = site.sql("SELECT id FROM job_definitions WHERE org_id = $1 ORDER BY created_at DESC LIMIT 1", site.org)
    assert isinstance(row["id"], UUID)
    body = {
        "name": "forged",
        "entrypoint": "aaiclick.catalog.execution.definition_task.run_definition",
        "kwargs": {"definition": str(row["id"]), "event": {}},
    }
    job_id = site.as_("other-writer").post("/v1/jobs", json=body).json()["id"]
    site.sql("UPDATE tasks SET max_attempts = 1 WHERE job_id = $1", int(job_id))
    worker()
    [row] = site.sql("SELECT status::text, error FROM tasks WHERE job_id = $1", int(job_id))
    assert "There is no definition" in row["error"]
    assert not (tmp_path / "planted").exists()
