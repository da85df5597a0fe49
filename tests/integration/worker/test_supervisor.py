"""Supervisor: time limits, crashes, stops and outages."""

import asyncio
import json
import os
import signal
from datetime import timedelta

import asyncpg
import psutil
import pytest

from aaiclick.errors import UnreachableError
from aaiclick.orchestration.worker.main import EXIT_ORPHANED
from aaiclick.orchestration.worker.process_config import EXIT_STUCK
from aaiclick.orchestration.worker.retrying_connection import GIVE_UP_SECONDS, LOG_OUTAGE_SECONDS
from aaiclick.store.engine import maintenance
from aaiclick.store.postgres_connections import connect


async def test_timed_out_task_is_ended_whatever_it_does(worker_env):
    """Each task runs in its own process."""
    seconds = json.dumps({"seconds": 60})
    functions = ("block", "sleep", "patient", "hold_the_interpreter")
    late = [
        await worker_env.enqueue(function, seconds, timeout_seconds=0.5, max_attempts=1, repeatable=True)
        for function in functions
    ]
    other_ids = await worker_env.enqueue_many(30, "nothing")
    worker_env.start("--processes", "4", "--concurrency", "1")
    for row in await worker_env.wait_until_all(late, lambda row: row["status"] == "DEAD_LETTER", 60):
        assert "Timed out after 0.5 s" in row["error"]
    await worker_env.assert_all_completed(other_ids)


async def test_only_tasks_that_kill_their_process_are_charged(worker_env):
    """Also with exit code 0, which does not mean that the task completed."""
    policy = {"retry_policy": json.dumps({"base_seconds": 0.01}), "priority": 5}
    ends = await worker_env.enqueue("end_the_process", '{"code": 7}', max_attempts=2, **policy)
    well = await worker_env.enqueue("end_the_process", '{"code": 0}', max_attempts=2, **policy)
    killed = await worker_env.enqueue("kill_the_process", max_attempts=1, repeatable=True, **policy)
    other_ids = await worker_env.enqueue_many(40, "patient", '{"seconds": 0.2}', max_attempts=1, repeatable=True)
    worker_env.start()
    for culprit, failures in ((ends, 2), (well, 2), (killed, 1)):
        row = await worker_env.wait_until(culprit, lambda row: row["status"] == "DEAD_LETTER", 60)
        assert row["failures"] == failures
        assert "The process of this task ended with" in row["error"]
    await worker_env.assert_all_completed(other_ids)


async def test_errors_without_a_text_are_failures(worker_env):
    odd = [await worker_env.enqueue(function, max_attempts=1, repeatable=True) for function in ("mumble", "choke")]
    worker_env.start("--concurrency", "1")
    rows = await worker_env.wait_until_all(odd, lambda row: row["status"] == "DEAD_LETTER")
    assert "ValueError: \\ud800" in rows[0]["error"]
    assert "Speechless" in rows[1]["error"]


async def test_process_with_a_stuck_task_is_replaced(worker_env, worker_processes):
    """Otherwise it would occupy a slot for ever."""
    task_id = await worker_env.enqueue("sleep", '{"seconds": 600}', retry_policy='{"base_seconds": 600}')
    other = await worker_env.enqueue("patient", '{"seconds": 3}')
    pid = await worker_processes.start(grace_seconds=0.5)
    for running_id in (task_id, other):
        await worker_env.wait_until(running_id, lambda row: row["status"] == "RUNNING")
    await worker_env.rows(
        "UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id = $1 RETURNING 1", task_id
    )
    connection = await connect(worker_env.endpoint)
    assert await maintenance.reap_expired_leases(connection, delay_seconds=lambda *_: 600.0) == 1
    await connection.close()
    assert await worker_processes.wait(pid) == EXIT_STUCK
    assert (await worker_env.task(other))["status"] == "COMPLETED"


async def test_killed_process_is_replaced_and_its_tasks_complete(worker_env):
    ids = await worker_env.enqueue_many(20, "patient", '{"seconds": 0.5}')
    worker = worker_env.start("--concurrency", "4")
    await worker_env.wait_until(ids[0], lambda row: row["status"] == "RUNNING")
    for child in worker.children():
        child.kill()
    await worker_env.assert_all_completed(ids)
    worker.stop()
    assert "A worker process ended with signal 9." in worker.process.stderr.read()


async def test_processes_of_a_killed_supervisor_release_their_tasks(worker_env):
    task_id = await worker_env.enqueue("patient", '{"seconds": 30}')
    worker = worker_env.start()
    await worker_env.wait_until(task_id, lambda row: row["status"] == "RUNNING")
    children = worker.children()
    worker.process.kill()
    row = await worker_env.wait_until(task_id, lambda row: row["status"] == "PENDING")
    assert (row["attempt"], row["failures"]) == (1, 0)
    for child in children:
        child.wait(10)


async def test_stop_finishes_running_tasks_and_releases_the_rest(worker_env):
    ids = await worker_env.enqueue_many(6, "patient", '{"seconds": 3}')
    worker = worker_env.start("--concurrency", "2")
    await worker_env.wait_until(ids[0], lambda row: row["status"] == "RUNNING")
    assert worker.stop() == 0
    states = [row["status"] for row in await worker_env.rows("SELECT status FROM tasks ORDER BY id")]
    assert states.count("COMPLETED") == 2
    assert states.count("PENDING") == 4
    assert {row["status"] for row in await worker_env.rows("SELECT status FROM workers")} == {"STOPPED"}


async def test_second_signal_releases_running_tasks(worker_env):
    task_id = await worker_env.enqueue("patient", '{"seconds": 60}')
    worker = worker_env.start()
    await worker_env.wait_until(task_id, lambda row: row["status"] == "RUNNING")
    worker.process.send_signal(signal.SIGINT)
    assert "Finishing running tasks" in worker.process.stderr.readline()
    worker.process.send_signal(signal.SIGINT)
    assert worker.wait() == 0
    row = await worker_env.task(task_id)
    assert (row["status"], row["failures"]) == ("PENDING", 0)


async def test_stop_during_an_outage_leaves_no_process(worker_env, gateway, proxy):
    """The idle process exits first although the queue is unreachable; the other one finishes its task."""
    go = worker_env.directory / "go"
    task_id = await worker_env.enqueue("take", json.dumps({"path": str(go)}))
    variables = gateway.via_port(proxy.port).variables
    options = ("--processes", "2", "--concurrency", "1", "--stop-seconds", "3")
    worker = await asyncio.to_thread(worker_env.start, *options, **variables)
    await worker_env.wait_until(task_id, lambda row: row["status"] == "RUNNING")
    children = worker.children()
    await proxy.stop()
    assert "Reconnecting" in await asyncio.to_thread(worker.process.stderr.readline)
    await asyncio.sleep(GIVE_UP_SECONDS - LOG_OUTAGE_SECONDS + 0.5)  # longer than a stopping worker waits
    worker.process.send_signal(signal.SIGTERM)
    while len(left := psutil.wait_procs(children, timeout=0)[1]) == 2:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert len(left) == 1
    go.touch()
    while go.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await asyncio.to_thread(worker.wait) == UnreachableError.exit_code
    assert psutil.wait_procs(children, timeout=0)[1] == []
    assert "The worker stopped without releasing its tasks" in worker.process.stderr.read()


async def test_two_workers_share_tasks(worker_env):
    """Four tasks run at once on two workers with two slots each."""
    path = worker_env.directory / "go"
    ids = await worker_env.enqueue_many(4, "wait_for", json.dumps({"path": str(path)}))
    worker_env.start("--concurrency", "2")
    worker_env.start("--concurrency", "2")
    holders = {
        (await worker_env.wait_until(task_id, lambda row: row["status"] == "RUNNING"))["worker_id"] for task_id in ids
    }
    assert len(holders) == 2
    path.touch()
    await worker_env.assert_all_completed(ids)


async def test_outcome_of_a_zombie_is_not_accepted(worker_env):
    """A worker is frozen until its lease expires, and resumes after another has completed the task."""
    path = worker_env.directory / "ran"
    task_id = await worker_env.enqueue("gather", json.dumps({"path": str(path), "seconds": 1}))
    frozen = worker_env.start()
    await worker_env.wait_until(task_id, lambda row: row["status"] == "RUNNING")
    held = [frozen.process.pid, *(child.pid for child in frozen.children())]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    before = await worker_env.task(task_id)
    await worker_env.rows(
        "UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id = $1 RETURNING id", task_id
    )
    await reap(worker_env)
    worker_env.start()
    done = await worker_env.wait_until(task_id, lambda row: row["status"] == "COMPLETED")
    for pid in reversed(held):
        os.kill(pid, signal.SIGCONT)
    assert frozen.stop() == 0
    after = await worker_env.task(task_id)
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
async def test_worker_assumed_dead_registers_again_and_leads(worker_env, fate):
    """As after a suspended machine: its rows were stopped or deleted meanwhile."""
    worker = worker_env.start(WORKER_TIMEOUT="2", WORKER_HEARTBEAT_INTERVAL="0.3")
    await worker_env.wait_until(await worker_env.enqueue("nothing"), lambda row: row["status"] == "COMPLETED")
    held = [worker.process.pid, *(child.pid for child in worker.children())]
    connection = await connect(worker_env.endpoint)
    await connection.execute("SET lock_timeout = '300ms'")
    while True:
        for pid in held:
            os.kill(pid, signal.SIGSTOP)
        try:
            await connection.execute(WRITTEN_OFF[fate])
        except asyncpg.LockNotAvailableError:  # frozen within a transaction
            for pid in reversed(held):
                os.kill(pid, signal.SIGCONT)
            continue
        break
    await asyncio.sleep(1.5)  # without heartbeats
    for pid in reversed(held):
        os.kill(pid, signal.SIGCONT)
    while not await connection.fetch("SELECT FROM workers WHERE status <> 'STOPPED' AND is_leader"):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await connection.close()
    await worker_env.wait_until(await worker_env.enqueue("nothing"), lambda row: row["status"] == "COMPLETED")
    assert worker.stop() == 0
    assert [row["status"] for row in await worker_env.rows("SELECT status FROM workers")] == ["STOPPED"]


async def reap(worker_env) -> None:
    """Reap an expired lease."""
    from aaiclick.store.engine.queue import Failure, Lease, acknowledge

    connection = await connect(worker_env.endpoint)
    row = await connection.fetchrow("SELECT id, attempt, lease_token FROM tasks WHERE status IN ('CLAIMED', 'RUNNING')")
    lease = Lease(row["id"], row["attempt"], row["lease_token"])
    lost = Failure(lease, "The lease ran out.", "lost", outcome="LOST", expired=True)
    assert await acknowledge(connection, worker_id=0, failures=[lost]) == {lease.task_id}
    await connection.close()


async def test_orphaned_process_exits_when_its_leases_expire(worker_env, worker_processes, gateway, proxy):
    worker_processes.reach_work_by(gateway.via_port(proxy.port))
    task_id = await worker_env.enqueue("patient", '{"seconds": 600}')
    pid = await worker_processes.start(lease_seconds=2.0)
    await worker_env.wait_until(task_id, lambda row: row["status"] == "RUNNING")
    await proxy.stop()
    await worker_processes.hang_up(pid)
    assert await worker_processes.wait(pid) == EXIT_ORPHANED


async def test_silent_connection_is_replaced_within_the_lease(worker_env, gateway, proxy):
    """Open connections drop all packets silently: running tasks keep their leases, and new ones are claimed."""
    go = worker_env.directory / "go"
    held = await worker_env.enqueue("wait_for", json.dumps({"path": str(go)}))
    variables = {"WORKER_TIMEOUT": "5", "WORKER_HEARTBEAT_INTERVAL": "0.5"} | gateway.via_port(proxy.port).variables
    # The proxy runs in this event loop, which must not block.
    worker = await asyncio.to_thread(worker_env.start, "--concurrency", "4", **variables)
    before = await worker_env.wait_until(held, lambda row: row["status"] == "RUNNING")
    await proxy.inject("forgotten", 0)
    new = await worker_env.enqueue("nothing")
    await worker_env.wait_until(new, lambda row: row["status"] == "COMPLETED")
    later = before["lease_expires_at"] + timedelta(seconds=5)
    await worker_env.wait_until(held, lambda row: row["lease_expires_at"] > later)
    go.touch()
    assert (await worker_env.wait_until(held, lambda row: row["status"] == "COMPLETED"))["attempt"] == before["attempt"]
    assert await asyncio.to_thread(worker.stop) == 0
