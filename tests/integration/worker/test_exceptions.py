"""Every exception of a task is a charged failure; no worker hangs."""

from __future__ import annotations

import pytest

from tests.integration.gateways import AFTER_CLAIM, postgres_only

TASKS = """
import concurrent.futures, contextlib

class Base(BaseException): pass
class MuteExit(Exception):
    def __str__(self): raise SystemExit(3)
    __repr__ = __str__
class Unpicklable(Exception):
    def __reduce__(self): raise RuntimeError("no")
class Sly(Exception):
    @property
    def permanent(self): raise KeyboardInterrupt
    @property
    def __cause__(self): raise KeyboardInterrupt

def nested(levels):
    error = ValueError("innermost")
    for _ in range(levels): error = ExceptionGroup("level", [error])
    return error
def circular():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one
def recurse(n=0): return recurse(n + 1)

RAISED = {
    "CancelledError": asyncio.CancelledError, "futures.CancelledError": concurrent.futures.CancelledError,
    "GeneratorExit": GeneratorExit, "KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit, "Base": Base,
    "StopIteration": StopIteration, "StopAsyncIteration": StopAsyncIteration, "MuteExit": MuteExit,
    "Unpicklable": Unpicklable, "Sly": Sly, "nested": lambda: nested(2000), "circular": circular,
    "group": lambda: BaseExceptionGroup("some", [asyncio.CancelledError(), SystemExit(2)]),
}
async def raise_it(name): recurse() if name == "recursion" else None; raise RAISED[name]()
def raise_in_thread(name): recurse() if name == "recursion" else None; raise RAISED[name]()
async def await_cancelled():
    other = asyncio.create_task(asyncio.sleep(100))
    await asyncio.sleep(0)
    other.cancel()
    await other
async def cancel_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)
async def cancel_itself_and_return():
    asyncio.current_task().cancel()
def numbers():
    yield {"x": [1, 2]}
    yield {"x": [3]}
async def numbers_later():
    yield {"x": [1, 2]}
    yield {"x": [3]}
def broken_numbers():
    yield {"x": [1]}
    raise StopIteration
async def seven(): return 7
def coroutine_in_thread(): return seven()
async def coroutine(): return seven()
async def future(): return asyncio.ensure_future(seven())
"""

NAMES = (
    "CancelledError", "futures.CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit", "Base",
    "StopIteration", "StopAsyncIteration", "MuteExit", "Unpicklable", "Sly", "nested", "circular", "group",
    "recursion",
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_tasks(worker_env):
    with (worker_env.directory / "users_tasks.py").open("a") as file:
        file.write(TASKS)


@postgres_only(AFTER_CLAIM)
async def test_every_exception_is_a_charged_failure(worker_env):
    ids = {}
    for function in ("raise_it", "raise_in_thread"):
        for name in NAMES:
            ids[function, name] = await worker_env.enqueue(function, f'{{"name": "{name}"}}', max_attempts=1)
    for function in ("await_cancelled", "cancel_itself"):
        ids[function, ""] = await worker_env.enqueue(function, max_attempts=1)
    other_ids = await worker_env.enqueue_many(20, "nothing")
    worker = worker_env.start()
    for case, task_id in ids.items():
        try:
            row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
        except TimeoutError:
            pytest.fail(f"{case} does not end")
        assert (row["status"], row["attempt"], row["failures"]) == ("DEAD_LETTER", 1, 1), (case, row["error"])
        assert row["error"], case
    await worker_env.assert_all_completed(other_ids)
    assert worker.stop() == 0


async def test_a_cancelled_error_is_charged_and_retried_within_limits(worker_env):
    task_id = await worker_env.enqueue("raise_it", '{"name": "CancelledError"}', max_attempts=2, retry_policy=AT_ONCE)
    worker_env.start()
    row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
    assert (row["status"], row["attempt"], row["failures"]) == ("DEAD_LETTER", 2, 2)
    assert "CancelledError" in row["error"]


AT_ONCE = '{"base_seconds": 0}'


@postgres_only(AFTER_CLAIM)
async def test_generators_and_coroutines_are_results(worker_env):
    names = ("numbers", "numbers_later", "coroutine_in_thread", "coroutine", "cancel_itself_and_return")
    ids = {name: await worker_env.enqueue(name, max_attempts=1) for name in names}
    broken = [await worker_env.enqueue(name, max_attempts=1) for name in ("broken_numbers", "future")]
    worker_env.start()
    for name, task_id in ids.items():
        row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
        assert row["status"] == "COMPLETED", (name, row["error"])
    for task_id in broken:
        row = await worker_env.wait_until(task_id, lambda row: row["completed_at"])
        assert row["status"] in ("DEAD_LETTER", "FAILED")


async def test_isolated_tasks_that_cancel_are_charged(worker_env):
    ids = [
        await worker_env.enqueue("raise_it", '{"name": "CancelledError"}', max_attempts=1),
        await worker_env.enqueue("raise_in_thread", '{"name": "StopIteration"}', max_attempts=1),
    ]
    worker_env.drain("--isolation", "process")
    assert {(await worker_env.task(task_id))["status"] for task_id in ids} == {"DEAD_LETTER"}
