"""`aaiclick demo`: a shop on embedded servers, with a worker that is killed while it works."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psutil

from aaiclick import demo as demo_package
from aaiclick.cli.output import print_message
from aaiclick.errors import StackError
from aaiclick.missing_modules import EMBEDDED_MODULES, SERVER_MODULES, check_installed
from aaiclick.tempdirs import temporary_directory

if TYPE_CHECKING:
    from aaiclick.api.jobs import Job
    from aaiclick.client import Client

SHOP = Path(demo_package.__file__).parent / "shop.yaml"
SETTING_PREFIXES = ("AAICLICK_", "POSTGRES_", "WORKER_", "JOB_")
TASK_MODULE = "aaiclick.demo.shop"
LEASE_SETTINGS = {"WORKER_HEARTBEAT_INTERVAL": "0.5", "WORKER_TIMEOUT": "2"}
"""A short lease: the tasks of the killed worker are returned to the queue after two seconds instead of 90."""

PAUSES = (0.3, 2.0, 5.0)
"""Seconds per invoice: if the job has ended before a worker is killed, as on a busy machine, it is repeated slower."""

SETTLE_SECONDS = 0.5
POLL_SECONDS = 0.05
START_SECONDS = 60.0
QUERY = "SELECT day, orders, euros FROM daily_revenue ORDER BY day"


class DemoCommands:
    """Runs the command line in a home of its own and prints each command."""

    def __init__(self, home: Path) -> None:
        self._home = home
        bare = {name: value for name, value in os.environ.items() if not name.startswith(SETTING_PREFIXES)}
        settings = {"AAICLICK_HOME": str(home / "home"), "AAICLICK_LOG_DIR": str(home / "logs")}
        settings |= {"AAICLICK_TASK_MODULES": TASK_MODULE}  # it is not below the current directory
        self._environment = bare | settings | LEASE_SETTINGS

    def run(self, *arguments: str, shown: bool = True) -> str:
        """Run a command and return its standard output; raises StackError if it fails."""
        if shown:
            print_message(f"$ aaiclick {' '.join(_shorten(argument) for argument in arguments)}")
        command = [sys.executable, "-P", "-m", "aaiclick", *arguments]
        ended = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        if ended.returncode:
            raise StackError(f"'aaiclick {' '.join(arguments)}' failed:\n{ended.stderr}")
        return ended.stdout

    @contextlib.contextmanager
    def start(self, name: str, *arguments: str) -> Generator[tuple[psutil.Popen, Path]]:
        """Start a command with a log file; it is stopped at the end of the block."""
        log = self._home / f"{name}.log"
        command = [sys.executable, "-P", "-m", "aaiclick", *arguments]
        with log.open("wb") as stream, psutil.Popen(command, env=self._environment, stderr=stream) as process:
            try:
                yield process, log
            finally:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()


def _shorten(argument: str) -> str:
    """A file by its name, text with spaces in quotes."""
    return argument.rpartition("/")[2] if argument.startswith("/") else f'"{argument}"' if " " in argument else argument


@click.command()
@click.option(
    "--serve/--no-serve", default=None, help="Serve the web UI until Ctrl-C at the end [default: on a terminal]."
)
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Open the web UI in a browser [default: on a terminal of a desktop].",
)
def demo(serve: bool | None, opens: bool | None) -> None:
    """Deploy and run a shop, kill a worker while it works, and show that the job completes.

    Uses its own databases in a temporary directory, which is removed at the end.
    """
    check_installed(SERVER_MODULES | EMBEDDED_MODULES)
    started = time.monotonic()
    with temporary_directory("aaiclick-demo-") as home:
        commands = DemoCommands(home)
        print_message("Starting PostgreSQL, ClickHouse and the server, with their data in a temporary directory.")
        try:
            with commands.start("server", "server", "start", "--no-auth", "--port", "0") as (process, log):
                url = _wait_for_line(process, log, r"listening on (http://\S+:\d+)")
                print_message(f"Web UI: {url}, after {time.monotonic() - started:.1f} s\n")
                if _is_desktop() if opens is None else opens:
                    webbrowser.open(url)
                _run_shop(commands)
                _run_invoices(commands, url)
                print_message(f"\nDone in {time.monotonic() - started:.0f} s.")
                if sys.stdin.isatty() if serve is None else serve:
                    print_message(f"Every job, task and log is in the web UI: {url}. Press Ctrl-C to stop.")
                    with contextlib.suppress(KeyboardInterrupt):
                        process.wait()
        finally:
            commands.run("down", shown=False)


def _is_desktop() -> bool:
    """Whether a person sees the terminal and a browser of its own window; a text browser would take the terminal."""
    has_display = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdin.isatty() and has_display


def _wait_for_line(process: psutil.Popen, log: Path, pattern: str) -> str:
    """Wait until the log of a process has a line that matches; return its first group."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        match = re.search(pattern, log.read_text())
        if match:
            return match[1]
        time.sleep(POLL_SECONDS)
    raise StackError(f"The process did not start:\n{log.read_text()}")


def _run_shop(commands: DemoCommands) -> None:
    """Deploy the DAG, run it, and print a published dataset."""
    commands.run("dag", "deploy", str(SHOP))
    commands.run("dag", "run", "shop")
    print_message(commands.run("datasets", "query", QUERY))


def _run_invoices(commands: DemoCommands, url: str) -> None:
    """Run the job on two workers, and kill one that runs tasks after half of them."""
    from aaiclick.client import Client  # slow import, needed only here

    workers = ("worker", "start", "--processes", "1", "--concurrency", "4")
    with (
        commands.start("worker-a", *workers) as (first, first_log),
        commands.start("worker-b", *workers) as (last, log),
    ):
        _wait_for_line(first, first_log, "(Worker started)")
        _wait_for_line(last, log, "(Worker started)")
        with Client(url) as client:
            job, survivor = _run_and_kill(commands, client, {"A": first, "B": last})
            ended = _watch(client, job.id)
            repeated = sum(task.attempt > 1 for task in client.list_tasks(job.id))
            [result] = client.get_job_results(job.id)
    print_message(
        f"Job {ended.status}: {ended.total_tasks} tasks, {repeated} of them repeated by worker {survivor}.\n"
        f"Result: {result.value}"
    )
    if ended.status != "COMPLETED":
        raise StackError(f"The job of the demo is {ended.status}.")


def _run_and_kill(commands: DemoCommands, client: Client, workers: dict[str, psutil.Popen]) -> tuple[Job, str]:
    """Run the job until half of its tasks have completed and a worker is killed; return it and the other worker."""
    for pause in PAUSES:
        options = () if pause == PAUSES[0] else ("--seconds", f"{pause:g}")
        output = commands.run("run", f"{TASK_MODULE}.invoices", *options, "--no-wait", "-o", "json")
        submitted = json.loads(output)
        job = _watch(client, int(submitted["id"]), stop_after=submitted["total_tasks"] // 2)
        survivor = _kill_busy_worker(client, job, workers)
        if survivor is not None:
            return job, survivor
        print_message("The job ended before a worker was killed: once more, with slower tasks.")
    raise StackError("The jobs ended before a worker was killed: the machine is too busy.")


def _kill_busy_worker(client: Client, job: Job, workers: dict[str, psutil.Popen]) -> str | None:
    """Kill a worker that runs tasks; return the name of the other one, or None if the job has ended.

    It is suspended first, since its tasks could end between the look at them and the signal; statements that it has
    sent before still end.
    """
    registered = list(client.list_workers())
    names = itertools.cycle(workers)
    while True:
        name = next(names)
        tree = _list_tree(workers[name])
        ids = {worker.id for worker in registered if worker.pid in {process.pid for process in tree}}
        if _count_running(client, job, ids):
            _signal(tree, signal.SIGSTOP)
            time.sleep(SETTLE_SECONDS)
        running = _count_running(client, job, ids)
        if running:
            break
        _signal(tree, signal.SIGCONT)
        if client.get_job(job.id).status not in ("PENDING", "RUNNING"):
            return None
    _signal(tree, signal.SIGKILL)
    print_message(f"$ kill -9 {tree[0].pid}    # worker {name}, with all its processes and {running} running tasks")
    return next(other for other in workers if other != name)


def _watch(client: Client, job_id: int, stop_after: int | None = None) -> Job:
    """Print the progress of a job until it ends, or until a number of tasks has completed."""
    printed = -1
    while True:
        job = client.get_job(job_id)
        completed = job.total_tasks - job.open_tasks
        if completed // 4 != printed:
            printed = completed // 4
            print_message(f"  {completed} of {job.total_tasks} tasks completed")
        if job.status not in ("PENDING", "RUNNING") or (stop_after is not None and completed >= stop_after):
            return job
        time.sleep(POLL_SECONDS)


def _count_running(client: Client, job: Job, worker_ids: set[int]) -> int:
    """Count the tasks that a worker holds; one is CLAIMED for a moment before it is RUNNING."""
    return sum(
        task.worker_id in worker_ids and task.status in ("CLAIMED", "RUNNING") for task in client.list_tasks(job.id)
    )


def _list_tree(process: psutil.Popen) -> list[psutil.Process]:
    """A process and its descendants."""
    return [psutil.Process(process.pid), *process.children(recursive=True)]


def _signal(processes: list[psutil.Process], sign: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(sign)
