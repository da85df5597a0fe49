"""Time limits of tasks, items without a handler, and what remains of a stopped worker."""

from __future__ import annotations

from aaiclick.snowflake import get_snowflake_id
from aaiclick.store.engine.enqueue import enqueue_tasks
from aaiclick.store.engine.submission_plan import NewTask
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import connect
from aaiclick.store.task_options import TaskOptions

HANG_ONCE = """
def hang_once(path):
    is_first = not os.path.exists(path)
    with open(path, "a") as file: file.write(f"{os.getpid()}\\n")
    if is_first: ctypes.PyDLL(None).sleep(60)
"""
AT_ONCE = '{"base_seconds": 0.01, "cap_seconds": 0.01}'


async def test_default_timeout_ends_a_task_without_its_own(worker_env):
    worker_env.start(WORKER_TASK_TIMEOUT="0.3")
    task_id = await worker_env.enqueue("patient", '{"seconds": 60}', max_attempts=1)
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"] is not None)
    assert (row["status"], row["error"]) == ("DEAD_LETTER", "Timed out after 0.3 s.")


async def test_timed_out_task_is_retried_in_another_process(worker_env, tmp_path):
    with (worker_env.directory / "users_tasks.py").open("a") as file:
        file.write(HANG_ONCE)
    worker_env.start()
    path = tmp_path / "pids"
    task_id = await worker_env.enqueue(
        "hang_once", f'{{"path": "{path}"}}', max_attempts=2, timeout_seconds=0.5, retry_policy=AT_ONCE
    )
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"] is not None)
    assert (row["status"], row["attempt"], row["failures"]) == ("COMPLETED", 2, 1)
    first, second = path.read_text().split()
    assert first != second
    attempts = await worker_env.rows("SELECT outcome::text, charged FROM task_attempts WHERE task_id = $1", task_id)
    assert [tuple(attempt) for attempt in attempts] == [("TIMED_OUT", True)]


async def test_item_without_handler_fails_at_once(worker_env):
    connection = await connect(worker_env.endpoint)
    item = NewTask(id=get_snowflake_id(), type="nobody:handles", options=TaskOptions(5))
    (task_id,) = await enqueue_tasks(connection, [item], DEFAULT_ORG_ID)
    await connection.close()
    worker_env.drain()
    row = await worker_env.task(task_id)
    assert (row["status"], row["failures"]) == ("FAILED", 1)
    assert "has no handler for tasks of type 'nobody:handles'" in row["error"]


async def test_stopped_worker_leaves_no_session_and_no_error(worker_env):
    """Its own cleanup of tables is stopped before its connections are closed."""
    worker = worker_env.start()
    await worker_env.wait_until(await worker_env.enqueue("keep"), lambda row: row["status"] == "COMPLETED")
    assert worker.stop() == 0
    assert worker.process.stderr is not None
    output = worker.process.stderr.read()
    assert "Traceback" not in output
    assert "destroyed" not in output
    sessions = (
        "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert [row[0] for row in await worker_env.rows(sessions) if "worker" in (row[0] or "")] == []
