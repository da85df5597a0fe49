"""The schema is changed while clients submit, a server answers and a worker works: nobody is refused, nothing is lost.

All of them are of the release before: they know nothing of what the change brings.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from aaiclick.errors import SchemaError
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import alembic_commands
from aaiclick.store.doctor import check_invariants
from aaiclick.store.engine import connect
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.keys import create_key
from aaiclick.store.migrate import current_revision, upgrade
from aaiclick.store.plan import NewTask, Plan
from aaiclick.store.reads import get_job
from aaiclick.store.submit import NewJob, submit_job
from aaiclick.store.words import DEFAULT_ORG_ID
from aaiclick.targets import ServerTarget

NEXT = '''
"""The next release's schema"""
from alembic import op
revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None

def upgrade():
    op.execute("ALTER TABLE workers ADD COLUMN remark text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE jobs ADD COLUMN remark text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE tasks ADD COLUMN remark text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE tasks ADD CONSTRAINT remark_is_short CHECK (length(remark) < 1000)")
    op.execute("ALTER TABLE task_attempts ADD COLUMN remark text NOT NULL DEFAULT ''")
    op.execute("CREATE INDEX jobs_remark ON jobs (remark) WHERE remark <> ''")

def downgrade():
    raise NotImplementedError
'''
CLIENTS = 3
PAUSE_SECONDS = 0.1  # the worker is to keep up, on slow machines too
NOTHING = "users_tasks.nothing"


@pytest.fixture
def next_release(tmp_path, monkeypatch):
    """This release's migrations and one more."""
    scripts = tmp_path / "migrations"
    shutil.copytree(alembic_commands.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "0002_next.py").write_text(NEXT)
    monkeypatch.setattr(alembic_commands, "SCRIPTS", scripts)


class Clients:
    """They submit all the time, over connections that stay open; whatever one raises is raised in the end."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._stop = asyncio.Event()
        self._working: list[asyncio.Task[None]] = []
        self.submitted: list[int] = []

    async def __aenter__(self):
        self._working = [asyncio.create_task(self._work()) for _ in range(CLIENTS)]
        return self

    async def __aexit__(self, *_) -> None:
        self._stop.set()
        await asyncio.gather(*self._working)

    async def _work(self) -> None:
        async with self._open() as connection:
            while not self._stop.is_set():
                self.submitted += await self._submit(connection)
                await asyncio.sleep(PAUSE_SECONDS)

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        connection = await connect(self._target)
        try:
            yield connection
        finally:
            await connection.close()

    async def _submit(self, connection: Any) -> list[int]:
        def new() -> NewTask:
            return NewTask(get_snowflake_id(), NOTHING, NOTHING)

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


class Guests(Clients):
    """They ask a server, for everything that it says of work, and change some of it."""

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        headers = {"Authorization": f"Bearer {self._target.key}"}
        async with httpx.AsyncClient(base_url=self._target.url, headers=headers, timeout=60) as client:
            yield client

    async def _submit(self, connection: httpx.AsyncClient) -> list[int]:
        items = [{"type": NOTHING, "entrypoint": NOTHING}] * 3
        made = await self._ask(connection, "POST", "tasks", json={"items": items})
        job = {"name": "job", "tasks": [{"key": "a", "entrypoint": NOTHING}]}
        job_id, other_id = [(await self._ask(connection, "POST", "jobs", json=job))["id"] for _ in range(2)]
        await self._ask(connection, "POST", f"jobs/{other_id}/cancel")
        (task,) = (await self._ask(connection, "GET", f"tasks?job_id={job_id}"))["items"]
        named = f"tasks?type={NOTHING}&idempotency_key=none"
        worker = (await self._ask(connection, "GET", "workers?limit=1"))["items"][0]
        for what in (f"jobs/{job_id}", f"tasks/{task['id']}", "jobs", "tasks", named, f"workers/{worker['id']}"):
            await self._ask(connection, "GET", what)
        await self._ask(connection, "POST", f"tasks/{made['ids'][0]}/cancel")
        return [int(each) for each in (*made["ids"][1:], task["id"])]

    async def _ask(self, connection: httpx.AsyncClient, method: str, what: str, **body: Any) -> Any:
        answer = await connection.request(method, f"/v1/{what}", headers={"Idempotency-Key": uuid4().hex}, **body)
        assert answer.is_success, (method, what, answer.status_code, answer.text)
        return answer.json() if answer.content else None


async def writers_key(target) -> str:
    db = await connect(target)
    made = await create_key(db, org_id=DEFAULT_ORG_ID, name="writer", scopes=["writer"])
    await db.close()
    return made.text


@pytest.fixture
def api(way, host, aaiclick_postgres):
    """A server, the worker's own if it has one, and a key that opens it."""
    key = asyncio.run(writers_key(aaiclick_postgres))
    with contextlib.ExitStack() as serving:
        own = isinstance(way.work, ServerTarget)
        server = way.work if own else serving.enter_context(host.serve(aaiclick_postgres))
        yield ServerTarget(server.url, key)


async def test_the_schema_changes_under_load_and_nobody_is_refused(bench, api, next_release):
    worker = bench.start("--concurrency", "8")
    async with Clients(bench.target) as clients, Guests(api) as guests:
        await asyncio.gather(clients.more(100), guests.more(15))
        await upgrade(bench.target)
        await asyncio.gather(clients.more(100), guests.more(15))
    assert await current_revision(bench.target) == "0002"
    submitted = [*clients.submitted, *guests.submitted]
    await bench.all_completed(submitted)
    rows = await bench.rows("SELECT attempt FROM tasks WHERE id = ANY ($1::bigint[])", submitted)
    assert {row["attempt"] for row in rows} == {1}
    for process in worker.children():
        process.kill()
    await bench.all_completed([await bench.enqueue("nothing")])  # by one that was started, and registered, since
    db = await connect(bench.target)
    assert await check_invariants(db, grace_seconds=0) == []
    await db.close()
    assert worker.stop() == 0
    said = worker.process.stderr.read()
    assert "A process ended by signal 9." in said
    assert "rror" not in said


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
