"""Connections to both servers, and helpers for tables and references."""

from __future__ import annotations

import asyncio
import os
import subprocess
import textwrap
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.snowflake import TIMESTAMP_SHIFT, get_snowflake_id
from aaiclick.store.engine import queue
from aaiclick.store.engine.leases_and_outcomes import Claim, Lease
from aaiclick.store.engine.submission_plan import NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from tests.fork_server import FORK_SERVER, ForkedProcess

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection


class Servers:
    """A connection to each server."""

    def __init__(
        self, db: Connection, client: ClickHouseClient, postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint
    ) -> None:
        self.db = db
        self.client = client
        self.postgres = postgres
        self.clickhouse = clickhouse
        self.worker_id = 0

    async def submit(
        self, *task_types: str, edges: tuple[tuple[int, int], ...] = (), org_id: UUID = DEFAULT_ORG_ID, **options
    ) -> tuple[int, list[int]]:
        """Submit a job with a task of each type; `edges` are pairs of positions."""
        ids = [get_snowflake_id() for _ in task_types]
        tasks = [
            NewTask(task_id, task_type, entrypoint=task_type)
            for task_id, task_type in zip(ids, task_types, strict=True)
        ]
        plan = Plan(tasks, (), [(ids[a], ids[b]) for a, b in edges], **options)
        return await submit_job(self.db, NewJob(get_snowflake_id(), "job", org_id), plan), ids

    async def claim(self, limit: int = 100) -> list[Claim]:
        if not self.worker_id:
            self.worker_id = (await queue.register_worker(self.db, hostname="here", pid=1)).id
        return await queue.claim(self.db, worker_id=self.worker_id, limit=limit, queues=(), lease_seconds=60)

    async def attempt(self) -> Lease:
        """Claim the only task of a new job."""
        await self.submit("one")
        return (await self.claim())[0].lease

    async def acknowledge(self, **outcomes) -> set[int]:
        return await queue.acknowledge(self.db, worker_id=self.worker_id, **outcomes)

    async def create(self, name: str | None = None, comment: str = "") -> str:
        """Create a table in ClickHouse without a reference."""
        name = name or new_table()
        await self.client.run(f"CREATE TABLE `{name}` (aai_id UInt64) ENGINE = Memory COMMENT '{comment}'")
        return name

    async def tables(self) -> set[str]:
        rows = await self.client.read_text("SELECT name FROM system.tables WHERE database = currentDatabase()")
        return set(rows.column(0).to_pylist())

    async def counts(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self.db.fetch("SELECT table_name, refcount FROM table_refcounts")}

    async def owners(self, table: str) -> set[str]:
        rows = await self.db.fetch("SELECT owner::text FROM table_references WHERE table_name = $1", table)
        return {row[0] for row in rows}

    def script(self, text: str) -> ForkedProcess:
        """Start a Python process with the same settings."""
        return FORK_SERVER.start([textwrap.dedent(text)], dict(os.environ), stdout=subprocess.PIPE, program="-c")


def new_table(age_seconds: float = 0) -> str:
    """Name of a table that was created `age` seconds ago."""
    return f"t{get_snowflake_id() - (int(age_seconds * 1000) << TIMESTAMP_SHIFT)}"


async def until(condition, seconds: float = 100):
    """Wait until a condition holds; returns its value."""
    async with asyncio.timeout(seconds):
        while not (result := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return result


@pytest.fixture(autouse=True)
def _no_literals(request, monkeypatch):
    """Small results are tables too in these tests, except in those of literals."""
    if "literals" not in request.node.path.name:
        monkeypatch.setenv("AAICLICK_MAX_LITERAL_BYTES", "-1")


@pytest.fixture
async def servers(aaiclick_env, aaiclick_postgres, aaiclick_clickhouse) -> AsyncIterator[Servers]:
    db = await connect(aaiclick_postgres)
    yield Servers(db, await connect_clickhouse(aaiclick_clickhouse), aaiclick_postgres, aaiclick_clickhouse)
    await db.close()
