"""kill -9 of any part: the next command, or the lease itself, heals it; what was acknowledged is there."""

import asyncio
import json
import os
import shutil
import signal

import psutil
import pytest

from aaiclick.errors import StackError
from aaiclick.local import lease
from aaiclick.local.home import Home
from aaiclick.local.lease import ask
from tests.integration.local.conftest import Stack
from tests.integration.local.test_stack import join


@pytest.fixture(scope="module")
def healed(cluster, tmp_path_factory):
    """The home of all tests here: each finds it whole, or heals it."""
    home = Home(shutil.copytree(cluster, tmp_path_factory.mktemp("healed") / "home"))
    yield home
    ask(home, {"op": "stop"})


@pytest.fixture
def stack(healed):
    found = Stack(healed)
    yield found
    found.lease.close()


async def write_rows(stack, count: int) -> None:
    connection = await stack.connect()
    await connection.execute("DROP TABLE IF EXISTS kept; CREATE TABLE kept (a int)")
    for number in range(count):
        await connection.execute("INSERT INTO kept VALUES ($1)", number)
    await connection.close()
    stack.clickhouse("CREATE OR REPLACE TABLE aaiclick.kept (a Int64) ENGINE = MergeTree ORDER BY a")
    for number in range(count):
        stack.clickhouse(f"INSERT INTO aaiclick.kept VALUES ({number})")


async def rows_of(stack) -> tuple[int, int]:
    connection = await stack.connect()
    kept = await connection.fetchval("SELECT count(*) FROM kept")
    await connection.close()
    return kept, int(stack.clickhouse("SELECT count() FROM aaiclick.kept"))


def restarted(stack, name: str, old_pid: int) -> bool:
    status = stack.status()
    server = (status or {"servers": {}})["servers"].get(name)
    return bool(server) and server["pid"] not in (None, old_pid) and server["state"] == "running"


@pytest.mark.parametrize("name", ["postgres", "clickhouse"])
async def test_a_killed_server_comes_back_with_every_acknowledged_row(stack, name):
    await write_rows(stack, 50)
    before = stack.status()["servers"][name]
    pid = before["pid"]
    os.kill(pid, signal.SIGKILL)
    while not restarted(stack, name, pid):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await rows_of(stack) == (50, 50)
    assert stack.status()["servers"][name]["restarts"] == before["restarts"] + 1


async def test_a_killed_keeper_is_replaced_by_whoever_uses_the_stack(stack):
    await write_rows(stack, 50)
    before = stack.status()
    os.kill(before["pid"], signal.SIGKILL)
    while not restarted(stack, "postgres", before["servers"]["postgres"]["pid"]):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await rows_of(stack) == (50, 50)


async def test_who_still_uses_a_stack_that_was_stopped_has_all_of_it_back_when_somebody_starts_it(healed, stack):
    await write_rows(stack, 3)
    ask(healed, {"op": "stop"})
    stack.wait_until_gone()
    assert stack.status() is None, "nobody has started it"
    other = Stack(healed)
    await (await other.connect()).close()
    while (stack.status() or {"leases": 0})["leases"] < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    other.lease.close()
    assert await rows_of(stack) == (3, 3)


async def test_everything_killed_at_once_is_healed_by_the_next_command(stack):
    await write_rows(stack, 50)
    status = stack.status()
    stack.lease.close()
    for pid in [status["pid"], *(server["pid"] for server in status["servers"].values())]:
        os.kill(pid, signal.SIGKILL)
    again = type(stack)(stack.home)
    try:
        assert await rows_of(again) == (50, 50)
    finally:
        again.lease.close()


async def test_the_process_that_started_the_stack_may_be_killed(stack):
    ask(stack.home, {"op": "stop"})
    first = join(stack.home.path)
    pids = json.loads(first.stdout.readline())
    await write_rows(stack, 20)
    first.kill()
    first.communicate()
    assert await rows_of(stack) == (20, 20)
    assert stack.status()["pid"] == pids[0]


async def test_a_stale_pid_file_of_postgres_is_no_obstacle(stack):
    """The number in it may belong to any process by now: here, to this very test."""
    await write_rows(stack, 5)
    stack.stop()
    stack.wait_until_gone()
    pid_file = stack.home.postgres / "data" / "postmaster.pid"
    pid_file.write_text(
        f"{os.getpid()}\n{stack.home.postgres / 'data'}\n1\n5432\n{stack.home.run}\n\n  1  1\nready   \n"
    )
    again = type(stack)(stack.home)
    try:
        assert await rows_of(again) == (5, 5)
    finally:
        again.stop()


def test_a_keeper_whose_home_was_removed_leaves_the_new_one_alone(make_stack, tmp_path):
    first = make_stack(tmp_path / "home")
    first.clickhouse("SELECT 1")
    old = first.status()
    first.lease._closed = True  # it would start a keeper of its own otherwise
    shutil.rmtree(tmp_path / "home")
    psutil.wait_procs([psutil.Process(old["pid"])], timeout=60)
    assert not psutil.pid_exists(old["pid"])
    second = make_stack(tmp_path / "home")
    assert second.clickhouse("SELECT 1") == "1"


def test_a_frozen_keeper_is_named_and_can_be_ended(stack, monkeypatch):
    monkeypatch.setattr(lease, "ANSWER_SECONDS", 0.3)
    stack.clickhouse("SELECT 1")
    stack.lease.close()
    pid = stack.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(StackError, match="is there but does not answer"):
        stack.status()
    assert lease.end_silent_keeper(stack.home)
    assert stack.status() is None
