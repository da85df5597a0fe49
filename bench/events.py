"""Rate of event routing in a reactive DAG of three stages, compared with plain inserts of as many tasks.

    python -m bench.events [--events 100000] [--history 200000] [--repeats 3]

No task runs: the events of a stage are those that tasks of the previous stage would have emitted. The measurement is
repeated with a history of routed events and finished tasks. Each stage is followed by a plain enqueue of as many
tasks, and its ratio is the median of the repeats. VACUUM (without statistics) runs before each repeat. CPU is that of
this process and of the backend, in microseconds per event; it depends less on other load than rates do.
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
from aaiclick.store.catalog import dataset_events as catalog_events
from aaiclick.store.catalog import event_routing
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.migrate import upgrade_if_needed
from aaiclick.store.postgres_connections import connect

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


async def insert_events(db, stage, count, jobs):
    """Insert the events of completed tasks, a thousand per transaction."""
    generation = await db.fetchrow(GENERATION, stage)
    for start in range(0, count, 1000):
        events = [
            catalog_events.Event(
                DEFAULT_ORG_ID, jobs[n % len(jobs)], generation["dataset_uuid"], generation["dataset_version"]
            )
            for n in range(start, min(count, start + 1000))
        ]
        async with db.transaction():
            await catalog_events.count_events(db, await catalog_events.emit_events(db, events))


async def route_events(db):
    total = 0
    while done := await event_routing.route_events(db):
        total += done
    return total


async def raw(db, count):
    """Enqueue as many plain queue items, a thousand at a time."""
    for _ in range(0, count, 1000):
        await enqueue_tasks(db, [NewTask(get_snowflake_id(), "bench") for _ in range(1000)])
    return count


class Backend:
    """The backend process of a connection, found by its database name."""

    def __init__(self, database):
        processes = [
            process
            for process in psutil.process_iter(["cmdline"])
            if database in " ".join(process.info["cmdline"] or ())
        ]
        self._process = processes[0] if processes else None  # on another machine

    def cpu(self):
        times = self._process.cpu_times() if self._process else None
        return float("nan") if times is None else times.user + times.system


async def measure_rate(backend, work):
    """Return events per second, and CPU in microseconds per event."""
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
        for stage, samples in measured.items():
            await insert_events(db, stage, count, jobs)
            samples.append(
                (*await measure_rate(backend, route_events(db)), *await measure_rate(backend, raw(db, count)))
            )
        await db.execute(RESET)
        await db.execute("VACUUM tasks, outbox, jobs")

    def medians(of):
        return [statistics.median(of(*sample) for sample in samples) for samples in measured.values()]

    return {
        "routed_per_second": [round(value) for value in medians(lambda rate, _cpu, _raw, _raw_cpu: rate)],
        "raw_per_second": [round(value) for value in medians(lambda _rate, _cpu, raw, _raw_cpu: raw)],
        "ratio": [round(value, 2) for value in medians(lambda rate, _cpu, raw, _raw_cpu: rate / raw)],
        "cpu_us": [round(value, 1) for value in medians(lambda _rate, cpu, _raw, _raw_cpu: cpu)],
        "raw_cpu_us": [round(value, 1) for value in medians(lambda _rate, _cpu, _raw, raw_cpu: raw_cpu)],
    }


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--history", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    endpoint = find_postgres(get_settings())
    name = f"bench_{uuid.uuid4().hex}"
    admin = await connect(endpoint)
    await admin.execute(f"CREATE DATABASE {name}")
    try:
        await upgrade_if_needed(endpoint.with_database(name))
        db = await connect(endpoint.with_database(name))
        await deploy(db, DAG)
        backend = Backend(name)
        parameters = {"events": options.events, "repeats": options.repeats}
        print(json.dumps({**parameters, **await measure(db, backend, options.events, options.repeats)}))
        if options.history:
            for _ in range(0, options.history, 100_000):
                await measure(db, backend, min(options.history, 100_000), 1)
            history = {"history": options.history}
            print(json.dumps({**parameters, **history, **await measure(db, backend, options.events, options.repeats)}))
        await db.close()
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


if __name__ == "__main__":
    asyncio.run(main())
