"""Compare the queue with a raw loop on the same server in the same run.

    python bench/queue.py [--tasks 20000] [--repeats 3] [--only SECTION] [--rows 1000000]

The raw loop is one table, a partial index and one statement that completes the last batch and claims the next, fenced
by the attempt: the minimum without jobs, organisations, groups, lease tokens or history. aaiclick uses the gateway of
workers. Both have two connections per process and batches of 100, commit durably, and run no VACUUM or ANALYZE by hand.
Medians of interleaved repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import asyncpg
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from aaiclick.server_addresses import PostgresEndpoint, parse_postgres_url
from aaiclick.snowflake import get_snowflake_id, get_snowflake_ids
from aaiclick.store.engine import queue
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.leases_and_outcomes import Success
from aaiclick.store.engine.submission_plan import NewGroup, NewTask, Plan
from aaiclick.store.engine.submit import NewJob, submit_job
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import DEFAULT_OPTIONS, TaskOptions
from bench.schema_shape import own_server

BATCH = 100
CONNECTIONS = 2
RAW = """
    CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL DEFAULT 'q',
        priority smallint NOT NULL DEFAULT 0, state smallint NOT NULL DEFAULT 0,
        run_at timestamptz NOT NULL DEFAULT now(), attempt int NOT NULL DEFAULT 0, lease_until timestamptz, worker int,
        finished_at timestamptz, payload jsonb NOT NULL DEFAULT '{}');
    CREATE INDEX job_ready ON job (queue, priority, id) WHERE state = 0
"""
RAW_STEP = """
    WITH d AS (UPDATE job SET state = 2, finished_at = now() FROM unnest($1::bigint[], $2::int[]) AS u (i, t)
        WHERE job.id = u.i AND job.attempt = u.t AND state = 1)
    UPDATE job SET state = 1, attempt = attempt + 1, worker = 1, lease_until = now() + interval '30 s'
    WHERE id = ANY (ARRAY(SELECT id FROM job WHERE state = 0 AND queue = 'q' ORDER BY priority, id LIMIT $3
        FOR UPDATE SKIP LOCKED)) RETURNING id, attempt, payload
"""


class Bench:
    def __init__(
        self, endpoint: PostgresEndpoint, postmaster: psutil.Process | None, arguments: argparse.Namespace
    ) -> None:
        self.endpoint, self.postmaster, self.arguments = endpoint, postmaster, arguments
        self.count: int = arguments.tasks

    def cpu(self) -> float:
        """Return the CPU seconds of the server, including ended backends."""
        if self.postmaster is None:
            return float("nan")
        own = self.postmaster.cpu_times()
        total = own.children_user + own.children_system
        for process in self.postmaster.children():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    async def fresh(self) -> PostgresEndpoint:
        """Create a database for one measurement."""
        name = f"bench_{uuid4().hex}"
        admin = await asyncpg.connect(self.endpoint.dsn)
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE bench_template")
        await admin.execute("CHECKPOINT")
        await admin.close()
        return self.endpoint.with_database(name)

    async def drop(self, endpoint: PostgresEndpoint) -> None:
        admin = await asyncpg.connect(self.endpoint.dsn)
        await admin.execute(f"DROP DATABASE {endpoint.database} WITH (FORCE)")
        await admin.close()

    # --- the work -----------------------------------------------------------------------------------------------------

    async def timed(self, work: Awaitable[int]) -> tuple[float, float]:
        """Return tasks per second, and the server's CPU in microseconds per task."""
        cpu, clock = self.cpu(), time.perf_counter()
        count = await work
        seconds = time.perf_counter() - clock
        return count / seconds, (self.cpu() - cpu) / count * 1e6

    async def raw_fill(self, endpoint: PostgresEndpoint) -> int:
        connection = await asyncpg.connect(endpoint.dsn)
        for start in range(0, self.count, 1000):
            part = min(1000, self.count - start)
            sql = "INSERT INTO job (queue, payload) SELECT * FROM unnest($1::text[], $2::jsonb[]) RETURNING id"
            await connection.fetch(sql, ["q"] * part, ["{}"] * part)
        await connection.close()
        return self.count

    async def our_fill(self, endpoint: PostgresEndpoint) -> int:
        connection = await connect(endpoint)
        for start in range(0, self.count, 1000):
            part = min(1000, self.count - start)
            await enqueue_tasks(connection, [NewTask(key, "bench") for key in get_snowflake_ids(part)])
        await connection.close()
        return self.count

    async def raw_single(self, endpoint: PostgresEndpoint) -> int:
        connection = await asyncpg.connect(endpoint.dsn)
        sql = "WITH i AS (INSERT INTO job (payload) VALUES ('{}') RETURNING id) SELECT id, pg_notify('job', '') FROM i"
        step = await connection.prepare(sql)
        for _ in range(500):
            await step.fetchrow()
        await connection.close()
        return 500

    async def our_single(self, endpoint: PostgresEndpoint) -> int:
        connection = await connect(endpoint)
        for _ in range(500):
            await enqueue_tasks(connection, [NewTask(get_snowflake_id(), "bench")])
        await connection.close()
        return 500

    async def drain(self, endpoint: PostgresEndpoint, queue: bool, processes: int) -> int:
        if processes == 1:
            return await (our_drain if queue else raw_drain)(endpoint)
        command = [sys.executable, __file__, "--drain", "ours" if queue else "raw", "--dsn", endpoint.dsn]
        workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(processes)]  # noqa: ASYNC220
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()  # ready
        clock = time.perf_counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
        total = sum(int(worker.communicate()[0]) for worker in workers)
        self.spawned_seconds = time.perf_counter() - clock
        return total

    # --- sections -----------------------------------------------------------------------------------------------------

    async def compare(
        self, title: str, raw: Callable[..., Awaitable[int]], queue: Callable[..., Awaitable[int]]
    ) -> None:
        figures: dict[str, list[tuple[float, float]]] = {"raw": [], "ours": []}
        for _ in range(self.arguments.repeats):
            for name, work in (("raw", raw), ("ours", queue)):
                endpoint = await self.fresh()
                figures[name].append(await self.timed(work(endpoint)))
                await self.drop(endpoint)
        self.report(title, figures)

    async def compare_drain(self, processes: int) -> None:
        figures: dict[str, list[tuple[float, float]]] = {"raw": [], "ours": []}
        for _ in range(self.arguments.repeats):
            for name in ("raw", "ours"):
                endpoint = await self.fresh()
                await (self.raw_fill if name == "raw" else self.our_fill)(endpoint)
                if processes == 1:
                    figures[name].append(await self.timed(self.drain(endpoint, name == "ours", 1)))
                else:
                    cpu = self.cpu()
                    count = await self.drain(endpoint, name == "ours", processes)
                    figures[name].append((count / self.spawned_seconds, (self.cpu() - cpu) / count * 1e6))
                await self.drop(endpoint)
        self.report(f"drain, {processes} process(es)", figures)

    def report(self, title: str, figures: dict[str, list[tuple[float, float]]]) -> None:
        rates = {name: statistics.median(rate for rate, _ in runs) for name, runs in figures.items()}
        cpus = {name: statistics.median(cpu for _, cpu in runs) for name, runs in figures.items()}
        base = next(iter(rates))
        line = "  ".join(f"{name} {rates[name]:,.0f}/s ({cpus[name]:.0f} us)" for name in rates)
        ratios = "  ".join(f"{name}/{base} {rates[name] / rates[base]:.2f}" for name in rates if name != base)
        print(f"{title:34} {line}  {ratios}", flush=True)

    async def growth(self) -> None:
        """Compare a drain with many unrelated rows and a drain of an otherwise empty table."""
        rows = self.arguments.rows
        states = {
            "empty": "SELECT 1",
            "finished": f"""INSERT INTO tasks (id, type, status, readiness, completed_at, attempt)
                SELECT n, 'x', 'COMPLETED', NULL, now(), 1 FROM generate_series(1, {rows}) AS n""",
            "blocked": f"""INSERT INTO tasks (id, type, readiness, unmet)
                SELECT n, 'x', 'BLOCKED', 1 FROM generate_series(1, {rows}) AS n""",
            "future": f"""INSERT INTO tasks (id, type, readiness, available_at)
                SELECT n, 'x', 'TIME', now() + interval '1 day' FROM generate_series(1, {rows}) AS n""",
            "held by a rate": f"""INSERT INTO tasks (id, type, readiness, rate)
                SELECT n, 'x', 'HELD', '1/60' FROM generate_series(1, {rows}) AS n;
                INSERT INTO rate_limits (org_id, key, allowed, seconds, charged_at, next_at, ends, counts)
                SELECT id, 'x', 1, 60, now(), now() + interval '1 day', '{{}}', '{{}}' FROM orgs""",
            "schedules": f"""INSERT INTO schedules (id, org_id, name, entrypoint, job_name, cron, timezone, missed,
                    max_missed, overlap, declared_in, next_run_at, due_at)
                SELECT n, (SELECT id FROM orgs), 'n' || n, 'm.f', 'f', '* * * * *', 'UTC', 'all', 9, 'queue', 'm' || n,
                    now() + interval '1 day', now() + interval '1 day' FROM generate_series(1, {rows // 10}) AS n""",
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in states}
        for _ in range(self.arguments.repeats):
            for name, seed in states.items():
                endpoint = await self.fresh()
                connection = await connect(endpoint)
                await connection.execute(seed, timeout=600)
                await connection.execute("CHECKPOINT", timeout=600)
                await connection.close()
                await self.our_fill(endpoint)
                figures[name].append(await self.timed(self.drain(endpoint, True, 1)))
                await self.drop(endpoint)
        self.report(f"drain beside {rows:,} rows", figures)

    async def rates(self) -> None:
        """Compare tasks without a rate and tasks with one that does not bind: median of interleaved batches."""
        endpoint = await self.fresh()
        connection = await connect(endpoint)
        worker = await queue.register_worker(connection, hostname="bench", pid=1)
        seconds: dict[str, list[float]] = {"none": [], "rate": []}
        for _ in range(self.count // BATCH):
            for name, options in (("none", DEFAULT_OPTIONS), ("rate", TaskOptions(rate="1000000000/1"))):
                await enqueue_tasks(
                    connection, [NewTask(key, "bench", options=options) for key in get_snowflake_ids(BATCH)]
                )
                clock = time.perf_counter()
                claims = await queue.claim(
                    connection, worker_id=worker.id, limit=BATCH, queues=["default"], lease_seconds=60
                )
                outcomes = [Success(claim.lease) for claim in claims]
                await queue.acknowledge(connection, worker_id=worker.id, successes=outcomes)
                seconds[name].append(time.perf_counter() - clock)
        await connection.close()
        await self.drop(endpoint)
        medians = {name: statistics.median(times) / BATCH * 1e6 for name, times in seconds.items()}
        line = "  ".join(f"{name} {median:.1f} us" for name, median in medians.items())
        print(
            f"{'claim and complete with a rate':34} {line}  rate/none {medians['rate'] / medians['none']:.3f}",
            flush=True,
        )

    async def shapes(self) -> None:
        """Submit and drain jobs of different graph shapes, compared with a flat job."""
        figures: dict[str, list[tuple[float, float]]] = {}
        submits: dict[str, list[tuple[float, float]]] = {}
        for _ in range(self.arguments.repeats):
            for name, plan in plans(self.count // 2).items():
                endpoint = await self.fresh()
                connection = await connect(endpoint)
                submits.setdefault(name, []).append(await self.timed(submitted(connection, plan)))
                await connection.close()
                figures.setdefault(name, []).append(await self.timed(self.drain(endpoint, True, 1)))
                await self.drop(endpoint)
        self.report(f"submit {self.count // 2:,} in one job", submits)
        self.report("drain it", figures)

    async def pickup(self) -> None:
        """Time from the commit of one task to its claim by an idle worker with LISTEN."""
        for name, listen in (("raw", raw_pickup), ("ours", our_pickup)):
            endpoint = await self.fresh()
            times = sorted(await listen(endpoint, 200))
            await self.drop(endpoint)
            print(f"{'pickup, ' + name:34} p50 {times[100]:.2f} ms  p99 {times[197]:.2f} ms", flush=True)


async def submitted(connection: asyncpg.Connection, plan: Plan) -> int:
    await submit_job(connection, NewJob(get_snowflake_id(), "bench"), plan)
    return len(plan.tasks)


def plans(count: int) -> dict[str, Plan]:
    ids = get_snowflake_ids(count)
    group = get_snowflake_id()
    flat = [NewTask(key, "bench") for key in ids]
    return {
        "flat": Plan(flat),
        "chains": Plan(flat, (), [(ids[n - 1], ids[n]) for n in range(1, count) if n % 100]),
        "fan-in": Plan(flat, (), [(key, ids[-1]) for key in ids[:-1]]),
        "fan-out": Plan(flat, (), [(ids[0], key) for key in ids[1:]]),
        "three parents": Plan(
            flat, (), [(ids[n - 1000 + (k * 37) % 999], ids[n]) for n in range(1000, count) for k in range(3)]
        ),
        "barrier": Plan(
            [NewTask(key, "bench", group_id=group if 0 < n < count - 1 else None) for n, key in enumerate(ids)],
            [NewGroup(group, "g")],
            [(ids[0], group), (group, ids[-1])],
        ),
    }


async def raw_drain(endpoint: PostgresEndpoint, ready: Callable[[], None] = lambda: None) -> int:
    connections = [await asyncpg.connect(endpoint.dsn) for _ in range(CONNECTIONS)]
    steps = [await connection.prepare(RAW_STEP) for connection in connections]
    ready()

    async def pump(step: asyncpg.prepared_stmt.PreparedStatement) -> int:
        total, ids, attempts = 0, list[int](), list[int]()
        while True:
            rows = await step.fetch(ids, attempts, BATCH)
            ids, attempts = [row[0] for row in rows], [row[1] for row in rows]
            total += len(ids)
            if not rows:
                return total

    total = sum(await asyncio.gather(*map(pump, steps)))
    for connection in connections:
        await connection.close()
    return total


async def our_drain(endpoint: PostgresEndpoint, ready: Callable[[], None] = lambda: None) -> int:
    connections = [await connect(endpoint) for _ in range(CONNECTIONS)]
    worker = await queue.register_worker(connections[0], hostname="bench", pid=1)
    ready()
    busy = 0

    async def pump(connection: asyncpg.Connection) -> int:
        nonlocal busy
        total, outcomes = 0, list[Success]()
        while True:
            held = len(outcomes)
            _, claims = await queue.acknowledge_and_claim(
                connection, worker_id=worker.id, successes=outcomes, limit=BATCH, queues=["default"], lease_seconds=60
            )
            busy += len(claims) - held
            outcomes = [Success(claim.lease) for claim in claims]
            total += len(claims)
            if not claims:
                if not busy:
                    return total
                await asyncio.sleep(0.0005)

    total = sum(await asyncio.gather(*map(pump, connections)))
    for connection in connections:
        await connection.close()
    return total


async def raw_pickup(endpoint: PostgresEndpoint, count: int) -> list[float]:
    worker, listener, producer = [await asyncpg.connect(endpoint.dsn) for _ in range(3)]
    step, woken = await worker.prepare(RAW_STEP), asyncio.Event()
    await listener.add_listener("job", lambda *_: woken.set())
    sql = "WITH i AS (INSERT INTO job (payload) VALUES ('{}') RETURNING id) SELECT id, pg_notify('job', '') FROM i"
    put, times, ids, attempts = await producer.prepare(sql), list[float](), list[int](), list[int]()
    for _ in range(count):
        woken.clear()
        clock = time.perf_counter()
        sent = asyncio.create_task(put.fetchrow())
        await woken.wait()
        rows = await step.fetch(ids, attempts, BATCH)
        times.append((time.perf_counter() - clock) * 1e3)
        ids, attempts = [row[0] for row in rows], [row[1] for row in rows]
        await sent
    for connection in (worker, listener, producer):
        await connection.close()
    return times


async def our_pickup(endpoint: PostgresEndpoint, count: int) -> list[float]:
    worker, listener, producer = [await connect(endpoint) for _ in range(3)]
    me, woken = await queue.register_worker(worker, hostname="bench", pid=1), asyncio.Event()
    await listener.add_listener(queue.READY_CHANNEL, lambda *_: woken.set())
    times, outcomes = list[float](), list[Success]()
    for _ in range(count):
        woken.clear()
        clock = time.perf_counter()
        sent = asyncio.create_task(enqueue_tasks(producer, [NewTask(get_snowflake_id(), "bench")]))
        await woken.wait()
        claims = await queue.claim(worker, worker_id=me.id, limit=1, queues=["default"], lease_seconds=60)
        times.append((time.perf_counter() - clock) * 1e3)
        outcomes = [Success(claim.lease) for claim in claims]
        await queue.acknowledge(worker, worker_id=me.id, successes=outcomes)
        await sent
    for connection in (worker, listener, producer):
        await connection.close()
    return times


async def run(endpoint: PostgresEndpoint, postmaster: psutil.Process | None, arguments: argparse.Namespace) -> None:
    admin = await asyncpg.connect(endpoint.dsn)
    await admin.execute("CREATE DATABASE bench_template")
    await admin.close()
    template = endpoint.with_database("bench_template")
    await upgrade(template)
    connection = await asyncpg.connect(template.dsn)
    await connection.execute(RAW)
    await connection.close()
    bench = Bench(endpoint, postmaster, arguments)
    sections: dict[str, Callable[[], Awaitable[None]]] = {
        "enqueue": lambda: bench.compare("enqueue, 1,000 at a time", bench.raw_fill, bench.our_fill),
        "single": lambda: bench.compare("enqueue, one at a time", bench.raw_single, bench.our_single),
        "drain": lambda: bench.compare_drain(1),
        "drain2": lambda: bench.compare_drain(2),
        "pickup": bench.pickup,
        "shapes": bench.shapes,
        "growth": bench.growth,
        "rates": bench.rates,
    }
    for name, section in sections.items():
        if arguments.only in (None, name):
            await section()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only")
    parser.add_argument("--dsn", default="", help=argparse.SUPPRESS)
    parser.add_argument("--drain", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drain:

        def ready() -> None:
            print("ready", flush=True)
            sys.stdin.readline()

        drain = our_drain if arguments.drain == "ours" else raw_drain
        print(asyncio.run(drain(parse_postgres_url(arguments.dsn), ready)))
        return
    with own_server() as (endpoint, postmaster):
        asyncio.run(run(endpoint, postmaster, arguments))


if __name__ == "__main__":
    main()
