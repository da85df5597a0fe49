"""Cost of five data tests: updates of 10 million rows with and without them, interleaved.

    python -m bench.data_tests [--rows 10000000] [--repeats 5]

Starts separate servers in a temporary directory. Two definitions copy the same rows, one with tests; both are rebuilt
in turn. The ratio is that of the medians of the durations of their tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from pathlib import Path

from aaiclick.catalog.deploy import deploy
from aaiclick.data import create_object_from_query
from aaiclick.local import postgres_endpoint, stop_stack
from aaiclick.orchestration.worker.inline_runner import run_until_job_ends
from aaiclick.settings import get_settings
from aaiclick.store.catalog import dag_sources, datasets
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.migrate import upgrade_if_needed
from aaiclick.store.postgres_connections import connect

DAG = """
name: cost
jobs:
  - name: load
    activation: source
    operator: python
    source: {{kind: manual}}
    outputs: [raw]
    config: {{function: "bench.data_tests:make_rows", arguments: {{count: {rows}}}}}
  - name: plain
    activation: reactive
    operator: sql
    outputs: [plain]
    {strategy}
    config: {{query: "SELECT id, customer, euros, day, state FROM raw"}}
  - name: tested
    activation: reactive
    operator: sql
    outputs:
      - name: tested
        tests:
          - unique: [id]
          - not_null: [customer, euros]
          - between: {{column: euros, low: 0, high: 100000, on_failure: quarantine}}
          - accepted: {{column: state, values: [paid, sent, open]}}
          - rows: {{at_least: 1, change: {{from: -50%, to: 300%}}}}
    {strategy}
    config: {{query: "SELECT id, customer, euros, day, state FROM raw"}}
publish: [plain, tested]
"""
ROWS = """
SELECT number AS id, concat('customer ', toString(number % 100000)) AS customer,
    (number * 7919) % 10000000 / 100 AS euros, toDate('2026-01-01') + number % 365 AS day,
    ['paid', 'sent', 'open'][number % 3 + 1] AS state
FROM numbers({count:UInt64})
"""
SECONDS = "SELECT extract(epoch FROM completed_at - started_at)::float8 FROM tasks WHERE job_id = $1"


async def make_rows(count):
    return await create_object_from_query(ROWS, {"count": count})


async def measure(rows: int, repeats: int, strategy: str) -> None:
    postgres = await postgres_endpoint()
    await upgrade_if_needed(postgres)
    db = await connect(postgres)
    await deploy(db, DAG.format(rows=rows, strategy=strategy))
    job_id, _ = await dag_sources.start_source(db, DEFAULT_ORG_ID, "cost", None, {"kind": "manual"})
    assert (await run_until_job_ends(job_id)).status.value == "COMPLETED"
    ids = {row["name"]: row["id"] for row in await db.fetch("SELECT id, name FROM datasets")}
    seconds: dict[str, list[float]] = {"plain": [], "tested": []}
    for _ in range(repeats):
        for name, durations in seconds.items():
            job_id = await datasets.rematerialize(db, DEFAULT_ORG_ID, ids[name], name)
            job = await run_until_job_ends(job_id)
            assert job.status.value == "COMPLETED", job.error
            durations.append(await db.fetchval(SECONDS, job_id))
    await db.close()
    medians = {name: statistics.median(durations) for name, durations in seconds.items()}
    for name, durations in seconds.items():
        print(f"{name}: median {medians[name]:.2f} s of {', '.join(f'{value:.2f}' for value in durations)}")
    print(f"{rows:,} rows, {strategy or 'replace'}: ratio {medians['tested'] / medians['plain']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--append", action="store_true", help="append by id instead of replace")
    options = parser.parse_args()
    strategy = "update_strategy: append\n    unique_key: [id]" if options.append else ""
    with tempfile.TemporaryDirectory(prefix="aaiclick-bench-") as home:
        os.environ["AAICLICK_HOME"] = str(Path(home) / "home")
        os.environ["AAICLICK_LOG_DIR"] = str(Path(home) / "logs")
        get_settings.cache_clear()
        try:
            asyncio.run(measure(options.rows, options.repeats, strategy))
        finally:
            stop_stack()


if __name__ == "__main__":
    main()
