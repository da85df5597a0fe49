"""An engine on a fresh database, with short helpers for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine import queue
from aaiclick.store.engine.invariants import check_invariants
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, Success
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import NewJob, add_to_job, submit_job
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

LEASE_SECONDS = 60.0


@dataclass
class Engine:
    """A worker session; times are the database's plus `shift`, so that tests move the clock instead of waiting."""

    db: Connection
    endpoint: PostgresEndpoint
    worker_id: int
    shift: timedelta = field(default_factory=timedelta)
    ids: dict[str, int] = field(default_factory=dict)
    waits: bool = False

    async def now(self) -> datetime:
        return await self.db.fetchval("SELECT now()") + self.shift

    async def another(self) -> Engine:
        """Return a second session, as another worker, with the same names."""
        db = await connect(self.endpoint)
        worker = await queue.register_worker(db, hostname="other", pid=2)
        return Engine(db, self.endpoint, worker.id, self.shift, self.ids)

    def id(self, name: str) -> int:
        return self.ids.setdefault(name, get_snowflake_id())

    def name(self, task_id: int) -> str:
        return next(name for name, key in self.ids.items() if key == task_id)

    def plan(self, tasks: str, groups: str = "", edges: str = "", **options: Any) -> Plan:
        """`plan("a b:g c@any", "g h:g", "a>g")`: b is in group g, h in group g, g waits for a; c has when="any"."""

        def split(text: str) -> tuple[str, str | None]:
            name, _, parent = text.partition(":")
            return name, parent or None

        new_tasks, new_groups = [], []
        for name, group in map(split, tasks.split()):
            group_id = None if group is None else self.id(group)
            name, _, when = name.partition("@")
            task_options = TaskOptions(**options, when=when or None)  # pyright: ignore[reportArgumentType]
            task = NewTask(self.id(name), name, f"m.{name}", group_id=group_id, options=task_options)
            new_tasks.append(task)
        for name, parent in map(split, groups.split()):
            new_groups.append(NewGroup(self.id(name), name, None if parent is None else self.id(parent)))
        pairs = [tuple(self.id(end) for end in edge.split(">")) for edge in edges.split()]
        return Plan(new_tasks, new_groups, pairs)  # pyright: ignore[reportArgumentType]

    async def submit(self, tasks: str, groups: str = "", edges: str = "", job: str = "job", **options: Any) -> int:
        plan = self.plan(tasks, groups, edges, **options)
        names = {key: name for name, key in self.ids.items()}
        return await submit_job(self.db, NewJob(self.id(job), job), plan, names)

    async def add(self, job: str, tasks: str, groups: str = "", edges: str = "", lease: Lease | None = None) -> None:
        plan = self.plan(tasks, groups, edges)
        await add_to_job(self.db, self.id(job), plan, {key: name for name, key in self.ids.items()}, lease)

    async def claim(self, limit: int = 100, queues: Sequence[str] = ()) -> list[Claim]:
        return await queue.claim(
            self.db, worker_id=self.worker_id, limit=limit, queues=queues, lease_seconds=LEASE_SECONDS,
            now=await self.now() if self.shift else None,
        )  # fmt: skip

    async def complete(self, *claims: Claim, result: str | None = None) -> set[int]:
        return await queue.acknowledge(
            self.db, worker_id=self.worker_id, successes=[Success(claim.lease, result) for claim in claims],
            now=await self.now() if self.shift else None,
        )  # fmt: skip

    async def fail(self, *claims: Claim, permanent: bool = False, delay: float = 0.0) -> set[int]:
        failures = [Failure(c.lease, "it broke", "broken", permanent, delay) for c in claims]
        now = await self.now() if self.shift else None
        return await queue.acknowledge(self.db, worker_id=self.worker_id, failures=failures, now=now)

    async def run(self) -> list[str]:
        """Run until nothing is ready; return the sorted names of each claim."""
        rounds = []
        while claims := await self.claim():
            rounds.append(" ".join(sorted(claim.type for claim in claims)))
            await self.complete(*claims)
        return rounds

    async def status(self, *names: str) -> str:
        """Return statuses of tasks or jobs, by name."""
        rows = await self.db.fetch("SELECT id, status::text FROM tasks UNION ALL SELECT id, status::text FROM jobs")
        statuses = {row["id"]: row["status"] for row in rows}
        return " ".join(statuses[self.id(name)] for name in names)

    async def wait_until_idle(self, watcher: Engine, work: asyncio.Task[None]) -> None:
        """Return when this session idles in its transaction, waits for a lock, or is done."""
        pid = self.db.get_server_pid()
        while not work.done() and not self.waits:
            await asyncio.sleep(0.002)
            event = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $1"
            if not self.waits and await watcher.db.fetchval(event, pid) == "Lock":
                return

    async def check(self) -> None:
        """Assert that all invariants hold."""
        assert await check_invariants(self.db) == []


@pytest.fixture
async def engine(aaiclick_postgres: PostgresEndpoint) -> AsyncIterator[Engine]:
    db = await connect(aaiclick_postgres)
    worker = await queue.register_worker(db, hostname="test", pid=1)
    yield Engine(db, aaiclick_postgres, worker.id)
    await db.close()


@pytest.fixture
async def second(engine: Engine) -> AsyncIterator[Engine]:
    other = await engine.another()
    yield other
    await other.db.close()
