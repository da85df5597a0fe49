"""Backup and restore as docs/operations.md has it: of one moment, everything of each organisation is as it was; of two,
it is said what is missing, and a job whose tables are missing can be run again."""

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
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError
from aaiclick.local.postgres import binaries, environment
from aaiclick.orchestration import OrchContext, create_job, create_task, get_job, run_job_test
from aaiclick.orchestration.loops.cleanup import PgCleanupWorker
from aaiclick.orchestration.worker.trial import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.api_role import ensure_api_role
from aaiclick.store.doctor import INVARIANTS
from aaiclick.store.engine import connect
from aaiclick.store.orgs import create_org
from aaiclick.store.plan import NewTask, Plan
from aaiclick.store.revival import clear
from aaiclick.store.submit import NewJob, submit_job
from aaiclick.store.tables import release_jobs
from tests.integration.store.conftest import EMBEDDED, run_server

ROWS = {"shop": ["n", "s"], "price": [2, 3]}


async def give() -> object:
    return await create_object_from_value(ROWS)


@pytest.fixture(autouse=True)
def _named_module(monkeypatch):
    """There are two organisations, so tasks run code of named modules only."""
    monkeypatch.setenv("AAICLICK_TASK_MODULES", __name__)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


async def run_job(name: str):
    async with OrchContext():
        made = await create_job(name, create_task(give))
    ended = await asyncio.to_thread(run_job_test, made)
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
        return (await create_org(db, name="Acme", slug="acme"))["id"]
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
    """As they lie in the database of the organisation, and nowhere else."""
    db = await connect(get_settings().postgres)
    try:
        result = json.loads(await db.fetchval("SELECT result FROM tasks WHERE job_id = $1", job_id))
    finally:
        await db.close()
    place = get_settings().clickhouse
    client = await connect_clickhouse(place.with_database(f"{place.database}_{org_id.hex}"))
    rows = await client.read_text(f"SELECT shop, price FROM `{result['table_id']}` ORDER BY aai_id")
    return rows.to_pydict()


async def start_serving() -> None:
    """What the start of a server does to the database."""
    db = await connect(get_settings().postgres)
    try:
        await ensure_api_role(db)
    finally:
        await db.close()


async def doctor():
    """Its exit code, and what it found."""
    ran = await asyncio.to_thread(CliRunner().invoke, cli, ["doctor", "-o", "json"], standalone_mode=False)
    return ran.return_value, {each["check"]: each for each in json.loads(ran.stdout)}


class Vault:
    """Backups of both servers, and the databases that they are restored into: PostgreSQL's in a new server."""

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
        """The configured one, and one of each other organisation."""
        client = await connect_clickhouse(self._clickhouse)
        found = await client.read_text(f"SHOW DATABASES LIKE '{self._clickhouse.database}%'")
        return found.column(0).to_pylist()

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
        [binaries() / name, *arguments], env=environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def fresh_server():
    """A PostgreSQL that has never seen us: no role of ours, and another owner."""
    with run_server(EMBEDDED) as target:
        yield target


@pytest.fixture
async def vault(aaiclick_env, aaiclick_postgres, aaiclick_clickhouse, fresh_server, tmp_path):
    made = Vault(aaiclick_postgres, aaiclick_clickhouse, fresh_server, tmp_path)
    yield made
    await made.forget()


async def test_a_restored_backup_is_as_it_was(vault, monkeypatch):
    kept = await run_job("kept")
    await start_serving()
    vault.back_up_postgres()
    await vault.back_up_clickhouse()
    await vault.restore(monkeypatch)
    code, found = await doctor()
    assert code == 0, found
    assert await rows_of(kept) == ROWS
    assert await rows_of(await run_job("new")) == ROWS
    await start_serving()
    db = await connect(get_settings().postgres, server_settings={"role": "aaiclick_api"})
    try:
        assert await db.fetch("SELECT FROM jobs") == [], "the walls are there again, and the role behind them"
    finally:
        await db.close()


async def test_a_restored_backup_has_what_each_organisation_had(vault, monkeypatch):
    kept, acme = await run_job("kept"), await make_org()
    theirs = await run_job_of(acme)
    vault.back_up_postgres()
    await vault.back_up_clickhouse()
    await vault.restore(monkeypatch)
    assert await rows_of(kept) == ROWS
    assert await rows_of_org(acme, theirs) == ROWS
    assert await rows_of_org(acme, await run_job_of(acme)) == ROWS


async def test_backups_of_two_moments_are_told_apart_and_mended(vault, monkeypatch):
    """PostgreSQL is saved; a job's table is dropped and another's is made; then ClickHouse is saved."""
    early = await run_job("early")
    vault.back_up_postgres()
    late = await run_job("late")
    db = await connect(get_settings().postgres)
    await release_jobs(db, [early])
    await db.close()
    assert await PgCleanupWorker().run_once() == 1
    await vault.back_up_clickhouse()
    await vault.restore(monkeypatch)

    code, found = await doctor()
    assert code == 1
    assert {found[each]["state"] for each in INVARIANTS} == {"ok"}, "PostgreSQL by itself is of one moment"
    assert found["tables"]["state"] == "failed"
    assert "I7" in found["tables"]["detail"]
    async with OrchContext():
        with pytest.raises(NotFoundError):
            await get_job(late)

    db = await connect(get_settings().postgres)
    try:
        await clear(db, await db.fetchval("SELECT id FROM tasks WHERE job_id = $1", early))
        async with OrchContext():
            again = await get_job(early)
    finally:
        await db.close()
    assert (await asyncio.to_thread(run_job_test, again)).status == "COMPLETED"
    assert await rows_of(early) == ROWS
    code, found = await doctor()
    assert code == 0, found
