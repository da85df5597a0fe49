"""The HTTP server that `aaiclick up` keeps: a process of its own, on a socket that is ours.

The socket is open, and its address known, before the process that serves it has loaded; requests wait for it. A server
that dies is started again on the same socket. One that lives ends with us: it reads the end of the pipe that we hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

from aaiclick.cli.output import note
from aaiclick.errors import SettingsError
from aaiclick.server.address import open_socket, url_of
from aaiclick.settings import Settings

AGAIN_SECONDS = 1.0


def open_somewhere(settings: Settings) -> socket:
    """At the address of the settings; at any free port if nobody chose one and the usual one is taken."""
    try:
        return open_socket(settings.server_host, settings.server_port, auth=True)
    except SettingsError:
        if os.environ.get("AAICLICK_SERVER_PORT"):
            raise
        opened = open_socket(settings.server_host, 0, auth=True)
        note(f"Port {settings.server_port} is taken: the API is at another one.")
        return opened


@contextmanager
def kept_server(opened: socket, log: Path) -> Generator[str]:
    """Serve until the end of the block; yields the address."""
    stopping = threading.Event()
    keeper = threading.Thread(target=_keep, args=(opened, log, stopping))
    keeper.start()
    try:
        yield url_of(opened)
    finally:
        stopping.set()
        keeper.join()
        opened.close()


def _keep(opened: socket, log: Path, stopping: threading.Event) -> None:
    handle = opened.fileno()
    command = [sys.executable, "-m", "aaiclick", "server", "start", "--inherited", str(handle)]
    while not stopping.is_set():
        with (
            log.open("ab") as said,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said, pass_fds=[handle]) as process,
        ):
            while process.poll() is None and not stopping.wait(0.2):
                pass
            process.terminate()
        stopping.wait(AGAIN_SECONDS)
