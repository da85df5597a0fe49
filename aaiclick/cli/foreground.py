"""What `aaiclick up` does while it is up. Apart from `stack`, so that `--detach`, `down` and `status` stay light."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from aaiclick._version import __version__
from aaiclick.cli.api import kept_server, open_somewhere
from aaiclick.cli.output import note
from aaiclick.cli.server import first_key
from aaiclick.local import close_leases, find_both, stack_status, stop_stack
from aaiclick.local.home import Home
from aaiclick.settings import Settings
from aaiclick.store.migrate import ensure_current
from aaiclick.targets import ClickHouseTarget, PostgresTarget


def stay_up(settings: Settings, background: bool, told: Callable[[str], None]) -> None:
    """Start everything, say where it is (`told` gets the address of the API), and stop it at SIGINT or SIGTERM."""
    started = time.monotonic()
    stop = _stop_signal()
    postgres, clickhouse = find_both(settings)
    first = asyncio.run(_prepare(settings, postgres, clickhouse))
    home = Home(settings.home)
    with kept_server(open_somewhere(settings), home.log_of("server")) as url:
        told(url)
        _say(time.monotonic() - started, postgres, clickhouse, url, first)
        if background:
            _leave_terminal(home)
        else:
            note("Ctrl-C stops it.")
        with _drop_tables() as dropping:  # not earlier: it would hold on to the terminal that we leave
            os.read(stop, 1)
            dropping.terminate()
    close_leases()
    stopped = stop_stack(settings, unless_used=True)
    others = stack_status(settings)
    note(f"The servers go on: {others['leases']} other users." if others and not stopped else "Stopped.")


def _say(seconds: float, postgres: PostgresTarget, clickhouse: ClickHouseTarget, url: str, first: str | None) -> None:
    note(f"aaiclick is up: version {__version__}, ready in {seconds:.1f} s")
    note(f"  {postgres}")
    note(f"  {clickhouse}")
    note(f"  Web UI and HTTP API at {url}")
    if first is not None:
        note(f"  The first admin key, shown this once: {first}")


async def _prepare(settings: Settings, postgres: PostgresTarget, clickhouse: ClickHouseTarget) -> str | None:
    """The schema is brought up to date, and a ClickHouse that is not ours is asked whether it is there; returns the
    first key, if there was none.
    """
    await ensure_current(postgres)
    if settings.clickhouse is not None:
        client = importlib.import_module("aaiclick.data.client")  # heavy: the embedded one is known to be ready
        await client.connect(clickhouse)
    return await first_key(postgres)


def _drop_tables() -> subprocess.Popen[bytes]:
    """Cleanup and sweeper, in a process that ends with this one. It says nothing: it may find another one at work."""
    command = [sys.executable, "-m", "aaiclick", "background", "start", "--with-parent"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _stop_signal() -> int:
    """A descriptor that becomes readable at SIGINT or SIGTERM."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, _ignore)
    return read


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing: the wake-up descriptor carries the news."""


def _leave_terminal(home: Home) -> None:
    """Go on in the background: whoever started us reads the end of our standard error, and stops waiting."""
    log = os.open(home.log_of("up"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
