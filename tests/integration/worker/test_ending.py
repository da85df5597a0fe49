"""Tasks that do not end, processes that die, workers that are stopped: nothing is lost, nobody innocent pays."""

import asyncio
import json
import os
import signal
from datetime import timedelta

import asyncpg
import psutil
import pytest

from aaiclick.chaos.proxy import Proxy
from aaiclick.errors import UnreachableError
from aaiclick.orchestration.worker.main import LEFT_ALONE
from aaiclick.orchestration.worker.orders import WORN
from aaiclick.orchestration.worker.supervisor import GIVE_UP_SECONDS, TELL_SECONDS
from aaiclick.store import upkeep
from aaiclick.store.engine import connect


async def test_a_task_past_its_time_is_ended_whatever_it_does(bench):
    """Each in a process of its own."""
    seconds = json.dumps({"seconds": 60})
    functions = ("block", "sleep", "patient", "hold_the_interpreter")
    late = [await bench.enqueue(each, seconds, timeout_seconds=0.5, max_attempts=1) for each in functions]
    others = await bench.enqueue_many(30, "nothing")
    bench.start("--processes", "4", "--concurrency", "1")
    for row in await bench.until_all(late, lambda row: row["status"] == "DEAD_LETTER", 60):
        assert "Timed out after 0.5 s" in row["error"]
    await bench.all_completed(others)


async def test_tasks_that_kill_their_process_pay_alone(bench):
    """Whatever they call it: a process that ends with 0 has not done its work either."""
    policy = {"retry_policy": json.dumps({"base_seconds": 0.01}), "priority": 5}
    ends = await bench.enqueue("end_the_process", '{"code": 7}', max_attempts=2, **policy)
    well = await bench.enqueue("end_the_process", '{"code": 0}', max_attempts=2, **policy)
    killed = await bench.enqueue("kill_the_process", max_attempts=1, **policy)
    others = await bench.enqueue_many(40, "patient", '{"seconds": 0.2}', max_attempts=1)
    bench.start()
    for culprit, failures in ((ends, 2), (well, 2), (killed, 1)):
        row = await bench.until(culprit, lambda row: row["status"] == "DEAD_LETTER", 60)
        assert row["failures"] == failures
        assert "The process of this task ended with" in row["error"]
    await bench.all_completed(others)


async def test_errors_that_cannot_be_said_are_failures(bench):
    odd = [await bench.enqueue(each, max_attempts=1) for each in ("mumble", "choke")]
    bench.start("--concurrency", "1")
    rows = await bench.until_all(odd, lambda row: row["status"] == "DEAD_LETTER")
    assert "ValueError: \\ud800" in rows[0]["error"]
    assert "Speechless" in rows[1]["error"]


async def test_code_that_does_not_end_when_its_task_is_taken_away_wears_out_its_process(bench, ward):
    """It would keep its place for ever, and its process have one less."""
    task_id = await bench.enqueue("sleep", '{"seconds": 600}', retry_policy='{"base_seconds": 600}')
    other = await bench.enqueue("patient", '{"seconds": 3}')
    pid = await ward.start(grace_seconds=0.5)
    for each in (task_id, other):
        await bench.until(each, lambda row: row["status"] == "RUNNING")
    await bench.rows("UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id = $1 RETURNING 1", task_id)
    connection = await connect(bench.target)
    assert await upkeep.reap(connection, delay_seconds=lambda *_: 600.0) == 1
    await connection.close()
    assert await ward.wait(pid) == WORN
    assert (await bench.task(other))["status"] == "COMPLETED"


async def test_a_killed_process_is_replaced_and_its_tasks_are_done(bench):
    ids = await bench.enqueue_many(20, "patient", '{"seconds": 0.5}')
    worker = bench.start("--concurrency", "4")
    await bench.until(ids[0], lambda row: row["status"] == "RUNNING")
    for child in worker.children():
        child.kill()
    await bench.all_completed(ids)
    worker.stop()
    assert "A process ended by signal 9." in worker.process.stderr.read()


async def test_a_killed_supervisor_takes_its_processes_along_and_they_give_back(bench):
    task_id = await bench.enqueue("patient", '{"seconds": 30}')
    worker = bench.start()
    await bench.until(task_id, lambda row: row["status"] == "RUNNING")
    children = worker.children()
    worker.process.kill()
    row = await bench.until(task_id, lambda row: row["status"] == "PENDING")
    assert (row["attempt"], row["failures"]) == (1, 0)
    for child in children:
        child.wait(10)


async def test_told_to_stop_it_finishes_what_runs_and_gives_back_the_rest(bench):
    ids = await bench.enqueue_many(6, "patient", '{"seconds": 3}')
    worker = bench.start("--concurrency", "2")
    await bench.until(ids[0], lambda row: row["status"] == "RUNNING")
    assert worker.stop() == 0
    states = [row["status"] for row in await bench.rows("SELECT status FROM tasks ORDER BY id")]
    assert states.count("COMPLETED") == 2
    assert states.count("PENDING") == 4
    assert {row["status"] for row in await bench.rows("SELECT status FROM workers")} == {"STOPPED"}


async def test_told_twice_it_gives_back_what_runs(bench):
    task_id = await bench.enqueue("patient", '{"seconds": 60}')
    worker = bench.start()
    await bench.until(task_id, lambda row: row["status"] == "RUNNING")
    worker.process.send_signal(signal.SIGINT)
    assert "Finishing what runs" in worker.process.stderr.readline()
    worker.process.send_signal(signal.SIGINT)
    assert worker.wait() == 0
    row = await bench.task(task_id)
    assert (row["status"], row["failures"]) == ("PENDING", 0)


async def test_told_to_stop_while_the_queue_is_away_it_leaves_no_process_behind(bench, way):
    """The process that has nothing to do ends first and nobody can be told; the other is let finish all the same."""
    proxy = Proxy(way.upstream)
    await proxy.start()
    go = bench.directory / "go"
    task_id = await bench.enqueue("take", json.dumps({"path": str(go)}))
    variables = way.by(proxy.port).variables
    options = ("--processes", "2", "--concurrency", "1", "--stop-seconds", "3")
    worker = await asyncio.to_thread(bench.start, *options, **variables)
    await bench.until(task_id, lambda row: row["status"] == "RUNNING")
    children = worker.children()
    await proxy.stop()
    assert "Waiting for it" in await asyncio.to_thread(worker.process.stderr.readline)
    await asyncio.sleep(GIVE_UP_SECONDS - TELL_SECONDS + 0.5)  # of silence: long enough to give up, were it to stop
    worker.process.send_signal(signal.SIGTERM)
    while len(left := psutil.wait_procs(children, timeout=0)[1]) == 2:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert len(left) == 1
    go.touch()
    while go.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await asyncio.to_thread(worker.wait) == UnreachableError.exit_code
    assert psutil.wait_procs(children, timeout=0)[1] == []
    assert "The worker has stopped, and could not say so" in worker.process.stderr.read()


async def test_two_workers_share_the_work(bench):
    """Four tasks that wait for each other's start need both workers, of two places each."""
    path = bench.directory / "go"
    ids = await bench.enqueue_many(4, "wait_for", json.dumps({"path": str(path)}))
    bench.start("--concurrency", "2")
    bench.start("--concurrency", "2")
    holders = {(await bench.until(task_id, lambda row: row["status"] == "RUNNING"))["worker_id"] for task_id in ids}
    assert len(holders) == 2
    path.touch()
    await bench.all_completed(ids)


async def test_a_zombie_gets_nothing_accepted(bench):
    """Frozen past its lease, then woken: its task has been done by another, once."""
    path = bench.directory / "ran"
    task_id = await bench.enqueue("gather", json.dumps({"path": str(path), "seconds": 1}))
    frozen = bench.start()
    await bench.until(task_id, lambda row: row["status"] == "RUNNING")
    held = [frozen.process.pid, *(child.pid for child in frozen.children())]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    before = await bench.task(task_id)
    await bench.rows("UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id = $1 RETURNING id", task_id)
    await reap(bench)
    bench.start()
    done = await bench.until(task_id, lambda row: row["status"] == "COMPLETED")
    for pid in reversed(held):
        os.kill(pid, signal.SIGCONT)
    assert frozen.stop() == 0
    after = await bench.task(task_id)
    assert (after["attempt"], after["worker_id"], after["completed_at"]) == (
        done["attempt"],
        done["worker_id"],
        done["completed_at"],
    )
    assert after["worker_id"] != before["worker_id"]


WRITTEN_OFF = {
    "stopped": "UPDATE workers SET status = 'STOPPED', stopped_at = now(), last_heartbeat = now() - interval '5 s', "
    "is_leader = false, leader_until = NULL",
    "forgotten": "DELETE FROM workers",
}


@pytest.mark.parametrize("fate", sorted(WRITTEN_OFF))
async def test_who_was_taken_for_dead_is_alive_again_when_it_is_back_and_leads(bench, fate):
    """As after a machine has slept: somebody else has written it off, and yet it works."""
    worker = bench.start(WORKER_TIMEOUT="2", WORKER_HEARTBEAT_INTERVAL="0.3")
    await bench.until(await bench.enqueue("nothing"), lambda row: row["status"] == "COMPLETED")
    held = [worker.process.pid, *(child.pid for child in worker.children())]
    connection = await connect(bench.target)
    await connection.execute("SET lock_timeout = '300ms'")
    while True:
        for pid in held:
            os.kill(pid, signal.SIGSTOP)
        try:
            await connection.execute(WRITTEN_OFF[fate])
        except asyncpg.LockNotAvailableError:  # frozen within a transaction of its own
            for pid in reversed(held):
                os.kill(pid, signal.SIGCONT)
            continue
        break
    await asyncio.sleep(1.5)  # of silence
    for pid in reversed(held):
        os.kill(pid, signal.SIGCONT)
    while not await connection.fetch("SELECT FROM workers WHERE status = 'ACTIVE' AND is_leader"):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await connection.close()
    await bench.until(await bench.enqueue("nothing"), lambda row: row["status"] == "COMPLETED")
    assert worker.stop() == 0
    assert [row["status"] for row in await bench.rows("SELECT status FROM workers")] == ["STOPPED"]


async def reap(bench) -> None:
    """What the reaper does to an expired lease."""
    from aaiclick.store.queue import Failure, Lease, acknowledge

    connection = await connect(bench.target)
    row = await connection.fetchrow("SELECT id, attempt, lease_token FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')")
    lease = Lease(row["id"], row["attempt"], row["lease_token"])
    lost = Failure(lease, "The lease ran out.", "lost", outcome="LOST", expired=True)
    assert await acknowledge(connection, worker_id=0, failures=[lost]) == {lease.task_id}
    await connection.close()


async def test_a_process_that_nobody_hears_ends_with_its_leases(bench, ward, way):
    proxy = Proxy(way.upstream)
    await proxy.start()
    ward.reach_work_by(way.by(proxy.port))
    task_id = await bench.enqueue("patient", '{"seconds": 600}')
    pid = await ward.start(lease_seconds=2.0)
    await bench.until(task_id, lambda row: row["status"] == "RUNNING")
    await proxy.stop()
    await ward.hang_up(pid)
    assert await ward.wait(pid) == LEFT_ALONE


async def test_a_line_that_falls_silent_is_replaced_within_the_lease(bench, way):
    """Connections that are there swallow everything from now on, and nobody is told: what runs keeps its lease, and
    new work is taken.
    """
    proxy = Proxy(way.upstream)
    await proxy.start()
    go = bench.directory / "go"
    held = await bench.enqueue("wait_for", json.dumps({"path": str(go)}))
    variables = {"WORKER_TIMEOUT": "5", "WORKER_HEARTBEAT_INTERVAL": "0.5"} | way.by(proxy.port).variables
    # The proxy is in this loop: nothing may hold it up.
    worker = await asyncio.to_thread(bench.start, "--concurrency", "4", **variables)
    before = await bench.until(held, lambda row: row["status"] == "RUNNING")
    await proxy.strike("forgotten", 0)
    new = await bench.enqueue("nothing")
    await bench.until(new, lambda row: row["status"] == "COMPLETED")
    later = before["lease_expires_at"] + timedelta(seconds=5)
    await bench.until(held, lambda row: row["lease_expires_at"] > later)
    go.touch()
    assert (await bench.until(held, lambda row: row["status"] == "COMPLETED"))["attempt"] == before["attempt"]
    assert await asyncio.to_thread(worker.stop) == 0
    await proxy.stop()
