"""`aaiclick up`, `down` and `status`: the whole stack in the foreground, in the background, and what it does."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from typing import Any

import click

from aaiclick.cli.output import note, output_option, print_records
from aaiclick.cli.single import Single
from aaiclick.errors import StackError
from aaiclick.local import stack_status, stop_stack
from aaiclick.local.home import Home
from aaiclick.settings import Settings, get_settings


@click.command()
@click.option("--detach", is_flag=True, help="Return when the stack is up; 'aaiclick down' stops it.")
@click.option("--background", is_flag=True, hidden=True, help="What --detach starts.")
def up(detach: bool, background: bool) -> None:
    """Start the whole stack and keep it running until Ctrl-C.

    Embedded PostgreSQL and ClickHouse are started where no server is set, the schema is brought up to date, and the
    HTTP API is served.
    """
    settings = _settings("'up'")
    home = Home(settings.home)
    home.prepare()
    if detach:
        _detach(home)
        return
    if background and os.fork():
        os._exit(0)
    with _single(home).be() as running:
        if running is not None:
            note(f"aaiclick is up already (pid {running}).")
            return

        def told(url: str) -> None:
            _single(home).write(server=url)

        importlib.import_module("aaiclick.cli.foreground").stay_up(settings, background, told)


@click.command()
def down() -> None:
    """Stop the embedded stack and whatever keeps it up."""
    settings = _settings("'down'")
    stopped_up = _single(Home(settings.home)).end()
    users = _users(settings)
    stopped_stack = stop_stack(settings)
    note("Stopped." if stopped_up or stopped_stack else "Nothing was running.")
    if users and stopped_stack:
        pids = ", ".join(map(str, users))
        note(
            f"Programs that use it, such as workers, still run: {pids}. They may start it again, and use it when it is."
        )
        note("End them before you copy files.")


@click.command()
@output_option
def status(output: str) -> None:
    """Show what runs and where. Starts nothing."""
    settings = get_settings()
    keeper = stack_status(settings)
    facts = _single(Home(settings.home)).facts()
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


def _users(settings: Settings) -> list[int]:
    """Programs that hold the stack up; none if there is no telling."""
    with contextlib.suppress(StackError):
        keeper = stack_status(settings)
        return [] if keeper is None else keeper["users"]
    return []


def _settings(command: str) -> Settings:
    """For a command that works where the stack is."""
    settings = get_settings()
    if settings.server is not None:
        importlib.import_module("aaiclick.cli.remote").refuse(command)
    return settings


def _single(home: Home) -> Single:
    return Single(home.path / "up.lock")


def _detach(home: Home) -> None:
    """Run `aaiclick up` in the background and pass on what it says until it leaves our standard error."""
    command = [sys.executable, "-m", "aaiclick", "up", "--background"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", start_new_session=True, text=True
    ) as process:
        said = process.communicate()[1].strip()
    if _single(home).pid() is None:
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
