"""Compare `map` with one Arrow stream through the same function, in one run on the same servers.

    python -m bench.map [--rows 5000000] [--chunk-rows 10000,50000,100000,250000] [--processes 2] [--repeat 2]
    python -m bench.map --shaky 10000      # chunks of ten rows; one call in a hundred fails at random

CPU seconds are those of all processes (client, workers, ClickHouse, PostgreSQL) and depend less on other load than wall
time. `per core` is the rate by CPU time relative to the stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from aaiclick.data import DataContext, Object, create_object_from_value
from aaiclick.local import stop_stack
from aaiclick.operators import map as map_rows
from aaiclick.orchestration import OrchContext, create_job, get_job, get_task

BATCH = 250_000


def transform(rows: pa.Table) -> pa.Table:
    """Transform a chunk."""
    scaled = pc.add(pc.multiply(rows["x"], 2), 1)
    return pa.table({"y": scaled, "root": pc.sqrt(rows["v"]), "x": rows["x"]})


def transform_or_fail(rows: pa.Table) -> pa.Table:
    """Transform a chunk; fail at random."""
    if random.random() < 0.01:
        raise RuntimeError("one in a hundred")
    return transform(rows)


class Usage:
    """CPU seconds of this process, the workers and the servers, and the peak memory by role."""

    def __init__(self) -> None:
        self.peak: dict[str, int] = {}
        self._processes = self.processes()  # listing processes costs more than sampling them
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @staticmethod
    def processes() -> dict[str, list[psutil.Process]]:
        processes_by_role: dict[str, list[psutil.Process]] = {"client": [psutil.Process()], "worker": [], "servers": []}
        for process in psutil.process_iter(["cmdline", "environ"]):
            command_line = " ".join(process.info["cmdline"] or ())
            if (process.info["environ"] or {}).get("AAICLICK_HOME") != os.environ["AAICLICK_HOME"]:
                if os.environ["AAICLICK_HOME"] in command_line:
                    processes_by_role["servers"].append(process)
            elif "worker.main" in command_line or "worker start" in command_line:
                processes_by_role["worker"].append(process)
            elif process.pid != os.getpid():
                processes_by_role["servers"].append(process)
        return processes_by_role

    def cpu(self) -> float:
        total = 0.0
        for group in self._processes.values():
            for process in group:
                try:
                    times = process.cpu_times()
                except psutil.Error:
                    continue
                total += times.user + times.system
        return total

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for role, group in self._processes.items():
                for process in group if role != "servers" else ():
                    try:
                        self.peak[role] = max(self.peak.get(role, 0), process.memory_info().rss)
                    except psutil.Error:
                        continue

    def __enter__(self) -> Usage:
        self.began, self.before = time.perf_counter(), self.cpu()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.used = time.perf_counter() - self.began, self.cpu() - self.before
        self._stop.set()
        self._thread.join()


async def numbers(rows: int) -> Object:
    async def batches():
        for start in range(0, rows, BATCH):
            x = np.arange(start, min(start + BATCH, rows))
            yield pa.table({"x": x, "v": x.astype("f8")})

    return await create_object_from_value(batches(), schema={"x": int, "v": float})


async def stream(source: Object) -> None:
    async def results():
        async for batch in source.iter_batches():
            yield transform(pa.Table.from_batches([batch]))

    await create_object_from_value(results())


CHUNKS = (
    "SELECT attempt, extract(epoch FROM completed_at - started_at)::float8 AS seconds, completed_at"
    " FROM tasks WHERE job_id = $1 AND type LIKE '%.chunk' ORDER BY completed_at"
)
COLLECT = (
    "SELECT extract(epoch FROM completed_at - started_at)::float8 FROM tasks"
    " WHERE job_id = $1 AND type LIKE '%.collect'"
)


async def mapped(source: Object, chunk_rows: int, callback) -> dict[str, Any]:
    options = {"retry_policy": {"base_seconds": 0.05}}
    handle = map_rows(callback, source, chunk_rows=chunk_rows, options=options)
    job = await create_job("bench", handle)
    while (await get_job(job.id)).completed_at is None:  # noqa: ASYNC110
        await asyncio.sleep(0.2)  # polling costs CPU too
    done = await get_job(job.id)
    assert done.status == "COMPLETED", (done.status, done.error)
    async with OrchContext() as context, context.connection() as connection:
        rows = await connection.fetch(CHUNKS, job.id)
        collect = await connection.fetchval(COLLECT, job.id)
    tenth = len(rows) // 10

    def span(first: int, last: int) -> float:
        return (rows[last]["completed_at"] - rows[first]["completed_at"]).total_seconds()

    return {
        "chunks": len(rows), "given_back_or_retried": sum(row["attempt"] > 1 for row in rows),
        "chunk_ms": 1000 * statistics.median(row["seconds"] for row in rows),
        "second_tenth_s": span(tenth, 2 * tenth), "last_tenth_s": span(-1 - tenth, -1), "collect_s": collect,
        "table": (await get_task(handle.id)).result["table_id"],
    }  # fmt: skip


async def check(data: DataContext, table: str, rows: int) -> None:
    """Check that all rows are present and in order."""
    counts = await data.client.read_text(f"SELECT count(), countIf(y != 2 * aai_id + 1 OR x != aai_id) FROM {table}")
    assert [counts.column(0)[0].as_py(), counts.column(1)[0].as_py()] == [rows, 0]
    parts = await data.client.read_text(
        "SELECT count() FROM system.parts WHERE active AND database = currentDatabase() AND table = {t:String}",
        {"t": table},
    )
    print(f"  checked: {rows:,} rows in order, {parts.column(0)[0].as_py()} parts", file=sys.stderr)


def report(name: str, rows: int, usage: Usage, baseline: float | None, **facts: object) -> float:
    per_row = usage.used / rows * 1e9
    line = {
        "what": name, "rows": rows, "seconds": round(usage.seconds, 2), "rows_per_s": round(rows / usage.seconds),
        "cpu_ns_per_row": round(per_row), "peak_mb": {k: v >> 20 for k, v in usage.peak.items()},
        **({"per_core": round(baseline / per_row, 2)} if baseline else {}),
        **{k: round(v, 3) if isinstance(v, float) else v for k, v in facts.items()},
    }  # fmt: skip
    print(json.dumps(line), flush=True)
    return per_row


def start_worker(processes: int, concurrency: int) -> subprocess.Popen[bytes]:
    options = ("--processes", str(processes), "--concurrency", str(concurrency))
    return subprocess.Popen(
        [sys.executable, "-m", "aaiclick", "worker", "start", *options],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "AAICLICK_LOG_DIR": f"{os.environ['AAICLICK_HOME']}/logs"},
        stderr=subprocess.DEVNULL,
    )


async def run(arguments: argparse.Namespace) -> None:
    async with DataContext() as data, OrchContext():
        worker = start_worker(arguments.processes, arguments.concurrency)
        while len(psutil.Process(worker.pid).children()) < arguments.processes:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        try:
            if arguments.shaky:
                rows = arguments.shaky * 10
                source = await numbers(rows)
                with Usage() as usage:
                    facts = await mapped(source, 10, transform_or_fail)
                report(f"failing map, {arguments.shaky} chunks", rows, usage, None, **facts)
                await check(data, facts["table"], rows)
                return
            source = await numbers(arguments.rows)
            await mapped(source, max(arguments.rows // 8, 1), transform)  # all processes are warm then
            for _ in range(arguments.repeat):
                with Usage() as usage:
                    await stream(source)
                baseline = report("stream", arguments.rows, usage, None)
                for chunk_rows in arguments.chunk_rows:
                    with Usage() as usage:
                        facts = await mapped(source, chunk_rows, transform)
                    report(f"map, chunks of {chunk_rows}", arguments.rows, usage, baseline, **facts)
                    await check(data, facts["table"], arguments.rows)
        finally:
            worker.terminate()
            worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--chunk-rows", type=lambda text: [int(part) for part in text.split(",")], default=[100_000])
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--shaky", type=int, default=0)
    arguments = parser.parse_args()
    home = os.environ["AAICLICK_HOME"] = tempfile.mkdtemp(prefix="aaiclick-bench-")
    try:
        asyncio.run(run(arguments))
    finally:
        stop_stack()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    # workers import the callback from this module, so its name must not be __main__
    from bench.map import main as main_by_name

    main_by_name()
