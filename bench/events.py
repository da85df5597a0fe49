"""Events into a reactive DAG of three stages: how fast they are routed, beside the raw insert of as many tasks.

    python -m bench.events [--events 100000] [--history 200000] [--repeats 3]

No task runs: routing is measured alone, each stage's events being what tasks of the stage before would have emitted.
The same is measured again beside a history of routed events and finished tasks. Rates of one run, in turns: every stage
has a raw enqueue of as many tasks next to it, and a stage's ratio is the median of its repeats. Before each repeat what
the one before left to clean up is cleaned up (VACUUM, without statistics), so that neither side pays for it. CPU is of
this process and of the backend, in microseconds per event: under load it says more than rates do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
import uuid

import psutil

from aaiclick.catalog.deploy import deploy
from aaiclick.local import find_postgres
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import catalog_events, event_routing
from aaiclick.store.engine import connect
from aaiclick.store.enqueue import enqueue_tasks
from aaiclick.store.migrate import ensure_current
from aaiclick.store.plan import NewTask
from aaiclick.store.words import DEFAULT_ORG_ID

STAGES = ("one", "two", "three")
DAG = """
name: stages
jobs:
  - {name: source, activation: source, operator: python, source: {kind: manual}, outputs: [zero],
     config: {function: "nobody:nothing"}}
  - {name: one, activation: reactive, operator: sql, outputs: [first], config: {query: SELECT x FROM zero}}
  - {name: two, activation: reactive, operator: sql, outputs: [second], config: {query: SELECT x FROM first}}
  - {name: three, activation: reactive, operator: sql, outputs: [third], config: {query: SELECT x FROM second}}
"""
RESET = "UPDATE tasks SET status = 'COMPLETED', readiness = NULL, completed_at = now() WHERE completed_at IS NULL"
GENERATION = (
    "SELECT p.dataset_uuid, p.dataset_version, p.dag_version_id FROM dag_version_datasets p "
    "JOIN datasets d ON d.id = p.dataset_uuid WHERE d.producer_job_name = $1"
)


async def emit(db, stage, count, jobs):
    """What tasks that have completed would have left behind, a thousand to a transaction."""
    found = await db.fetchrow(GENERATION, stage)
    for start in range(0, count, 1000):
        events = [
            catalog_events.Event(DEFAULT_ORG_ID, jobs[n % len(jobs)], found["dataset_uuid"], found["dataset_version"])
            for n in range(start, min(count, start + 1000))
        ]
        async with db.transaction():
            await catalog_events.count_events(db, await catalog_events.emit(db, events))


async def routed(db):
    total = 0
    while done := await event_routing.route(db):
        total += done
    return total


async def raw(db, count):
    """As many plain queue items, a thousand at a time: what an enqueue costs without any routing."""
    for _ in range(0, count, 1000):
        await enqueue_tasks(db, [NewTask(get_snowflake_id(), "bench") for _ in range(1000)])
    return count


class Backend:
    """The process of PostgreSQL that serves a connection, known by the database that it alone uses."""

    def __init__(self, database):
        found = [each for each in psutil.process_iter(["cmdline"]) if database in " ".join(each.info["cmdline"] or ())]
        self._process = found[0] if found else None  # on another machine

    def cpu(self):
        times = self._process.cpu_times() if self._process else None
        return float("nan") if times is None else times.user + times.system


async def timed(backend, work):
    """Events a second, and CPU in microseconds per event."""
    used, start = backend.cpu() + time.process_time(), time.perf_counter()
    count = await work
    seconds = time.perf_counter() - start
    return count / seconds, (backend.cpu() + time.process_time() - used) / count * 1e6


async def measure(db, backend, count, repeats):
    version = await db.fetchval("SELECT dag_version_id FROM dag_current_versions")
    jobs = []
    for _ in range(100):
        async with db.transaction():
            jobs.append(await catalog_events.open_job(db, DEFAULT_ORG_ID, "stages", version, {}))
    measured = {stage: [] for stage in ("source", "one", "two")}
    for _ in range(repeats):
        for stage, found in measured.items():
            await emit(db, stage, count, jobs)
            found.append((*await timed(backend, routed(db)), *await timed(backend, raw(db, count))))
        await db.execute(RESET)
        await db.execute("VACUUM tasks, outbox, jobs")

    def medians(of):
        return [statistics.median(of(*each) for each in found) for found in measured.values()]

    return {
        "routed_per_second": [round(each) for each in medians(lambda rate, _cpu, _raw, _raw_cpu: rate)],
        "raw_per_second": [round(each) for each in medians(lambda _rate, _cpu, raw, _raw_cpu: raw)],
        "ratio": [round(each, 2) for each in medians(lambda rate, _cpu, raw, _raw_cpu: rate / raw)],
        "cpu_us": [round(each, 1) for each in medians(lambda _rate, cpu, _raw, _raw_cpu: cpu)],
        "raw_cpu_us": [round(each, 1) for each in medians(lambda _rate, _cpu, _raw, raw_cpu: raw_cpu)],
    }


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--history", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    target = find_postgres(get_settings())
    name = f"bench_{uuid.uuid4().hex}"
    admin = await connect(target)
    await admin.execute(f"CREATE DATABASE {name}")
    try:
        await ensure_current(target.with_database(name))
        db = await connect(target.with_database(name))
        await deploy(db, DAG)
        backend = Backend(name)
        said = {"events": options.events, "repeats": options.repeats}
        print(json.dumps({**said, **await measure(db, backend, options.events, options.repeats)}))
        if options.history:
            for _ in range(0, options.history, 100_000):
                await measure(db, backend, min(options.history, 100_000), 1)
            beside = {"beside": options.history}
            print(json.dumps({**said, **beside, **await measure(db, backend, options.events, options.repeats)}))
        await db.close()
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


if __name__ == "__main__":
    asyncio.run(main())
