"""Recovery of the embedded stack after kill -9 of any part, without loss of acknowledged rows."""

import asyncio
import json
import os
import shutil
import signal

import psutil
import pytest

from aaiclick.errors import StackError
from aaiclick.local import stack_connection
from aaiclick.local.home import Home
from aaiclick.local.stack_connection import ask_keeper
from tests.integration.local.conftest import Stack
from tests.integration.local.test_stack import join


@pytest.fixture(scope="module")
def healed(cluster, tmp_path_factory):
    """One home for all tests of this module; each may find a killed stack."""
    home = Home(shutil.copytree(cluster, tmp_path_factory.mktemp("healed") / "home"))
    yield home
    ask_keeper(home, {"op": "stop"})


@pytest.fixture
def stack(healed):
    stack_of_test = Stack(healed)
    yield stack_of_test
    stack_of_test.connection.close()


async def write_rows(stack, count: int) -> None:
    connection = await stack.connect()
    await connection.execute("DROP TABLE IF EXISTS kept; CREATE TABLE kept (a int)")
    for number in range(count):
        await connection.execute("INSERT INTO kept VALUES ($1)", number)
    await connection.close()
    stack.clickhouse("CREATE OR REPLACE TABLE aaiclick.kept (a Int64) ENGINE = MergeTree ORDER BY a")
    for number in range(count):
        stack.clickhouse(f"INSERT INTO aaiclick.kept VALUES ({number})")


async def count_rows(stack) -> tuple[int, int]:
    connection = await stack.connect()
    postgres_rows = await connection.fetchval("SELECT count(*) FROM kept")
    await connection.close()
    return postgres_rows, int(stack.clickhouse("SELECT count() FROM aaiclick.kept"))


def restarted(stack, name: str, old_pid: int) -> bool:
    status = stack.status()
    server = (status or {"servers": {}})["servers"].get(name)
    return bool(server) and server["pid"] not in (None, old_pid) and server["state"] == "running"


@pytest.mark.parametrize("name", ["postgres", "clickhouse"])
async def test_a_killed_server_restarts_with_every_acknowledged_row(stack, name):
    await write_rows(stack, 50)
    before = stack.status()["servers"][name]
    pid = before["pid"]
    os.kill(pid, signal.SIGKILL)
    while not restarted(stack, name, pid):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await count_rows(stack) == (50, 50)
    assert stack.status()["servers"][name]["restarts"] == before["restarts"] + 1


async def test_connected_process_replaces_a_killed_keeper(stack):
    await write_rows(stack, 50)
    before = stack.status()
    os.kill(before["pid"], signal.SIGKILL)
    while not restarted(stack, "postgres", before["servers"]["postgres"]["pid"]):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await count_rows(stack) == (50, 50)


async def test_connection_recovers_when_another_process_restarts_the_stack(healed, stack):
    await write_rows(stack, 3)
    ask_keeper(healed, {"op": "stop"})
    stack.wait_until_gone()
    assert stack.status() is None, "no process has started it"
    other = Stack(healed)
    await (await other.connect()).close()
    while (stack.status() or {"connections": 0})["connections"] < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    other.connection.close()
    assert await count_rows(stack) == (3, 3)


async def test_new_connection_restarts_a_fully_killed_stack(stack):
    await write_rows(stack, 50)
    status = stack.status()
    stack.connection.close()
    for pid in [status["pid"], *(server["pid"] for server in status["servers"].values())]:
        os.kill(pid, signal.SIGKILL)
    again = type(stack)(stack.home)
    try:
        assert await count_rows(again) == (50, 50)
    finally:
        again.connection.close()


async def test_the_process_that_started_the_stack_may_be_killed(stack):
    ask_keeper(stack.home, {"op": "stop"})
    first = join(stack.home.path)
    pids = json.loads(first.stdout.readline())
    await write_rows(stack, 20)
    first.kill()
    first.communicate()
    assert await count_rows(stack) == (20, 20)
    assert stack.status()["pid"] == pids[0]


async def test_a_stale_postmaster_pid_file_is_removed(stack):
    """The pid in the file may belong to any process by now; here it is the test's own."""
    await write_rows(stack, 5)
    stack.stop()
    stack.wait_until_gone()
    pid_file = stack.home.postgres / "data" / "postmaster.pid"
    pid_file.write_text(
        f"{os.getpid()}\n{stack.home.postgres / 'data'}\n1\n5432\n{stack.home.run}\n\n  1  1\nready   \n"
    )
    again = type(stack)(stack.home)
    try:
        assert await count_rows(again) == (5, 5)
    finally:
        again.stop()


def test_a_keeper_whose_home_was_removed_leaves_the_new_one_alone(make_stack, tmp_path):
    first = make_stack(tmp_path / "home")
    first.clickhouse("SELECT 1")
    old = first.status()
    first.connection._closed = True  # otherwise it would start a new keeper
    shutil.rmtree(tmp_path / "home")
    psutil.wait_procs([psutil.Process(old["pid"])], timeout=60)
    assert not psutil.pid_exists(old["pid"])
    second = make_stack(tmp_path / "home")
    assert second.clickhouse("SELECT 1") == "1"


def test_an_unresponsive_keeper_is_reported_and_killed(stack, monkeypatch):
    monkeypatch.setattr(stack_connection, "ANSWER_SECONDS", 0.3)
    stack.clickhouse("SELECT 1")
    stack.connection.close()
    pid = stack.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(StackError, match="runs but does not answer"):
        stack.status()
    assert stack_connection.kill_unresponsive_keeper(stack.home)
    assert stack.status() is None
