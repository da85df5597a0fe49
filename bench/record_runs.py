"""Record runs of real DAGs, with slow and failed runs and times without a worker, for `bench.late_forecast`.

    python -m bench.record_runs [--minutes 10] [--dags 6] [--output tests/unit/catalog/recorded_runs.json]

Each DAG is a source and two to four definitions after each other, all of about a second; its source is started every
ten seconds. A definition sleeps for a log-normal time around its median, one time of 25 two to four times as long, and
fails one time of 40; a failed run is started again after three seconds. Every two minutes the worker is stopped for
some seconds. The file has the times of all tasks in milliseconds since the first start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from aaiclick.catalog.deploy import deploy
from aaiclick.data import Object
from aaiclick.local import stop_stack
from aaiclick.orchestration import OrchContext
from aaiclick.store.catalog.dag_sources import start_source
from aaiclick.store.enums import DEFAULT_ORG_ID
from bench.map import start_worker

PERIOD_SECONDS = 10.0
RESTART_SECONDS = 3.0
STOP_EVERY_SECONDS = 120.0
SOURCE = """
name: {dag}
defaults: {{max_attempts: 1}}
jobs:
  - {{name: step0, activation: source, operator: python, source: {{kind: manual}}, outputs: [out0],
     config: {{function: "bench.record_runs:begin", arguments: {{median: {median}}}}}}}"""
STEP = """
  - {{name: step{number}, activation: reactive, operator: python, inputs: [out{previous}], outputs: [out{number}],
     config: {{function: "bench.record_runs:proceed",
               arguments: {{previous: {{input: out{previous}}}, median: {median}}}}}}}"""
TASKS = """
    SELECT d.dag_name, d.name, t.status::text, t.created_at, t.started_at, t.completed_at
    FROM tasks t JOIN job_definitions d ON d.id = t.definition_id WHERE t.completed_at IS NOT NULL ORDER BY t.id
"""
FAILED = """
    SELECT j.id, v.dag_name FROM jobs j JOIN dag_versions v ON v.id = j.dag_version_id
    WHERE j.status = 'FAILED' AND j.completed_at < now() - $1 * interval '1 second'
"""


def begin(median: float) -> list[dict[str, object]]:
    return _work(median)


def proceed(previous: Object, median: float) -> list[dict[str, object]]:  # noqa: ARG001  (the input)
    return _work(median)


def _work(median: float) -> list[dict[str, object]]:
    random_ = random.SystemRandom()
    chance, seconds = random_.random(), median * random_.lognormvariate(0, 0.25)
    if chance < 1 / 25:
        seconds *= random_.uniform(2, 4)
    elif chance < 1 / 25 + 1 / 40:
        time.sleep(seconds * random_.random())
        raise ValueError("The recorded failure.")
    time.sleep(seconds)
    return [{"at": time.time_ns()}]


def make_dags(count: int) -> dict[str, str]:
    random_ = random.Random(1)
    dags: dict[str, str] = {}
    for index in range(count):
        medians = [round(random_.uniform(0.4, 1.4), 2) for _ in range(random_.randint(3, 5))]
        steps = [
            STEP.format(number=number, previous=number - 1, median=median)
            for number, median in enumerate(medians) if number
        ]  # fmt: skip
        name = f"recorded{index}"
        dags[name] = SOURCE.format(dag=name, median=medians[0]) + "".join(steps) + "\n"
    return dags


async def start_runs(connection: Any, dags: dict[str, str], end: float) -> float:
    """Start the sources at their nominal times, and failed runs again; returns the first nominal time."""
    first = time.time() + 1
    number, restarted = 0, set[int]()
    while (now := time.time()) < end:
        if now >= first + number * PERIOD_SECONDS:
            for dag in dags:
                await start_source(connection, DEFAULT_ORG_ID, dag, None, {"kind": "manual"})
            number += 1
        for row in await connection.fetch(FAILED, RESTART_SECONDS):
            if row["id"] not in restarted:
                restarted.add(row["id"])
                await start_source(connection, DEFAULT_ORG_ID, row["dag_name"], None, {"kind": "manual"})
        await asyncio.sleep(0.05)
    return first


async def stop_workers_sometimes() -> None:
    """Keep a worker running, and stop it for some seconds every two minutes."""
    worker = start_worker(1, 64)
    try:
        while True:
            await asyncio.sleep(STOP_EVERY_SECONDS)
            worker.terminate()
            await asyncio.to_thread(worker.wait)
            await asyncio.sleep(random.uniform(1, 4))
            worker = start_worker(1, 64)
    finally:
        worker.terminate()
        worker.wait()


async def record(arguments: argparse.Namespace) -> str:
    """Return the text of the recording."""
    dags = make_dags(arguments.dags)
    async with OrchContext() as context, context.connection() as connection:
        for text in dags.values():
            await deploy(connection, text)
        workers = asyncio.create_task(stop_workers_sometimes())
        await asyncio.sleep(5)
        try:
            first = await start_runs(connection, dags, time.time() + 60 * arguments.minutes)
            await asyncio.sleep(2 * PERIOD_SECONDS)
            rows = await connection.fetch(TASKS)
        finally:
            workers.cancel()
            await asyncio.gather(workers, return_exceptions=True)

    def since(moment: Any) -> int:
        return round(1000 * (moment.timestamp() - first))

    recorded: dict[str, dict[str, list[list[int]]]] = {dag: {} for dag in dags}
    for row in rows:
        if row["started_at"] is not None:
            times = [since(row[name]) for name in ("created_at", "started_at", "completed_at")]
            recorded[row["dag_name"]].setdefault(row["name"], []).append([*times, int(row["status"] != "COMPLETED")])
    lines = ",\n".join(
        json.dumps([steps[name] for name in sorted(steps)], separators=(",", ":")) for steps in recorded.values()
    )
    return f'{{"period_ms": {round(1000 * PERIOD_SECONDS)}, "dags": [\n{lines}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--dags", type=int, default=6)
    parser.add_argument("--output", default="tests/unit/catalog/recorded_runs.json")
    home = tempfile.mkdtemp(prefix="record-runs-")
    os.environ |= {"AAICLICK_HOME": home, "AAICLICK_TASK_MODULES": "bench.record_runs,aaiclick.catalog"}
    try:
        arguments = parser.parse_args()
        Path(arguments.output).write_text(asyncio.run(record(arguments)))
    finally:
        stop_stack()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
