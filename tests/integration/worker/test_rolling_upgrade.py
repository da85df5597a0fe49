"""Rolling upgrade: the schema is migrated while clients, a server and a worker of the previous release run.

No request is refused and no task is lost.
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
from aaiclick.server_addresses import ServerEndpoint
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import alembic_commands
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.queries import get_job
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.migrate import get_current_revision, upgrade
from aaiclick.store.postgres_connections import connect
from aaiclick.store.tenancy.api_keys import create_key

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
PAUSE_SECONDS = 0.1  # slow enough for the worker to keep up
NOTHING = "users_tasks.nothing"


@pytest.fixture
def next_release(tmp_path, monkeypatch):
    """The migrations of this release and one more."""
    scripts = tmp_path / "migrations"
    shutil.copytree(alembic_commands.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "0002_next.py").write_text(NEXT)
    monkeypatch.setattr(alembic_commands, "SCRIPTS", scripts)


class Clients:
    """Submit continuously over open connections; errors are raised at the end."""

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.submitted: list[int] = []

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._work()) for _ in range(CLIENTS)]
        return self

    async def __aexit__(self, *_) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _work(self) -> None:
        async with self._open() as connection:
            while not self._stop.is_set():
                self.submitted += await self._submit(connection)
                await asyncio.sleep(PAUSE_SECONDS)

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        connection = await connect(self._endpoint)
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
        target_count = len(self.submitted) + tasks
        async with asyncio.timeout(60):
            while len(self.submitted) < target_count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


class ApiClients(Clients):
    """Clients of the HTTP API that read and change jobs and tasks."""

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        headers = {"Authorization": f"Bearer {self._endpoint.key}"}
        async with httpx.AsyncClient(base_url=self._endpoint.url, headers=headers, timeout=60) as client:
            yield client

    async def _submit(self, connection: httpx.AsyncClient) -> list[int]:
        items = [{"type": NOTHING, "entrypoint": NOTHING}] * 3
        response = await self._request(connection, "POST", "tasks", json={"items": items})
        job = {"name": "job", "tasks": [{"key": "a", "entrypoint": NOTHING}]}
        job_id, other_id = [(await self._request(connection, "POST", "jobs", json=job))["id"] for _ in range(2)]
        await self._request(connection, "POST", f"jobs/{other_id}/cancel")
        (task,) = (await self._request(connection, "GET", f"tasks?job_id={job_id}"))["items"]
        named = f"tasks?type={NOTHING}&idempotency_key=none"
        worker = (await self._request(connection, "GET", "workers?limit=1"))["items"][0]
        for path in (f"jobs/{job_id}", f"tasks/{task['id']}", "jobs", "tasks", named, f"workers/{worker['id']}"):
            await self._request(connection, "GET", path)
        await self._request(connection, "POST", f"tasks/{response['ids'][0]}/cancel")
        return [int(task_id) for task_id in (*response["ids"][1:], task["id"])]

    async def _request(self, connection: httpx.AsyncClient, method: str, path: str, **body: Any) -> Any:
        answer = await connection.request(method, f"/v1/{path}", headers={"Idempotency-Key": uuid4().hex}, **body)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None


async def writers_key(endpoint) -> str:
    db = await connect(endpoint)
    key = await create_key(db, org_id=DEFAULT_ORG_ID, name="writer", scopes=["writer"])
    await db.close()
    return key.text


@pytest.fixture
def api(gateway, server_thread, aaiclick_postgres):
    """A server (the worker's own if it uses HTTP) with a key for clients."""
    key = asyncio.run(writers_key(aaiclick_postgres))
    with contextlib.ExitStack() as serving:
        own = isinstance(gateway.work, ServerEndpoint)
        server = gateway.work if own else serving.enter_context(server_thread.serve(aaiclick_postgres))
        yield ServerEndpoint(server.url, key)


async def test_migration_under_load_refuses_no_request(worker_env, api, next_release):
    worker = worker_env.start("--concurrency", "8")
    async with Clients(worker_env.endpoint) as clients, ApiClients(api) as api_clients:
        await asyncio.gather(clients.more(60), api_clients.more(9))
        await upgrade(worker_env.endpoint)
        await asyncio.gather(clients.more(60), api_clients.more(9))
    assert await get_current_revision(worker_env.endpoint) == "0002"
    submitted = [*clients.submitted, *api_clients.submitted]
    await worker_env.assert_all_completed(submitted)
    rows = await worker_env.rows("SELECT attempt FROM tasks WHERE id = ANY ($1::bigint[])", submitted)
    assert {row["attempt"] for row in rows} == {1}
    for process in worker.children():
        process.kill()
    await worker_env.assert_all_completed(
        [await worker_env.enqueue("nothing")]
    )  # by a process that was started after the migration
    db = await connect(worker_env.endpoint)
    assert await check_invariants(db, grace_seconds=0) == []
    await db.close()
    assert worker.stop() == 0
    output = worker.process.stderr.read()
    assert "A worker process ended with signal 9." in output
    assert "rror" not in output


async def test_table_in_use_delays_only_the_migration(aaiclick_postgres, next_release, monkeypatch):
    monkeypatch.setattr(alembic_commands, "TABLE_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(alembic_commands, "RETRY_SECONDS", 0.05)
    reader = await connect(aaiclick_postgres)
    try:
        async with Clients(aaiclick_postgres) as clients, contextlib.AsyncExitStack() as reading:
            await reading.enter_async_context(reader.transaction())
            await reader.fetchval("SELECT count(*) FROM tasks")  # a long-running report
            changing = asyncio.create_task(upgrade(aaiclick_postgres))
            await clients.more(100)
            assert not changing.done()
            await reading.aclose()
            await changing
            await clients.more(30)
        assert await get_current_revision(aaiclick_postgres) == "0002"
    finally:
        await reader.close()


async def test_blocked_migration_gives_up_with_an_error(aaiclick_postgres, next_release, monkeypatch):
    monkeypatch.setattr(alembic_commands, "TABLE_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(alembic_commands, "GIVE_UP_SECONDS", 0.0)
    reader = await connect(aaiclick_postgres)
    try:
        async with reader.transaction():
            await reader.fetchval("SELECT count(*) FROM tasks")
            with pytest.raises(SchemaError, match="a table was in use for"):
                await upgrade(aaiclick_postgres)
        assert await get_current_revision(aaiclick_postgres) == "0001"
    finally:
        await reader.close()
