"""PostgreSQL does not run as root; aaiclick does, in either of two ways, and as an ordinary user.

Each way is tried in a process of its own, as the keeper of a stack is one (see `tests.disguised`).
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
from aaiclick.local import unprivileged
from aaiclick.local.home import Home
from aaiclick.local.servers import PostgresServer

async def main():
    home = Home(Path(sys.argv[1]))
    home.prepare()
    allowed, unprivileged._enter_namespace = unprivileged._enter_namespace, lambda *_: 1 / 0
    changed = PostgresServer(home, lambda: None)
    unprivileged._enter_namespace = allowed
    for server in (changed, PostgresServer(home, lambda: None)):
        await server.ready()
        await server.stop()
        print(server._server.disguise.name)

asyncio.run(main())
"""
STACK = """
import os, sys
from pathlib import Path
from aaiclick.local.home import Home
from aaiclick.local.lease import Lease, ask
from aaiclick.local.unprivileged import choose_disguise
home = Home(Path(sys.argv[1]))
lease = Lease(home, 0)
lease.require("postgres", "clickhouse")
servers = ask(home, {"op": "status"})["status"]["servers"]
print(os.geteuid() != 0, choose_disguise().name, sorted(servers))
lease.close()
ask(home, {"op": "stop"})
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user needs root")


def said_by(*command: str | Path) -> list[str]:
    answer = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


@needs_root
def test_root_without_namespaces_changes_user(tmp_path):
    """And back, where namespaces are allowed: a cluster made one way is taken over by the other."""
    allowed = subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode == 0
    changed, usual = said_by("-c", TWO_WAYS, tmp_path / "home")
    assert changed.startswith("as ")
    assert usual.startswith("in a user namespace" if allowed else "as ")


@needs_root
def test_an_ordinary_user_has_a_stack_too(tmp_path):
    """As another account, or as one in a user namespace, whichever this machine allows."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    owner = "import os, sys; from aaiclick.local.unprivileged import choose_disguise as choose; "
    said_by("-c", owner + "os.chown(sys.argv[1], choose().uid, choose().gid)", home)
    said = said_by("-m", "tests.disguised", sys.executable, "-c", STACK, home)
    assert said == ["True as this user ['clickhouse', 'postgres']"]
