"""The embedded stack starts by itself, is shared, and outlives exactly as long as it is used."""

import json
import os
import socket
import time
from subprocess import PIPE

import pytest

from aaiclick.local.home import Home
from aaiclick.local.lease import ask
from tests.hatchery import HATCHERY, Hatched

JOIN = """
import json, sys
from pathlib import Path
from aaiclick.local.home import Home
from aaiclick.local.lease import Lease, ask
home = Home(Path(sys.argv[1]))
lease = Lease(home, 20)
lease.require("postgres", "clickhouse")
status = ask(home, {"op": "status"})["status"]
print(json.dumps([status["pid"], *(server["pid"] for _, server in sorted(status["servers"].items()))]), flush=True)
sys.stdin.read()
"""


def join(path) -> Hatched:
    return HATCHERY.start([JOIN, str(path)], dict(os.environ), stdin=PIPE, stdout=PIPE, program="-c")


def leave(child: Hatched) -> None:
    child.stdin.close()
    child.communicate()


async def test_both_servers_are_real(stack):
    connection = await stack.connect()
    assert (await connection.fetchval("SHOW server_version")).startswith("18.")
    assert await connection.fetchval("SHOW fsync") == "on"
    await connection.close()
    major, minor = stack.clickhouse("SELECT version()").split(".")[:2]
    assert (int(major), int(minor)) >= (26, 7)


def test_clickhouse_keeps_few_threads_for_later(stack):
    kept = stack.clickhouse("SELECT value FROM system.server_settings WHERE name = 'max_thread_pool_free_size'")
    assert int(kept) == 8 * (os.cpu_count() or 1)


def test_only_what_is_asked_for_is_started(stack):
    stack.lease.clickhouse()
    assert set(stack.status()["servers"]) == {"clickhouse"}


def test_ten_processes_at_once_get_one_stack(make_stack, tmp_path):
    stack = make_stack(tmp_path / "home")
    children = [join(stack.home.path) for _ in range(10)]
    seen = {child.stdout.readline() for child in children}
    for child in children:
        leave(child)
    assert len(seen) == 1
    assert all(json.loads(seen.pop()))


@pytest.mark.parametrize("name", ["with a space & <more>, ünïcödé ☃", "long-" * 40], ids=["odd", "long"])
async def test_any_path_will_do(make_stack, tmp_path, name):
    stack = make_stack(tmp_path / name)
    connection = await stack.connect()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    assert stack.clickhouse("SELECT 1") == "1"
    stack.stop()
    connection = await make_stack(tmp_path / name).connect()  # while the one before is still clearing up
    await connection.close()


def test_several_homes_are_several_stacks(make_stack, tmp_path):
    one, two = make_stack(tmp_path / "one"), make_stack(tmp_path / "two")
    one.clickhouse("CREATE TABLE aaiclick.t (a Int8) ENGINE = MergeTree ORDER BY a")
    assert two.clickhouse("EXISTS TABLE aaiclick.t") == "0"
    assert one.status()["pid"] != two.status()["pid"]


def test_it_stops_by_itself_when_nobody_uses_it(make_stack, tmp_path):
    stack = make_stack(tmp_path / "home", linger_seconds=0)
    stack.lease.clickhouse()
    node = stack.status()["servers"]["clickhouse"]["pid"]
    stack.lease.close()
    stack.wait_until_gone()
    assert stack.status() is None
    assert not os.path.exists(f"/proc/{node}")


def test_it_goes_on_while_anybody_uses_it(make_stack, tmp_path):
    stack = make_stack(tmp_path / "home", linger_seconds=0)
    stack.lease.require("postgres", "clickhouse")
    other = join(stack.home.path)
    joined = json.loads(other.stdout.readline())
    stack.lease.close()
    assert stack.status()["pid"] == joined[0]
    assert ask(stack.home, {"op": "stop", "unless_used": True}) == {"event": "in use"}
    leave(other)
    stack.wait_until_gone()


async def test_what_was_written_is_there_after_a_restart(stack, make_stack):
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


def test_a_lease_told_that_all_was_stopped_starts_anew_on_demand(stack):
    before = stack.lease.clickhouse()
    ask(stack.home, {"op": "stop"})
    stack.wait_until_gone()
    while stack.lease._connection is not None:  # its thread hears of it in a moment
        time.sleep(0.01)
    assert stack.clickhouse("SELECT 1") == "1"
    assert stack.lease.clickhouse() == before


def test_a_taken_port_is_left_to_its_owner(make_stack, tmp_path):
    first = make_stack(tmp_path / "home")
    port = first.lease.clickhouse().port
    first.stop()
    with socket.create_server(("127.0.0.1", port)):
        again = make_stack(tmp_path / "home")
        assert again.lease.clickhouse().port != port
        assert again.clickhouse("SELECT 1") == "1"


def test_long_logs_are_rotated(make_stack, tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    home.log_of("clickhouse").write_bytes(b"x" * 10_000_001)
    make_stack(home.path).lease.clickhouse()
    assert home.log_of("clickhouse").stat().st_size < 1_000_000
    assert home.log_of("clickhouse").with_suffix(".log.1").stat().st_size == 10_000_001
