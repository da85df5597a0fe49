"""Start, sharing and shutdown of the embedded stack."""

import json
import os
import socket
import time
from subprocess import PIPE

import pytest

from aaiclick.local.home import Home
from aaiclick.local.stack_connection import ask_keeper
from tests.fork_server import FORK_SERVER, ForkedProcess

JOIN = """
import json, sys
from pathlib import Path
from aaiclick.local.home import Home
from aaiclick.local.stack_connection import StackConnection, ask_keeper
home = Home(Path(sys.argv[1]))
connection = StackConnection(home, 20)
connection.require_servers("postgres", "clickhouse")
status = ask_keeper(home, {"op": "status"})["status"]
print(json.dumps([status["pid"], *(server["pid"] for _, server in sorted(status["servers"].items()))]), flush=True)
sys.stdin.read()
"""


def join(path) -> ForkedProcess:
    return FORK_SERVER.start([JOIN, str(path)], dict(os.environ), stdin=PIPE, stdout=PIPE, program="-c")


def leave(child: ForkedProcess) -> None:
    child.stdin.close()
    child.communicate()


async def test_embedded_servers_have_the_expected_versions(stack):
    connection = await stack.connect()
    assert (await connection.fetchval("SHOW server_version")).startswith("18.")
    assert await connection.fetchval("SHOW fsync") == "on"
    await connection.close()
    major, minor = stack.clickhouse("SELECT version()").split(".")[:2]
    assert (int(major), int(minor)) >= (26, 7)


def test_clickhouse_limits_idle_threads(stack):
    idle_threads = stack.clickhouse("SELECT value FROM system.server_settings WHERE name = 'max_thread_pool_free_size'")
    assert int(idle_threads) == 8 * (os.cpu_count() or 1)


def test_only_requested_servers_are_started(stack):
    stack.connection.clickhouse_endpoint()
    assert set(stack.status()["servers"]) == {"clickhouse"}


def test_ten_processes_at_once_get_one_stack(make_stack, tmp_path):
    stack = make_stack(tmp_path / "home")
    children = [join(stack.home.path) for _ in range(10)]
    pid_lines = {child.stdout.readline() for child in children}
    for child in children:
        leave(child)
    assert len(pid_lines) == 1
    assert all(json.loads(pid_lines.pop()))


@pytest.mark.parametrize("name", ["with a space & <more>, ünïcödé ☃", "long-" * 40], ids=["odd", "long"])
async def test_home_path_may_be_long_or_have_special_characters(make_stack, tmp_path, name):
    stack = make_stack(tmp_path / name)
    connection = await stack.connect()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    assert stack.clickhouse("SELECT 1") == "1"
    stack.stop()
    connection = await make_stack(tmp_path / name).connect()  # while the previous keeper is still stopping
    await connection.close()


def test_several_homes_are_several_stacks(make_stack, tmp_path):
    one, two = make_stack(tmp_path / "one"), make_stack(tmp_path / "two")
    one.clickhouse("CREATE TABLE aaiclick.t (a Int8) ENGINE = MergeTree ORDER BY a")
    assert two.clickhouse("EXISTS TABLE aaiclick.t") == "0"
    assert one.status()["pid"] != two.status()["pid"]


def test_stack_stops_after_the_last_connection_closes(make_stack, tmp_path):
    stack = make_stack(tmp_path / "home", linger_seconds=0)
    stack.connection.clickhouse_endpoint()
    node = stack.status()["servers"]["clickhouse"]["pid"]
    stack.connection.close()
    stack.wait_until_gone()
    assert stack.status() is None
    assert not os.path.exists(f"/proc/{node}")


def test_stack_runs_while_another_process_is_connected(make_stack, tmp_path):
    stack = make_stack(tmp_path / "home", linger_seconds=0)
    stack.connection.require_servers("postgres", "clickhouse")
    other = join(stack.home.path)
    joined = json.loads(other.stdout.readline())
    stack.connection.close()
    assert stack.status()["pid"] == joined[0]
    assert ask_keeper(stack.home, {"op": "stop", "unless_used": True}) == {"event": "in use"}
    leave(other)
    stack.wait_until_gone()


async def test_rows_survive_a_restart(stack, make_stack):
    connection = await stack.connect()
    await connection.execute("CREATE TABLE t AS SELECT 7 AS a")
    await connection.close()
    stack.clickhouse("CREATE TABLE aaiclick.t ENGINE = MergeTree ORDER BY a AS SELECT 7 AS a")
    stack.stop()
    again = make_stack(stack.home.path)
    connection = await again.connect()
    assert await connection.fetchval("SELECT a FROM t") == 7
    await connection.close()
    assert again.clickhouse("SELECT a FROM aaiclick.t") == "7"


def test_connection_restarts_a_stopped_stack_on_demand(stack):
    before = stack.connection.clickhouse_endpoint()
    ask_keeper(stack.home, {"op": "stop"})
    stack.wait_until_gone()
    while stack.connection._connection is not None:  # its thread reads the message in a moment
        time.sleep(0.01)
    assert stack.clickhouse("SELECT 1") == "1"
    assert stack.connection.clickhouse_endpoint() == before


def test_a_port_in_use_is_replaced_by_another(make_stack, tmp_path):
    first = make_stack(tmp_path / "home")
    port = first.connection.clickhouse_endpoint().port
    first.stop()
    with socket.create_server(("127.0.0.1", port)):
        again = make_stack(tmp_path / "home")
        assert again.connection.clickhouse_endpoint().port != port
        assert again.clickhouse("SELECT 1") == "1"


def test_long_logs_are_rotated(make_stack, tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    home.log_path("clickhouse").write_bytes(b"x" * 10_000_001)
    make_stack(home.path).connection.clickhouse_endpoint()
    assert home.log_path("clickhouse").stat().st_size < 1_000_000
    assert home.log_path("clickhouse").with_suffix(".log.1").stat().st_size == 10_000_001
