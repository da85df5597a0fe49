"""The queues that `bench.peers` compares: how each is prepared, filled and worked on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from aaiclick.orchestration import OrchContext, enqueue, enqueue_many
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.migrate import upgrade
from bench.item import arrived
from bench.queue import BATCH, CONNECTIONS, RAW, RAW_STEP

BULK = 1_000
MODULES = "BENCH_MODULES"
"""Environment variable with the directory in which the queues for Node are installed."""


class PeerQueue(Protocol):
    left: str
    """Query for the number of items that have not finished."""
    ready: str
    """Query for whether items wait; it reads an index."""

    async def prepare(self) -> None: ...

    async def enqueue(self, count: int) -> float:
        """Enqueue items, BULK per call; returns the seconds."""
        ...

    async def enqueue_singly(self, count: int) -> float: ...

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        """Enqueue items with the time, and wait after each."""
        ...

    def command(self) -> list[str]:
        """Command line of a worker process."""
        ...


async def repeat(count: int, call: Callable[[], Awaitable[object]]) -> float:
    """Await a call so many times; returns the seconds."""
    clock = time.perf_counter()
    for _ in range(count):
        await call()
    return time.perf_counter() - clock


def _own_worker(name: str, endpoint: PostgresEndpoint) -> list[str]:
    return [sys.executable, "-m", "bench.peers", "--work", name, endpoint.dsn]


class Raw:
    """The raw loop of `bench.queue`, as a worker that waits for notifications and runs a coroutine per item."""

    left = "SELECT count(*) FROM job WHERE state < 2"
    ready = "SELECT EXISTS (SELECT FROM job WHERE state = 0)"
    _put = "WITH i AS (INSERT INTO job (payload) VALUES ($1) RETURNING id) SELECT id, pg_notify('job', '') FROM i"
    _put_many = "INSERT INTO job (queue, payload) SELECT * FROM unnest($1::text[], $2::jsonb[]) RETURNING id"

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self.endpoint = endpoint

    async def prepare(self) -> None:
        connection = await asyncpg.connect(self.endpoint.dsn)
        await connection.execute(RAW)
        await connection.close()

    async def enqueue(self, count: int) -> float:
        connection = await asyncpg.connect(self.endpoint.dsn)
        seconds = await repeat(count // BULK, lambda: connection.fetch(self._put_many, ["q"] * BULK, ["{}"] * BULK))
        await connection.close()
        return seconds

    async def enqueue_singly(self, count: int) -> float:
        connection = await asyncpg.connect(self.endpoint.dsn)
        seconds = await repeat(count, lambda: connection.fetchrow(self._put, "{}"))
        await connection.close()
        return seconds

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        connection = await asyncpg.connect(self.endpoint.dsn)
        for _ in range(count):
            await connection.fetchrow(self._put, json.dumps({"sent": time.monotonic_ns()}))
            await wait()
        await connection.close()

    async def work(self) -> None:
        listener = await asyncpg.connect(self.endpoint.dsn)
        woken = [asyncio.Event() for _ in range(CONNECTIONS)]
        await listener.add_listener("job", lambda *_: [event.set() for event in woken])

        async def run(payload: str) -> None:
            arrived(0 if payload == "{}" else json.loads(payload)["sent"])

        async def pump(event: asyncio.Event) -> None:
            connection = await asyncpg.connect(self.endpoint.dsn)
            step, ids, attempts = await connection.prepare(RAW_STEP), list[int](), list[int]()
            while True:
                event.clear()
                rows = await step.fetch(ids, attempts, BATCH)
                await asyncio.gather(*(asyncio.create_task(run(row[2])) for row in rows))
                ids, attempts = [row[0] for row in rows], [row[1] for row in rows]
                if not rows:
                    await event.wait()

        await asyncio.gather(*map(pump, woken))

    def command(self) -> list[str]:
        return _own_worker("raw", self.endpoint)


class Aaiclick:
    left = "SELECT count(*) FROM tasks WHERE completed_at IS NULL"
    ready = "SELECT EXISTS (SELECT FROM tasks WHERE readiness = 'READY')"

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self.endpoint = endpoint

    async def prepare(self) -> None:
        await upgrade(self.endpoint)

    async def enqueue(self, count: int) -> float:
        async with OrchContext(endpoint=self.endpoint):
            return await repeat(count // BULK, lambda: enqueue_many("bench.item", [{}] * BULK))

    async def enqueue_singly(self, count: int) -> float:
        async with OrchContext(endpoint=self.endpoint):
            await enqueue("bench.item", {})  # a program connects once, as the others do
            return await repeat(count, lambda: enqueue("bench.item", {}))

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        async with OrchContext(endpoint=self.endpoint):
            for _ in range(count):
                await enqueue("bench.item", {"sent_ns": time.monotonic_ns()})
                await wait()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "aaiclick", "worker", "start", "--processes", "1", "--import", "bench.item"]


class Procrastinate:
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    ready = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'todo')"

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        import procrastinate

        self.endpoint = endpoint
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=endpoint.dsn, max_size=10))

        @self.app.task(name="item")
        async def item(sent_ns: int = 0) -> None:
            arrived(sent_ns)

        self.item: Any = item

    async def prepare(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def enqueue(self, count: int) -> float:
        async with self.app.open_async():
            return await repeat(count // BULK, lambda: self.item.batch_defer_async(*({} for _ in range(BULK))))

    async def enqueue_singly(self, count: int) -> float:
        async with self.app.open_async():
            return await repeat(count, self.item.defer_async)

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        async with self.app.open_async():
            for _ in range(count):
                await self.item.defer_async(sent_ns=time.monotonic_ns())
                await wait()

    async def work(self) -> None:
        async with self.app.open_async():
            await self.app.run_worker_async(concurrency=20, install_signal_handlers=False)

    def command(self) -> list[str]:
        return _own_worker("procrastinate", self.endpoint)


class PgQueuer:
    left = "SELECT count(*) FROM pgqueuer"
    ready = "SELECT EXISTS (SELECT FROM pgqueuer)"

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self.endpoint = endpoint

    async def _queries(self) -> tuple[asyncpg.Connection, Any]:
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(self.endpoint.dsn)
        return connection, Queries(AsyncpgDriver(connection))

    async def prepare(self) -> None:
        connection, queries = await self._queries()
        await queries.install()
        await connection.close()

    async def enqueue(self, count: int) -> float:
        connection, queries = await self._queries()
        items = ["item"] * BULK, [None] * BULK, [0] * BULK
        seconds = await repeat(count // BULK, lambda: queries.enqueue(*items))
        await connection.close()
        return seconds

    async def enqueue_singly(self, count: int) -> float:
        connection, queries = await self._queries()
        seconds = await repeat(count, lambda: queries.enqueue("item", None))
        await connection.close()
        return seconds

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        connection, queries = await self._queries()
        for _ in range(count):
            await queries.enqueue("item", str(time.monotonic_ns()).encode())
            await wait()
        await connection.close()

    async def work(self) -> None:
        import pgqueuer
        from pgqueuer.db import AsyncpgDriver

        worker = pgqueuer.PgQueuer(AsyncpgDriver(await asyncpg.connect(self.endpoint.dsn)))

        @worker.entrypoint("item")
        async def item(job: Any) -> None:
            arrived(int(job.payload) if job.payload else 0)

        await worker.run(batch_size=100)

    def command(self) -> list[str]:
        return _own_worker("pgqueuer", self.endpoint)


class _NodeQueue:
    """A queue for Node, driven through `node_peers.mjs`."""

    package: str

    def __init__(self, endpoint: PostgresEndpoint) -> None:
        self.endpoint = endpoint

    async def _run(self, *arguments: object) -> float:
        process = await asyncio.create_subprocess_exec(
            *self._command(*arguments), env=self._environment(), stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        return float(output.splitlines()[-1])

    async def prepare(self) -> None:
        await self._run("setup")

    async def enqueue(self, count: int) -> float:
        return await self._run("enqueue", count, BULK)

    async def enqueue_singly(self, count: int) -> float:
        return await self._run("single", count)

    async def send(self, count: int, wait: Callable[[], Awaitable[None]]) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command("send"), env=self._environment(), stdin=subprocess.PIPE
        )
        assert process.stdin is not None
        for _ in range(count):
            process.stdin.write(b"\n")
            await wait()
        process.stdin.close()
        await process.wait()

    def command(self) -> list[str]:
        return self._command("work")

    def _command(self, *arguments: object) -> list[str]:
        modules = Path(os.environ[MODULES])
        local = modules / "node_modules" / ".bin" / "node"
        script = Path(__file__).with_name("node_peers.mjs")
        return [str(local) if local.exists() else "node", str(script), self.package, *map(str, arguments)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "BENCH_DSN": self.endpoint.dsn}


class GraphileWorker(_NodeQueue):
    package = "graphile-worker"
    left = "SELECT count(*) FROM graphile_worker._private_jobs"
    ready = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)"


class PgBoss(_NodeQueue):
    package = "pg-boss"
    left = "SELECT count(*) FROM pgboss.job WHERE name = 'item' AND state < 'completed'"
    ready = "SELECT EXISTS (SELECT FROM pgboss.job WHERE name = 'item' AND state < 'active')"


QUEUES: dict[str, Callable[[PostgresEndpoint], PeerQueue]] = {
    "raw": Raw,
    "procrastinate": Procrastinate,
    "pgqueuer": PgQueuer,
    "graphile-worker": GraphileWorker,
    "pg-boss": PgBoss,
    "aaiclick": Aaiclick,
}
OWN_WORKERS: dict[str, Callable[[PostgresEndpoint], Raw | Procrastinate | PgQueuer]] = {
    "raw": Raw,
    "procrastinate": Procrastinate,
    "pgqueuer": PgQueuer,
}


def describe_version(name: str) -> str:
    """Name and version of a queue."""
    if name == "raw":
        return "raw asyncpg"
    if name in ("graphile-worker", "pg-boss"):
        manifest = Path(os.environ[MODULES]) / "node_modules" / name / "package.json"
        return f"{name} {json.loads(manifest.read_text())['version']}"
    return f"{name} {version(name)}"
