"""Jobs with tasks that add tasks, executed by real workers on a separate stack.

    python -m bench.growth [--depth 50] [--width 1000] [--processes 2]

`fan`: the first task of each level adds a level of `width` tasks. `chains`: `width` tasks each add one task, `depth`
times. `returned`: as `chains`, each returning the task that it adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time

from aaiclick.local import stop_stack
from aaiclick.orchestration import OrchContext, Task, create_job, create_task, get_current_context, get_job, task
from aaiclick.store.engine.invariants import check_invariants
from bench.map import start_worker


async def nothing() -> None:
    """Do nothing."""


@task
async def fan(depth: int, width: int) -> None:
    """Add a level of tasks."""
    if depth:
        await get_current_context().apply(
            [fan.task(depth - 1, width), *(create_task(nothing) for _ in range(width - 1))]
        )


@task
async def chain(depth: int) -> None:
    """Add one task."""
    if depth:
        await get_current_context().apply(chain.task(depth - 1))


@task
async def returned(depth: int) -> Task | None:
    """Return one task."""
    return returned.task(depth - 1) if depth else None


async def run(arguments: argparse.Namespace) -> None:
    depth, width = arguments.depth, arguments.width
    shapes = {
        "fan": [fan.task(depth, width)],
        "chains": [chain.task(depth - 1) for _ in range(width)],
        "returned": [returned.task(depth - 1) for _ in range(width)],
    }
    async with OrchContext() as context:
        worker = start_worker(arguments.processes, 16)
        try:
            for name in arguments.shapes:
                began = time.perf_counter()
                job = await create_job(name, shapes[name])
                while (done := await get_job(job.id)).completed_at is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
                seconds = time.perf_counter() - began
                async with context.connection() as connection:
                    findings = await check_invariants(connection)
                facts = {"shape": name, "status": done.status.value, "tasks": done.total_tasks}
                pace = {"seconds": round(seconds, 1), "per_s": round(done.total_tasks / seconds)}
                print(json.dumps({**facts, **pace, "findings": len(findings)}), flush=True)
        finally:
            worker.terminate()
            worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shapes", nargs="*", default=["fan", "chains", "returned"])
    arguments = parser.parse_args()
    home = os.environ["AAICLICK_HOME"] = tempfile.mkdtemp(prefix="aaiclick-bench-")
    try:
        asyncio.run(run(arguments))
    finally:
        stop_stack()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    # workers import the tasks from this module, so its name must not be __main__
    from bench.growth import main as main_by_name

    main_by_name()
