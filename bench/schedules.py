"""Cost of a pass of the scheduler with many schedules, and the rate at which due runs start.

    python -m bench.schedules [--schedules 100000] [--due 2000] [--repeats 20]

A separate PostgreSQL with durable defaults. All schedules are daily; a pass without due ones is timed `repeats` times,
then `due` of them are made due at once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from aaiclick.orchestration.loops import scheduler
from aaiclick.store.migrate import upgrade
from aaiclick.store.postgres_connections import connect
from bench.schema_shape import own_server

FILL = """
INSERT INTO schedules (id, org_id, name, entrypoint, job_name, cron, timezone, missed, max_missed, overlap,
    next_run_at, due_at)
SELECT n, '00000000-0000-4000-8000-000000000001', 'schedule ' || n, 'm.f', 'f', '0 3 * * *', 'UTC', 'latest', 100,
    'queue', due, due
FROM generate_series(1, $1::int) AS n, LATERAL (SELECT now() + interval '1 day' + n * interval '1 s' AS due) AS d
"""
MAKE_DUE = """
UPDATE schedules SET next_run_at = date_trunc('day', now()) - interval '21 h', due_at = now() WHERE id <= $1
"""


async def main(schedules: int, due: int, repeats: int) -> None:
    with own_server() as (endpoint, _):
        await upgrade(endpoint)
        connection = await connect(endpoint)
        await connection.execute(FILL, schedules, timeout=300)
        seconds: list[float] = []
        for _ in range(repeats):
            start = time.perf_counter()
            await scheduler.start_due_schedules(connection)
            seconds.append(time.perf_counter() - start)
        print(f"{schedules:,} schedules, none due: {statistics.median(seconds) * 1e3:.2f} ms per pass (median)")
        await connection.execute(MAKE_DUE, due)
        started, start = 0, time.perf_counter()
        while count := await scheduler.start_due_schedules(connection):
            started += count
        elapsed = time.perf_counter() - start
        print(f"{started:,} due runs started in {elapsed:.1f} s: {started / elapsed:,.0f}/s")
        await connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--due", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    asyncio.run(main(options.schedules, options.due, options.repeats))
