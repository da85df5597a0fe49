"""A notebook defines, runs and charts a job, and shows a failing one; handles of jobs without `await`."""

import os
import subprocess
import sys

import nbclient
import nbformat
import pytest

CODE = """
import asyncio
from aaiclick.orchestration import job, task

@task
def load(count: int) -> dict[str, list[float]]:
    print("loading", count)
    return {"day": [float(n) for n in range(count)], "euros": [10.0 * n for n in range(count)]}

@task(retries=0)
def divide(rows: dict[str, list[float]]) -> float:
    return 1 / 0

@task
async def linger() -> None:
    await asyncio.sleep(600)

@job
def revenue(count: int) -> None:
    load(count)

@job
def broken() -> None:
    divide(load(2))

@job
def slow() -> None:
    linger()
"""
CELLS = [
    f"%%writefile shop.py\n{CODE}",
    "from aaiclick.data import sync as data\nfrom aaiclick.orchestration import sync\nimport shop",
    "handle = sync.submit(shop.revenue(4)).watch()",
    "handle",
    "rows = handle.result()\nprint(rows, handle.status(), [group.completed for group in handle.progress()])",
    "with data.DataContext():\n    chart = data.create_object_from_value(rows).plot(x='day', y='euros')\n",
    "job = await shop.revenue(1)\njob",
    "failed = sync.submit(shop.broken()).wait()\nfailed",
    "failed.result()",
]


@pytest.fixture
def project(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse, monkeypatch):
    (tmp_path / "shop.py").write_text(CODE)
    variables = {
        "AAICLICK_DATABASE_URL": aaiclick_postgres.dsn,
        "AAICLICK_CLICKHOUSE_URL": aaiclick_clickhouse.url,
        "AAICLICK_LOG_DIR": str(tmp_path / "logs"),
        "AAICLICK_HOME": str(tmp_path / "home"),
    }
    aaiclick.environment |= variables
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "aaiclick", "worker", "start", "--processes", "1"]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | variables, stderr=subprocess.PIPE) as worker:
        yield aaiclick
        worker.terminate()


def test_notebook_runs_and_charts_a_job_and_shows_a_failing_one(project, tmp_path):
    (tmp_path / "shop.py").unlink()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    nbclient.NotebookClient(
        notebook, timeout=60, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [cell["outputs"] for cell in notebook["cells"][1:]]
    shown = outputs[2][0]["data"]["text/html"]
    assert "COMPLETED" in shown
    assert "tasks: 1 of 1" in shown
    text = "".join(part.get("text", "") for part in outputs[3])
    assert "'euros': [0.0, 10.0, 20.0, 30.0]" in text
    assert "COMPLETED [1]" in text
    assert any("image/png" in part.get("data", {}) for part in outputs[4]), outputs[4]
    assert "revenue" in outputs[5][0]["data"]["text/html"]
    failed = outputs[6][0]["data"]["text/html"]
    assert "FAILED" in failed
    assert "ZeroDivisionError" in failed
    assert (outputs[7][0]["ename"], "ZeroDivisionError" in outputs[7][0]["evalue"]) == ("JobFailedError", True)


def test_handle_of_the_synchronous_api(project, tmp_path):
    program = (
        "import shop\nfrom aaiclick.orchestration import sync\nhandle = sync.submit(shop.slow())\n"
        "print(handle.status() in ('PENDING', 'RUNNING'), handle.cancel(), handle.wait(60).status(), handle.cancel())\n"
        "done = sync.submit(shop.revenue(2)).wait(60)\nprint('loading 2' in done.logs(), repr(done))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=project.environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("True True CANCELLED False\nTrue SyncJob(")
