"""Events into a reactive DAG of three stages: how fast they are routed, beside the raw insert of as many tasks.

    python -m bench.events [--events 100000] [--history 200000]

No task runs: routing is measured alone, each stage's events being what tasks of the stage before would have emitted.
The same is measured again beside a history of routed events and finished tasks. Rates of one run, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid

from aaiclick.catalog.deploy import deploy
from aaiclick.local import find_postgres
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import catalog_events
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
    start, total = time.perf_counter(), 0
    while done := await catalog_events.route(db):
        total += done
    return total, time.perf_counter() - start


async def raw(db, count):
    """As many plain queue items, a thousand at a time: what an enqueue costs without any routing."""
    start = time.perf_counter()
    for _ in range(0, count, 1000):
        await enqueue_tasks(db, [NewTask(get_snowflake_id(), "bench") for _ in range(1000)])
    return count / (time.perf_counter() - start)


async def measure(db, count):
    version = await db.fetchval("SELECT dag_version_id FROM dag_current_versions")
    jobs = []
    for _ in range(100):
        async with db.transaction():
            jobs.append(await catalog_events.open_job(db, DEFAULT_ORG_ID, "stages", version, {}))
    rates = []
    for stage in ("source", "one", "two"):
        await emit(db, stage, count, jobs)
        total, seconds = await routed(db)
        rates.append(total / seconds)
    line = {"raw_per_second": round(await raw(db, count)), "routed_per_second": [round(rate) for rate in rates]}
    await db.execute(RESET)
    return line | {"ratio": [round(rate / line["raw_per_second"], 2) for rate in rates]}


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--history", type=int, default=200_000)
    options = parser.parse_args()
    target = find_postgres(get_settings())
    name = f"bench_{uuid.uuid4().hex}"
    admin = await connect(target)
    await admin.execute(f"CREATE DATABASE {name}")
    try:
        await ensure_current(target.with_database(name))
        db = await connect(target.with_database(name))
        await deploy(db, DAG)
        print(json.dumps({"events": options.events, **await measure(db, options.events)}))
        for _ in range(0, options.history, 100_000):
            await measure(db, min(options.history, 100_000))
        print(json.dumps({"events": options.events, "beside": options.history, **await measure(db, options.events)}))
        await db.close()
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


if __name__ == "__main__":
    asyncio.run(main())
