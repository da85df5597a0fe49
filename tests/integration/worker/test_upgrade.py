"""The schema is changed while clients submit and a worker works: nobody is refused, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time

import pytest

from aaiclick.errors import SchemaError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import alembic_commands
from aaiclick.store.doctor import check_invariants
from aaiclick.store.engine import connect
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.migrate import current_revision, upgrade
from aaiclick.store.plan import NewTask, Plan
from aaiclick.store.reads import get_job
from aaiclick.store.submit import NewJob, submit_job

NEXT = '''
"""The next release's schema"""
from alembic import op
revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None

def upgrade():
    op.execute("ALTER TABLE workers ADD COLUMN remark text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE jobs ADD COLUMN remark text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE tasks ADD COLUMN remark text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE tasks ADD CONSTRAINT remark_is_short CHECK (length(remark) < 1000)")
    op.execute("CREATE INDEX jobs_remark ON jobs (remark) WHERE remark <> ''")

def downgrade():
    raise NotImplementedError
'''
CLIENTS = 3


@pytest.fixture
def next_release(tmp_path, monkeypatch):
    """This release's migrations and one more."""
    scripts = tmp_path / "migrations"
    shutil.copytree(alembic_commands.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "0002_next.py").write_text(NEXT)
    monkeypatch.setattr(alembic_commands, "SCRIPTS", scripts)


class Clients:
    """They submit without a pause, over connections that stay open; whatever one raises, `stop` raises."""

    def __init__(self, target) -> None:
        self._target = target
        self._stop = asyncio.Event()
        self._working: list[asyncio.Task[None]] = []
        self.submitted: list[int] = []
        self.longest_seconds = 0.0

    async def __aenter__(self):
        self._working = [asyncio.create_task(self._work()) for _ in range(CLIENTS)]
        return self

    async def __aexit__(self, *_) -> None:
        self._stop.set()
        await asyncio.gather(*self._working)

    async def _work(self) -> None:
        connection = await connect(self._target)
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                self.submitted += await self._submit(connection)
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
        finally:
            await connection.close()

    async def _submit(self, connection) -> list[int]:
        def new() -> NewTask:
            return NewTask(get_snowflake_id(), "users_tasks.nothing", "users_tasks.nothing")

        items = await enqueue_tasks(connection, [new() for _ in range(5)])
        first, second = new(), new()
        job_id = await submit_job(
            connection, NewJob(get_snowflake_id(), "job"), Plan([first, second], [], [(first.id, second.id)])
        )
        assert await get_job(connection, job_id) is not None
        return [*items, first.id, second.id]

    async def more(self, tasks: int) -> None:
        wanted = len(self.submitted) + tasks
        async with asyncio.timeout(60):
            while len(self.submitted) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_the_schema_changes_under_load_and_nobody_is_refused(bench, next_release):
    bench.start("--concurrency", "8")
    db = await connect(bench.target)
    try:
        async with Clients(bench.target) as clients:
            await clients.more(100)
            await upgrade(bench.target)
            await clients.more(100)
        assert await current_revision(bench.target) == "0002"
        async with asyncio.timeout(60):
            while await db.fetchval("SELECT count(*) FROM tasks WHERE completed_at IS NULL"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        rows = await db.fetch("SELECT id FROM tasks WHERE status = 'COMPLETED' AND attempt = 1")
        assert {row["id"] for row in rows} == set(clients.submitted)
        assert await check_invariants(db, grace_seconds=0) == []
    finally:
        await db.close()
    assert bench.workers[0].stop() == 0
    assert "rror" not in bench.workers[0].process.stderr.read()


async def test_a_table_in_use_holds_up_the_change_and_nobody_else(aaiclick_postgres, next_release, monkeypatch):
    monkeypatch.setattr(alembic_commands, "TABLE_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(alembic_commands, "PAUSE_SECONDS", 0.05)
    reader = await connect(aaiclick_postgres)
    try:
        async with Clients(aaiclick_postgres) as clients, contextlib.AsyncExitStack() as reading:
            await reading.enter_async_context(reader.transaction())
            await reader.fetchval("SELECT count(*) FROM tasks")  # a report that takes its time
            changing = asyncio.create_task(upgrade(aaiclick_postgres))
            await clients.more(300)
            assert not changing.done()
            await reading.aclose()
            await changing
            await clients.more(30)
        assert await current_revision(aaiclick_postgres) == "0002"
    finally:
        await reader.close()


async def test_a_change_that_cannot_be_made_gives_up_and_says_so(aaiclick_postgres, next_release, monkeypatch):
    monkeypatch.setattr(alembic_commands, "TABLE_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(alembic_commands, "GIVE_UP_SECONDS", 0.0)
    reader = await connect(aaiclick_postgres)
    try:
        async with reader.transaction():
            await reader.fetchval("SELECT count(*) FROM tasks")
            with pytest.raises(SchemaError, match="somebody has been using a table"):
                await upgrade(aaiclick_postgres)
        assert await current_revision(aaiclick_postgres) == "0001"
    finally:
        await reader.close()
