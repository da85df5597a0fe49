"""Backup and restore as in docs/operations.md.

Consistent backups restore everything; inconsistent ones are detected, and jobs with missing tables can be rerun.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.data import DataContext, create_object_from_value, open_reference
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError
from aaiclick.local.postgres_cluster import find_binaries, server_environment
from aaiclick.orchestration import OrchContext, create_job, create_task, get_job, run_job_test
from aaiclick.orchestration.loops.table_cleanup import PgCleanupWorker
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.invariants import INVARIANTS
from aaiclick.store.engine.retry_and_redrive import clear_tasks
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tables.table_references import release_jobs
from aaiclick.store.tenancy.orgs import create_org
from aaiclick.store.tenancy.postgres_api_role import ensure_api_role
from tests.integration.store.conftest import EMBEDDED, run_server

ROWS = {"shop": ["n", "s"], "price": [2, 3]}


async def give() -> object:
    return await create_object_from_value(ROWS)


@pytest.fixture(autouse=True)
def _named_module(monkeypatch):
    """With two organisations, tasks run code of named modules only."""
    monkeypatch.setenv("AAICLICK_TASK_MODULES", __name__)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


async def run_job(name: str):
    async with OrchContext():
        job = await create_job(name, create_task(give))
    ended = await asyncio.to_thread(run_job_test, job)
    assert ended.status == "COMPLETED"
    return ended.id


async def rows_of(job_id: int):
    db = await connect(get_settings().postgres)
    try:
        result = await db.fetchval("SELECT result FROM tasks WHERE job_id = $1", job_id)
    finally:
        await db.close()
    async with DataContext():
        return await (await open_reference(json.loads(result))).data()


async def make_org():
    db = await connect(get_settings().postgres)
    try:
        return (await create_org(db, name="Acme", slug="acme")).id
    finally:
        await db.close()


async def run_job_of(org_id):
    task = NewTask(get_snowflake_id(), "give", f"{__name__}.give")
    db = await connect(get_settings().postgres)
    try:
        job_id = await submit_job(db, NewJob(get_snowflake_id(), "theirs", org_id), Plan([task], [], []))
    finally:
        await db.close()
    assert (await run_until_job_ends(job_id)).status == "COMPLETED"
    return job_id


async def rows_of_org(org_id, job_id: int):
    """Rows in the organisation's own database."""
    db = await connect(get_settings().postgres)
    try:
        result = json.loads(await db.fetchval("SELECT result FROM tasks WHERE job_id = $1", job_id))
    finally:
        await db.close()
    endpoint = get_settings().clickhouse
    client = await connect_clickhouse(endpoint.with_database(f"{endpoint.database}_{org_id.hex}"))
    rows = await client.read_text(f"SELECT shop, price FROM `{result['table_id']}` ORDER BY aai_id")
    return rows.to_pydict()


async def start_serving() -> None:
    """Prepare the database as a server does at its start."""
    db = await connect(get_settings().postgres)
    try:
        await ensure_api_role(db)
    finally:
        await db.close()


async def doctor():
    """Run `doctor`; returns its exit code and checks."""
    ran = await asyncio.to_thread(CliRunner().invoke, cli, ["doctor", "-o", "json"], standalone_mode=False)
    return ran.return_value, {check["check"]: check for check in json.loads(ran.stdout)}


class Vault:
    """Backups of both servers, and the databases they are restored to."""

    def __init__(self, postgres, clickhouse, fresh, directory: Path) -> None:
        self._postgres, self._clickhouse, self._fresh = postgres, clickhouse, fresh
        self._dump = directory / "postgres.dump"
        self._name = f"backup-{uuid.uuid4().hex}"
        self.restored_postgres = fresh.with_database(f"restored_{uuid.uuid4().hex}")
        self.restored_clickhouse = clickhouse.with_database(f"restored_{uuid.uuid4().hex}")

    def back_up_postgres(self) -> None:
        _program("pg_dump", "--format=custom", f"--file={self._dump}", self._postgres.dsn)

    async def back_up_clickhouse(self) -> None:
        names = ", ".join(f"DATABASE `{name}`" for name in await self._databases())
        await (await connect_clickhouse(self._clickhouse)).run(f"BACKUP {names} TO File('{self._name}')")

    async def _databases(self) -> list[str]:
        """The configured database and those of other organisations."""
        client = await connect_clickhouse(self._clickhouse)
        databases = await client.read_text(f"SHOW DATABASES LIKE '{self._clickhouse.database}%'")
        return databases.column(0).to_pylist()

    def _restored(self, name: str) -> str:
        return self.restored_clickhouse.database + name.removeprefix(self._clickhouse.database)

    async def restore(self, monkeypatch) -> None:
        db = await connect(self._fresh)
        try:
            await db.execute(f"CREATE DATABASE {self.restored_postgres.database}")
        finally:
            await db.close()
        options = ("--exit-on-error", "--no-owner", "--no-privileges")
        _program("pg_restore", *options, f"--dbname={self.restored_postgres.dsn}", str(self._dump))
        names = [f"DATABASE `{name}` AS `{self._restored(name)}`" for name in await self._databases()]
        client = await connect_clickhouse(self._clickhouse)
        await client.run(f"RESTORE {', '.join(names)} FROM File('{self._name}')")
        monkeypatch.setenv("AAICLICK_DATABASE_URL", self.restored_postgres.dsn)
        monkeypatch.setenv("AAICLICK_CLICKHOUSE_URL", self.restored_clickhouse.url)
        get_settings.cache_clear()

    async def forget(self) -> None:
        client = await connect_clickhouse(self._clickhouse)
        for name in await self._databases():
            await client.run(f"DROP DATABASE IF EXISTS `{self._restored(name)}` SYNC")
            if name != self._clickhouse.database:
                await client.run(f"DROP DATABASE `{name}` SYNC")


def _program(name: str, *arguments: str) -> None:
    ran = subprocess.run(
        [find_binaries() / name, *arguments], env=server_environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def fresh_server():
    """A new PostgreSQL server without our roles and with another owner."""
    with run_server(EMBEDDED) as endpoint:
        yield endpoint


@pytest.fixture
async def vault(aaiclick_env, aaiclick_postgres, aaiclick_clickhouse, fresh_server, tmp_path):
    vault = Vault(aaiclick_postgres, aaiclick_clickhouse, fresh_server, tmp_path)
    yield vault
    await vault.forget()


async def test_restored_backup_is_complete(vault, monkeypatch):
    job = await run_job("kept")
    await start_serving()
    vault.back_up_postgres()
    await vault.back_up_clickhouse()
    await vault.restore(monkeypatch)
    code, checks = await doctor()
    assert code == 0, checks
    assert await rows_of(job) == ROWS
    assert await rows_of(await run_job("new")) == ROWS
    await start_serving()
    db = await connect(get_settings().postgres, server_settings={"role": "aaiclick_api"})
    try:
        assert await db.fetch("SELECT FROM jobs") == [], "the walls are there again, and the role behind them"
    finally:
        await db.close()


async def test_restored_backup_has_the_data_of_each_organisation(vault, monkeypatch):
    job, acme = await run_job("kept"), await make_org()
    org_job = await run_job_of(acme)
    vault.back_up_postgres()
    await vault.back_up_clickhouse()
    await vault.restore(monkeypatch)
    assert await rows_of(job) == ROWS
    assert await rows_of_org(acme, org_job) == ROWS
    assert await rows_of_org(acme, await run_job_of(acme)) == ROWS


async def test_inconsistent_backups_are_detected_and_repaired(vault, monkeypatch):
    """Between both backups one table is dropped and another one created."""
    early = await run_job("early")
    vault.back_up_postgres()
    late = await run_job("late")
    db = await connect(get_settings().postgres)
    await release_jobs(db, [early])
    await db.close()
    assert await PgCleanupWorker().run_once() == 1
    await vault.back_up_clickhouse()
    await vault.restore(monkeypatch)

    code, checks = await doctor()
    assert code == 1
    assert {checks[invariant]["state"] for invariant in INVARIANTS} == {"ok"}, "the backup of PostgreSQL is consistent"
    assert checks["tables"]["state"] == "failed"
    assert "I7" in checks["tables"]["detail"]
    async with OrchContext():
        with pytest.raises(NotFoundError):
            await get_job(late)

    db = await connect(get_settings().postgres)
    try:
        await clear_tasks(db, await db.fetchval("SELECT id FROM tasks WHERE job_id = $1", early))
        async with OrchContext():
            again = await get_job(early)
    finally:
        await db.close()
    assert (await asyncio.to_thread(run_job_test, again)).status == "COMPLETED"
    assert await rows_of(early) == ROWS
    code, checks = await doctor()
    assert code == 0, checks
