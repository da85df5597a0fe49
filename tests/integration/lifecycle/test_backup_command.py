"""`aaiclick backup` under load, with a killed worker, and `aaiclick restore` into other databases."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import uuid
from pathlib import Path

import asyncpg
import psutil
import pytest
from click.testing import CliRunner

from aaiclick.backup.consistent_snapshot import open_cut
from aaiclick.cli.main import cli
from aaiclick.data import DataContext, create_object_from_value, open_reference
from aaiclick.errors import AaiclickError, ConflictError, NotFoundError
from aaiclick.orchestration import OrchContext, create_job, create_task
from aaiclick.settings import get_settings
from aaiclick.store.postgres_connections import connect
from tests.fork_server import FORK_SERVER

ROWS = {"shop": ["n", "s"], "price": [2, 3]}
JOBS = 40
WRITES = ("UPDATE table_refcounts SET dropping_at = now()", "UPDATE dataset_partitions SET rows = 0")


async def store() -> object:
    """Create a table that is the result, and one that is dropped with the attempt."""
    await create_object_from_value({"n": [1, 2, 3]})
    return await create_object_from_value(ROWS)


async def check(rows: dict[str, list[object]]) -> int:
    assert rows == ROWS
    return len(rows)


@contextlib.contextmanager
def worker(directory: Path):
    """A worker process with short leases; killed with all its processes at the end."""
    environment = dict(os.environ) | {"WORKER_HEARTBEAT_INTERVAL": "0.3", "WORKER_TIMEOUT": "1"}
    environment |= {"AAICLICK_LOG_DIR": str(directory / "logs"), "AAICLICK_TASK_MODULES": __name__}
    started = FORK_SERVER.start(["worker", "start", "--processes", "1", "--concurrency", "4"], environment)
    try:
        yield
    finally:
        process = psutil.Process(started.pid)
        for member in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        started.wait(10)


async def fetch(query: str, *arguments: object):
    connection = await connect(get_settings().postgres)
    try:
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def wait_for_completed(count: int) -> set[int]:
    """Wait until a number of jobs has completed; return the ids of all that have."""
    while True:
        completed = {row["id"] for row in await fetch("SELECT id FROM jobs WHERE status = 'COMPLETED'")}
        if len(completed) >= count:
            return completed
        await asyncio.sleep(0.05)


async def submit(count: int) -> set[int]:
    async with OrchContext():
        jobs = [await create_job(f"load {n}", create_task(check, {"rows": create_task(store)})) for n in range(count)]
        return {job.id for job in jobs}


async def read_result(job_id: int):
    [row] = await fetch("SELECT result FROM tasks WHERE job_id = $1 AND entrypoint LIKE '%.store'", job_id)
    async with DataContext():
        return await (await open_reference(json.loads(row["result"]))).data()


def run(*arguments: str):
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


@pytest.fixture
async def other_databases(aaiclick_env, aaiclick_postgres, aaiclick_clickhouse, monkeypatch):
    """Returns a function that points the settings to empty databases on the same servers."""
    name = f"restored_{uuid.uuid4().hex}"
    await fetch(f"CREATE DATABASE {name}")

    def use() -> None:
        monkeypatch.setenv("AAICLICK_DATABASE_URL", aaiclick_postgres.with_database(name).dsn)
        monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", aaiclick_clickhouse.with_database(name).url)
        get_settings.cache_clear()

    yield use
    monkeypatch.setenv("AAICLICK_DATABASE_URL", aaiclick_postgres.dsn)
    get_settings.cache_clear()
    await fetch(f"DROP DATABASE {name} WITH (FORCE)")


async def test_writes_wait_while_the_cut_is_made(aaiclick_env, aaiclick_postgres) -> None:
    other = await connect(aaiclick_postgres, server_settings={"lock_timeout": "100ms"})
    try:
        async with open_cut(aaiclick_postgres) as cut:
            for write in WRITES:
                with pytest.raises(asyncpg.LockNotAvailableError):
                    await other.execute(write)
            assert await other.fetch("SELECT FROM jobs") == []
            await cut.release_locks()
            for write in WRITES:
                await other.execute(write)
    finally:
        await other.close()


async def test_cut_waits_for_a_publication_in_progress(aaiclick_env, aaiclick_postgres, monkeypatch) -> None:
    monkeypatch.setattr("aaiclick.backup.consistent_snapshot.GIVE_UP_SECONDS", 0.0)
    other = await connect(aaiclick_postgres)
    try:
        async with other.transaction():
            await other.execute(WRITES[1])
            with pytest.raises(ConflictError, match="were in use"):
                async with open_cut(aaiclick_postgres):
                    pass
        async with open_cut(aaiclick_postgres):
            pass
    finally:
        await other.close()


@pytest.mark.timeout(180)
async def test_backup_under_load_with_a_killed_worker_restores_completely(
    aaiclick_env, tmp_path, other_databases, monkeypatch
) -> None:
    target = f"File('{uuid.uuid4().hex}')"
    before = await submit(JOBS)
    with worker(tmp_path):
        completed_before = await wait_for_completed(JOBS // 4)
        saved = await asyncio.to_thread(run, "backup", str(tmp_path / "backup"), "--clickhouse-to", target)
        assert saved.exception is None, saved.exception
    completed_after = await wait_for_completed(1)
    after = await submit(1)
    assert (await asyncio.to_thread(run, "restore", str(tmp_path / "backup"))).exception.what.endswith("is not empty.")
    other_databases()
    restored = await asyncio.to_thread(run, "restore", str(tmp_path / "backup"))
    assert (restored.exception, restored.return_value) == (None, 0), (restored.stdout, restored.stderr)
    assert {row["id"] for row in await fetch("SELECT id FROM jobs")} == before
    completed = {row["id"] for row in await fetch("SELECT id FROM jobs WHERE status = 'COMPLETED'")}
    assert completed_before <= completed <= completed_after
    assert not completed & after
    for row in await fetch("SELECT job_id FROM tasks WHERE status = 'COMPLETED' AND entrypoint LIKE '%.store'"):
        if row["job_id"] not in completed:  # the results of unfinished jobs are needed; of finished ones, final results
            assert await read_result(row["job_id"]) == ROWS
    with worker(tmp_path):
        assert await wait_for_completed(JOBS) == before
    checked = await asyncio.to_thread(run, "doctor", "-o", "json")
    assert checked.return_value == 0, checked.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["backup", "FULL", "--clickhouse-to", "File('x')"], AaiclickError, "is not empty"),
        (["backup", "NEW"], AaiclickError, "cannot write into this directory"),
        (["backup", "NEW", "--clickhouse-to", "x; DROP DATABASE y"], AaiclickError, "is not a destination"),
        (["restore", "FULL"], NotFoundError, "contains no complete backup"),
    ],
)
def test_invalid_directory_or_destination_is_refused(aaiclick_env, tmp_path, arguments, error, message) -> None:
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "postgres.dump").write_text("")
    with pytest.raises(error, match=message):
        raise run(*(str(tmp_path / word) if word.isupper() else word for word in arguments)).exception
