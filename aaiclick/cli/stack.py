"""`aaiclick up`, `down` and `status`: the whole stack in the foreground, in the background, and what it does."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import click
import psutil

from aaiclick.cli.output import note, output_option, print_records
from aaiclick.errors import StackError
from aaiclick.local import stack_status, stop_stack
from aaiclick.local.home import Home
from aaiclick.settings import get_settings

STOP_SECONDS = 60.0


@click.command()
@click.option("--detach", is_flag=True, help="Return when the stack is up; 'aaiclick down' stops it.")
@click.option("--background", is_flag=True, hidden=True, help="What --detach starts.")
def up(detach: bool, background: bool) -> None:
    """Start the whole stack and keep it running until Ctrl-C.

    Embedded PostgreSQL and ClickHouse are started where no server is set, the schema is brought up to date, and the
    HTTP API is served.
    """
    settings = get_settings()
    home = Home(settings.home)
    home.prepare()
    if detach:
        _detach(home)
        return
    if background and os.fork():
        os._exit(0)
    with _only_one(home) as running:
        if running is not None:
            note(f"aaiclick is up already (pid {running}).")
            return

        def told(url: str) -> None:
            _write(_up_lock(home), {"pid": os.getpid(), "server": url})

        importlib.import_module("aaiclick.cli.foreground").stay_up(settings, background, told)


@click.command()
def down() -> None:
    """Stop the embedded stack and whatever keeps it up."""
    settings = get_settings()
    stopped_up = _end_up(Home(settings.home))
    stopped_stack = stop_stack(settings)
    note("Stopped." if stopped_up or stopped_stack else "Nothing was running.")


@click.command()
@output_option
def status(output: str) -> None:
    """Show what runs and where. Starts nothing."""
    settings = get_settings()
    keeper = stack_status(settings)
    facts = _facts(Home(settings.home))
    pid = facts.get("pid")
    records = [_line("up", "running" if pid else "stopped", pid, str(settings.home))]
    if "server" in facts:
        records.append(_line("server", "running", None, facts["server"]))
    if keeper is not None:
        records.append(_line("keeper", "running", keeper["pid"], f"users: {keeper['leases']}"))
    for name, target in (("postgres", settings.postgres), ("clickhouse", settings.clickhouse)):
        if target is None:
            records.append(_embedded_line(name, keeper))
        else:
            found = importlib.import_module("aaiclick.cli.doctor").reach(target)
            records.append(_line(name, found.state, None, f"{found.detail} {found.remedy}".rstrip()))
    print_records(records, output)


@contextlib.contextmanager
def _only_one(home: Home) -> Generator[int | None]:
    """Be the one `up` of this home; yields the pid of the other one where there is one."""
    handle = os.open(_up_lock(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _take(handle):
            yield _running_up(home) or -1
            return
        _write(_up_lock(home), {"pid": os.getpid()})
        yield None
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Lock it; whoever asks for the status holds the lock for a moment too, which is no reason to give up."""
    deadline = time.monotonic() + 1
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _up_lock(home: Home) -> Path:
    return home.path / "up.lock"


def _write(path: Path, facts: dict[str, Any]) -> None:
    """In place: the file itself is locked."""
    with path.open("r+") as file:
        file.write(json.dumps(facts))
        file.truncate()


def _running_up(home: Home) -> int | None:
    """The pid of the `up` that holds the lock, if any."""
    return _facts(home).get("pid")


def _facts(home: Home) -> dict[str, Any]:
    """What the `up` that holds the lock wrote into it."""
    try:
        with _up_lock(home).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return json.load(file)
    except (OSError, ValueError):
        pass
    return {}


def _end_up(home: Home) -> bool:
    pid = _running_up(home)
    if pid is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
    return True


def _detach(home: Home) -> None:
    """Run `aaiclick up` in the background and pass on what it says until it leaves our standard error."""
    command = [sys.executable, "-m", "aaiclick", "up", "--background"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", start_new_session=True, text=True
    ) as process:
        said = process.communicate()[1].strip()
    if _running_up(home) is None:
        raise StackError(said.removeprefix("error: ") or "'aaiclick up' ended at once.", remedy=f"See {home.logs}.")
    note(said)


def _line(name: str, state: str, pid: int | None, where: str) -> dict[str, Any]:
    return {"name": name, "state": state, "pid": pid, "where": where}


def _embedded_line(name: str, keeper: dict[str, Any] | None) -> dict[str, Any]:
    server = keeper["servers"].get(name) if keeper else None
    if server is None:
        return _line(name, "stopped", None, "embedded")
    restarts = f", restarts: {server['restarts']}" if server["restarts"] else ""
    return _line(name, server["state"], server["pid"], f"embedded{restarts}, log {server['log']}")
