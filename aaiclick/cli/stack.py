"""`aaiclick up`, `down` and `status`: start, stop and show the stack."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any

import click

from aaiclick.cli.output import output_option, print_message, print_records
from aaiclick.cli.pidfile import PidFile
from aaiclick.errors import StackError
from aaiclick.local import stack_status, stop_stack
from aaiclick.local.home import Home
from aaiclick.settings import Settings, get_settings


@click.command()
@click.option("--detach", is_flag=True, help="Run in the background; stop with 'aaiclick down'.")
@click.option("--background", is_flag=True, hidden=True, help="Started by --detach.")
def up(detach: bool, background: bool) -> None:
    """Start the whole stack and keep it running until Ctrl-C.

    Starts embedded PostgreSQL and ClickHouse unless servers are configured, upgrades the schema, and serves the web UI
    and HTTP API at AAICLICK_SERVER_HOST and AAICLICK_SERVER_PORT.
    """
    if detach:
        home = Home(_local_settings("'up'").home)
        home.prepare()
        _start_detached(home)
        return
    if background and os.fork():
        os._exit(0)
    with hold_stack("'up'") as (settings, running, write_url):
        if running is not None:
            print_message(f"aaiclick is already running (pid {running}).")
            return
        importlib.import_module("aaiclick.cli.up_main_loop").run_stack(settings, background, write_url)


@contextlib.contextmanager
def hold_stack(command: str) -> Generator[tuple[Settings, int | None, Callable[[str], None]]]:
    """Take the lock of 'aaiclick up'; yields settings, pid of another holder, and a function that stores the URL."""
    settings = _local_settings(command)
    home = Home(settings.home)
    home.prepare()

    def write_url(url: str) -> None:
        _pid_file(home).write_facts(server=url)

    with _pid_file(home).hold() as running:
        yield settings, running, write_url


@click.command()
def down() -> None:
    """Stop the embedded stack and 'aaiclick up'."""
    settings = _local_settings("'down'")
    stopped_up = _pid_file(Home(settings.home)).stop_process()
    users = _stack_users(settings)
    stopped_stack = stop_stack(settings)
    print_message("Stopped." if stopped_up or stopped_stack else "Nothing was running.")
    if users and stopped_stack:
        pids = ", ".join(map(str, users))
        print_message(f"Programs that use it, such as workers, are still running: {pids}. They may start it again.")
        print_message("Stop them before copying files.")


@click.command()
@output_option
def status(output: str) -> None:
    """Show the state of the stack, without starting anything."""
    settings = get_settings()
    keeper = stack_status(settings)
    facts = _pid_file(Home(settings.home)).read_facts()
    pid = facts.get("pid")
    records = [_status_row("up", "running" if pid else "stopped", pid, str(settings.home))]
    if "server" in facts:
        records.append(_status_row("server", "running", None, facts["server"]))
    if keeper is not None:
        records.append(_status_row("keeper", "running", keeper["pid"], f"users: {keeper['connections']}"))
    for name, endpoint in (("postgres", settings.postgres), ("clickhouse", settings.clickhouse)):
        if endpoint is None:
            records.append(_embedded_row(name, keeper))
        else:
            result = importlib.import_module("aaiclick.cli.doctor").check_endpoint(endpoint)
            records.append(_status_row(name, result.state, None, f"{result.detail} {result.remedy}".rstrip()))
    print_records(records, output)


def _stack_users(settings: Settings) -> list[int]:
    """Return the pids of programs that use the stack; empty if unknown."""
    with contextlib.suppress(StackError):
        keeper = stack_status(settings)
        return [] if keeper is None else keeper["users"]
    return []


def _local_settings(command: str) -> Settings:
    """Return the settings; raises SettingsError if AAICLICK_SERVER is set."""
    settings = get_settings()
    if settings.server is not None:
        importlib.import_module("aaiclick.cli.remote").refuse_remote(command)
    return settings


def _pid_file(home: Home) -> PidFile:
    return PidFile(home.path / "up.lock")


def _start_detached(home: Home) -> None:
    """Run `aaiclick up` in the background and forward its messages until it closes standard error."""
    command = [sys.executable, "-m", "aaiclick", "up", "--background"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", start_new_session=True, text=True
    ) as process:
        output = process.communicate()[1].strip()
    if _pid_file(home).read_pid() is None:
        raise StackError(output.removeprefix("error: ") or "'aaiclick up' exited.", remedy=f"See {home.logs}.")
    print_message(output)


def _status_row(name: str, state: str, pid: int | None, where: str) -> dict[str, Any]:
    return {"name": name, "state": state, "pid": pid, "where": where}


def _embedded_row(name: str, keeper: dict[str, Any] | None) -> dict[str, Any]:
    server = keeper["servers"].get(name) if keeper else None
    if server is None:
        return _status_row(name, "stopped", None, "embedded")
    restarts = f", restarts: {server['restarts']}" if server["restarts"] else ""
    return _status_row(name, server["state"], server["pid"], f"embedded{restarts}, log {server['log']}")
