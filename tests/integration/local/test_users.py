"""PostgreSQL does not run as root; aaiclick does, in either of two ways, and as an ordinary user."""

import os
import pwd
import subprocess
import sys

import pytest

from aaiclick.local import servers, unprivileged
from aaiclick.local.home import Home
from aaiclick.local.servers import PostgresServer

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user needs root")


@needs_root
async def test_root_without_namespaces_changes_user(tmp_path, monkeypatch):
    """And back: a cluster made one way is taken over by the other."""
    home = Home(tmp_path / "home")
    home.prepare()
    for forbidden in (unprivileged._enter_namespace, None):
        with monkeypatch.context() as patched:
            if forbidden is not None:
                patched.setattr(unprivileged, "_enter_namespace", lambda *_: 1 / 0)
            server = PostgresServer(home, lambda: None)
        expected = "as " if forbidden else "in a user namespace"
        assert server._server.disguise.name.startswith(expected)
        await server.ready()
        await server.stop()
    assert servers.choose_disguise().name == "in a user namespace"


@needs_root
def test_an_ordinary_user_has_a_stack_too(tmp_path):
    """In a user namespace of its own, where it is `nobody` and has no privilege."""
    home = tmp_path / "home"
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
    account = pwd.getpwnam("nobody")
    said = subprocess.run(
        [sys.executable, "-c", program, str(home)],
        preexec_fn=lambda: unprivileged._enter_namespace(account),
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert said.stdout.strip() == f"{account.pw_uid}|as this user|['clickhouse', 'postgres']", said.stderr
