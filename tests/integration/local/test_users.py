"""PostgreSQL does not run as root; aaiclick does, in either of two ways, and as an ordinary user."""

import os
import subprocess
import sys

import pytest

from aaiclick.local import unprivileged
from aaiclick.local.home import Home
from aaiclick.local.servers import PostgresServer

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user needs root")


def namespaces_allowed() -> bool:
    """As util-linux finds it, not as we do. Containers and change-rooted systems often forbid them."""
    return subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode == 0


@needs_root
async def test_root_without_namespaces_changes_user(tmp_path, monkeypatch):
    """And back, where namespaces are allowed: a cluster made one way is taken over by the other."""
    home = Home(tmp_path / "home")
    home.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(unprivileged, "_enter_namespace", lambda *_: 1 / 0)
        changed = PostgresServer(home, lambda: None)
    assert changed._server.disguise.name.startswith("as ")
    await changed.ready()
    await changed.stop()
    usual = PostgresServer(home, lambda: None)
    assert usual._server.disguise.name.startswith("in a user namespace" if namespaces_allowed() else "as ")
    await usual.ready()
    await usual.stop()


@needs_root
def test_an_ordinary_user_has_a_stack_too(tmp_path):
    """As another account, or as `nobody` in a user namespace, whichever this machine allows."""
    disguise = unprivileged.choose_disguise(die_with_parent=False)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, disguise.uid, disguise.gid)
    program = (
        "from pathlib import Path; import os, sys\n"
        "from aaiclick.local.home import Home\n"
        "from aaiclick.local.lease import Lease, ask\n"
        "from aaiclick.local.unprivileged import choose_disguise\n"
        "home = Home(Path(sys.argv[1])); lease = Lease(home, 0)\n"
        "lease.require('postgres', 'clickhouse'); servers = ask(home, {'op': 'status'})['status']['servers']\n"
        "print(os.geteuid(), choose_disguise().name, sorted(servers), sep='|')\n"
        "lease.close(); ask(home, {'op': 'stop'})\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(home)],
        preexec_fn=disguise.enter,
        capture_output=True,
        text=True,
        cwd="/",
    )
    uid, chosen, running = said.stdout.strip().split("|") if said.stdout else ("", "", said.stderr)
    assert (chosen, running) == ("as this user", "['clickhouse', 'postgres']")
    assert int(uid) != 0
