"""Main loop of `aaiclick up`, separate from `stack` so that `--detach`, `down` and `status` import less."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from aaiclick._version import __version__
from aaiclick.cli.output import print_message
from aaiclick.cli.server import create_first_admin_key
from aaiclick.cli.supervised_api_server import open_listener, run_server
from aaiclick.local import close_stack_connections, find_both, stack_status, stop_stack
from aaiclick.local.home import Home
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.settings import Settings
from aaiclick.store.migrate import upgrade_if_needed


def run_stack(settings: Settings, background: bool, on_server_url: Callable[[str], None]) -> None:
    """Run the stack until SIGINT or SIGTERM."""
    stop = make_stop_pipe()
    with serve_stack(settings, on_server_url):
        if background:
            _leave_terminal(Home(settings.home))
        else:
            print_message("Press Ctrl-C to stop.")
        with _start_cleanup() as dropping:  # after leaving the terminal, which it would keep open
            os.read(stop, 1)
            dropping.terminate()


@contextmanager
def serve_stack(settings: Settings, on_server_url: Callable[[str], None]) -> Generator[None]:
    """Start the stack, report its addresses (`on_server_url` gets the API's URL), and stop it at the end."""
    started = time.monotonic()
    postgres, clickhouse = find_both(settings)
    first = asyncio.run(_prepare_databases(settings, postgres, clickhouse))
    with run_server(open_listener(settings), Home(settings.home).log_path("server")) as url:
        on_server_url(url)
        _print_addresses(time.monotonic() - started, postgres, clickhouse, url, first)
        yield
    close_stack_connections()
    stopped = stop_stack(settings, unless_used=True)
    keeper = stack_status(settings)
    print_message(
        f"The servers keep running: {keeper['connections']} other users." if keeper and not stopped else "Stopped."
    )


def _print_addresses(
    seconds: float, postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint, url: str, first: str | None
) -> None:
    print_message(f"aaiclick is up: version {__version__}, ready in {seconds:.1f} s")
    print_message(f"  {postgres}")
    print_message(f"  {clickhouse}")
    print_message(f"  Web UI and HTTP API at {url}")
    if first is not None:
        print_message(f"  First admin API key (shown only once): {first}")


async def _prepare_databases(
    settings: Settings, postgres: PostgresEndpoint, clickhouse: ClickHouseEndpoint
) -> str | None:
    """Upgrade the schema, check an external ClickHouse, and return the first API key if one was created."""
    await upgrade_if_needed(postgres)
    if settings.clickhouse is not None:
        client = importlib.import_module(
            "aaiclick.data.runtime.clickhouse_client"
        )  # slow import, the embedded server is known to be ready
        await client.connect(clickhouse)
    return await create_first_admin_key(postgres)


def _start_cleanup() -> subprocess.Popen[bytes]:
    """Start cleanup and sweeper in a child process; its messages are dropped, since another one may be running."""
    command = [sys.executable, "-P", "-m", "aaiclick", "background", "start", "--with-parent"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def make_stop_pipe() -> int:
    """Return a file descriptor that becomes readable on SIGINT or SIGTERM."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, _ignore_signal)
    return read


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up file descriptor reports the signal."""


def _leave_terminal(home: Home) -> None:
    """Redirect output to the log, so that the parent, which reads standard error, stops waiting."""
    log = os.open(home.log_path("up"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
