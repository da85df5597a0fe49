"""The embedded PostgreSQL under root (both ways to drop privileges) and under an unprivileged user.

Each way runs in its own process, as the keeper does (see `tests.run_unprivileged`).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TWO_WAYS = """
import asyncio, sys
from pathlib import Path
from aaiclick.local import drop_privileges
from aaiclick.local.home import Home
from aaiclick.local.supervised_server import PostgresServer

async def main():
    home = Home(Path(sys.argv[1]))
    home.prepare()
    allowed, drop_privileges._enter_namespace = drop_privileges._enter_namespace, lambda *_: 1 / 0
    changed = PostgresServer(home, lambda: None)
    drop_privileges._enter_namespace = allowed
    for server in (changed, PostgresServer(home, lambda: None)):
        await server.wait_until_ready()
        await server.stop()
        print(server._server.user.name)

asyncio.run(main())
"""
STACK = """
import os, sys
from pathlib import Path
from aaiclick.local.home import Home
from aaiclick.local.stack_connection import StackConnection, ask_keeper
from aaiclick.local.drop_privileges import choose_unprivileged_user
home = Home(Path(sys.argv[1]))
connection = StackConnection(home, 0)
connection.require_servers("postgres", "clickhouse")
servers = ask_keeper(home, {"op": "status"})["status"]["servers"]
print(os.geteuid() != 0, choose_unprivileged_user().name, sorted(servers))
connection.close()
ask_keeper(home, {"op": "stop"})
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user needs root")


def run_python(*command: str | Path) -> list[str]:
    result = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@needs_root
def test_root_without_namespaces_changes_user(tmp_path):
    """And back, where namespaces are allowed: each way takes ownership of a cluster created the other way."""
    allowed = subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode == 0
    changed, usual = run_python("-c", TWO_WAYS, tmp_path / "home")
    assert changed.startswith("as ")
    assert usual.startswith("in a user namespace" if allowed else "as ")


@needs_root
def test_unprivileged_user_can_start_a_stack(tmp_path):
    """As another account or in a user namespace, whichever this machine allows."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    owner = "import os, sys; from aaiclick.local.drop_privileges import choose_unprivileged_user as choose; "
    run_python("-c", owner + "os.chown(sys.argv[1], choose().uid, choose().gid)", home)
    lines = run_python("-m", "tests.run_unprivileged", sys.executable, "-c", STACK, home)
    assert lines == ["True as this user ['clickhouse', 'postgres']"]
