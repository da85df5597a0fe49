"""Processes of the container image: ready soon, on a read-only root, and SIGTERM loses no running task.

TEST_IMAGE is an image to run with podman (TEST_PODMAN: its command with options). Without it, the
processes run as the entrypoint of deploy/Containerfile starts them.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from aaiclick.orchestration import OrchContext, create_job, create_task
from aaiclick.store.postgres_connections import connect

IMAGE = os.environ.get("TEST_IMAGE")
PODMAN = shlex.split(os.environ.get("TEST_PODMAN", "podman"))
CONTAINERFILE = (Path(__file__).parents[2] / "deploy" / "Containerfile").read_text()
READY_SECONDS = 6.0
TASKS = 16
CODE = """
import time
from pathlib import Path

def wait() -> str:
    Path(f"started-{time.time_ns()}").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    return "done"
"""


def image_environment(directory: Path) -> dict[str, str]:
    """Variables of the image; /tmp is a directory of the test where no container has one."""
    names = dict(re.findall(r"(AAICLICK_\w+)=(\S+)", CONTAINERFILE))
    return {name: value if IMAGE else value.replace("/tmp/", f"{directory}/tmp/") for name, value in names.items()}


class Container:
    """Starts processes of the image."""

    def __init__(self, directory: Path, postgres_url: str, clickhouse_url: str) -> None:
        self.directory = directory
        self.sockets = parse_qs(urlsplit(postgres_url).query)["host"][0]
        self.settings = {"AAICLICK_DATABASE_URL": postgres_url, "AAICLICK_CLICKHOUSE_URL": clickhouse_url}
        self.processes: list[subprocess.Popen[str]] = []
        self.names: list[str] = []
        if IMAGE:  # the user of the image may use the socket
            Path(self.sockets).chmod(0o711)
            for path in Path(self.sockets).iterdir():
                path.chmod(0o777)

    def start(self, *arguments: str, entrypoint: str | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "aaiclick", *arguments]
        if IMAGE:  # created first: some storage drivers copy the image
            created = subprocess.run(
                [*self._create(entrypoint), *arguments], check=True, capture_output=True, text=True
            )
            command = [*PODMAN, "start", "--attach", "--sig-proxy", created.stdout.split()[-1]]
        self.started_at = time.monotonic()
        environment = dict(os.environ) | self.settings | image_environment(self.directory)
        process = subprocess.Popen(
            command, env=environment, cwd=self.directory, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def _create(self, entrypoint: str | None) -> list[str]:
        variables = [f"--env={name}={value}" for name, value in self.settings.items()]
        mounts = [f"--volume={self.directory}:/app", f"--volume={self.sockets}:{self.sockets}"]
        limits = ["--ulimit=nofile=20000:20000", "--ulimit=nproc=4096:4096", "--no-healthcheck"]
        entry = [] if entrypoint is None else [f"--entrypoint={entrypoint}"]
        options = ["--rm", "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp", "--network=host", *entry]
        return [*PODMAN, "create", *options, *limits, *variables, *mounts, str(IMAGE)]

    def stop(self) -> None:
        for name in self.names:
            subprocess.run([*PODMAN, "rm", "--force", "--ignore", name], check=True, capture_output=True)
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def container(aaiclick_env, aaiclick_postgres, aaiclick_clickhouse, tmp_path, monkeypatch) -> Iterator[Container]:
    (tmp_path / "waiting.py").write_text(CODE)
    (tmp_path / "tmp").mkdir()
    tmp_path.chmod(0o777)
    monkeypatch.syspath_prepend(tmp_path)
    running = Container(tmp_path, aaiclick_postgres.dsn, aaiclick_clickhouse.url)
    yield running
    running.stop()


@pytest.mark.timeout(100)
def test_server_is_ready_soon_and_stops_on_sigterm(container, record_property) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = container.start("server", "start", "--port", str(port))
    while True:
        assert server.poll() is None, server.communicate()[0]
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health/live", timeout=5).status_code == 200:
                break
        except httpx.TransportError:
            time.sleep(0.02)
    seconds = time.monotonic() - container.started_at
    record_property("ready_seconds", round(seconds, 2))
    print(f"ready after {seconds:.2f} s")
    assert seconds < READY_SECONDS * (1 if IMAGE else 5), "not ready in time"
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0


@pytest.mark.timeout(100)
async def test_worker_finishes_running_tasks_on_sigterm(container, aaiclick_postgres, tmp_path) -> None:
    from waiting import wait

    async with OrchContext():
        job = await create_job("waits", [create_task(wait, {}, retries=0) for _ in range(TASKS)])
    worker = container.start("worker", "start", "--processes", "1", "--concurrency", str(TASKS))
    while len(list(tmp_path.glob("started-*"))) < TASKS:
        assert worker.poll() is None, worker.communicate()[0]
        await asyncio.sleep(0.02)
    worker.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert worker.poll() is None
    (tmp_path / "go").touch()
    assert await asyncio.to_thread(worker.wait, 60) == 0
    connection = await connect(aaiclick_postgres)
    try:
        rows = await connection.fetch("SELECT status::text, attempt FROM tasks WHERE job_id = $1", job.id)
    finally:
        await connection.close()
    assert [(row["status"], row["attempt"]) for row in rows] == [("COMPLETED", 1)] * TASKS


@pytest.mark.skipif(IMAGE is None, reason="needs TEST_IMAGE")
def test_root_is_read_only_and_the_user_unprivileged(container) -> None:
    code = """if True:
        import os
        print(os.getuid())
        for path in ("/x", "/opt/aaiclick/x", "/tmp/x"):
            try:
                open(path, "w").close()
            except OSError as error:
                print(path, error.errno)
    """
    output = container.start("-c", code, entrypoint="python").communicate()[0]
    assert output.split() == ["1000", "/x", "30", "/opt/aaiclick/x", "30"]
