"""Priorities of tasks that a worker process has claimed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aaiclick.orchestration.worker.process_config import EXIT_FINISHED
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions

ORDER = """
def note(path, number):
    with open(path, "a") as file: file.write(f"{number}\\n")
async def note_async(path, number): note(path, number)
"""


@pytest.mark.parametrize("function", ["note", "note_async"])
async def test_claimed_tasks_start_by_priority(
    worker_processes, aaiclick_postgres, tmp_path: Path, function: str
) -> None:
    (tmp_path / "ordered_tasks.py").write_text(ORDER)
    name, file = f"ordered_tasks.{function}", tmp_path / "order"
    priorities = [random.Random(7).randint(-5, 5) for _ in range(200)]
    tasks = [
        NewTask(
            get_snowflake_id(),
            name,
            entrypoint=name,
            options=TaskOptions(priority=priority),
            kwargs=f'{{"path": "{file}", "number": {priority}}}',
        )
        for priority in priorities
    ]
    connection = await connect(aaiclick_postgres)
    await enqueue_tasks(connection, tasks)
    await connection.close()
    pid = await worker_processes.start(concurrency=1, drain=True)
    assert await worker_processes.wait(pid, 100) == EXIT_FINISHED
    assert [int(line) for line in file.read_text().split()] == sorted(priorities, reverse=True)
