"""HTTP server of `aaiclick up`, as a supervised child process.

The parent opens the socket, so the address is known at once and requests wait while the child loads. A child that dies
is restarted on the same socket; it stops when the pipe from the parent is closed.
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

from aaiclick.cli.output import print_message
from aaiclick.errors import SettingsError
from aaiclick.server.listen_address import open_socket, socket_url
from aaiclick.settings import Settings

RESTART_SECONDS = 1.0


def open_listener(settings: Settings) -> socket:
    """Open the configured address, or a free port if the default port is taken and none was configured."""
    try:
        return open_socket(settings.server_host, settings.server_port, auth=True)
    except SettingsError:
        if os.environ.get("AAICLICK_SERVER_PORT"):
            raise
        listener = open_socket(settings.server_host, 0, auth=True)
        print_message(f"Port {settings.server_port} is in use; the API listens on another port.")
        return listener


@contextmanager
def run_server(listener: socket, log: Path) -> Generator[str]:
    """Run the server until the end of the block; yields its URL."""
    stopping = threading.Event()
    supervisor = threading.Thread(target=_supervise_server, args=(listener, log, stopping))
    supervisor.start()
    try:
        yield socket_url(listener)
    finally:
        stopping.set()
        supervisor.join()
        listener.close()


def _supervise_server(listener: socket, log: Path, stopping: threading.Event) -> None:
    handle = listener.fileno()
    command = [sys.executable, "-P", "-m", "aaiclick", "server", "start", "--inherited", str(handle)]
    while not stopping.is_set():
        with (
            log.open("ab") as log_file,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log_file, stderr=log_file, pass_fds=[handle]
            ) as process,
        ):
            while process.poll() is None and not stopping.wait(0.2):
                pass
            process.terminate()
        stopping.wait(RESTART_SECONDS)
