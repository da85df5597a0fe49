"""`aaiclick dev`: the stack, the web UI and a worker that reloads, with their logs in one stream."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from typing import IO

import click

from aaiclick.cli.log_tail import LogTail
from aaiclick.cli.output import print_message
from aaiclick.cli.param_types import split_names
from aaiclick.cli.stack import hold_stack
from aaiclick.cli.up_main_loop import make_stop_pipe, serve_stack
from aaiclick.errors import AaiclickError
from aaiclick.local.home import Home
from aaiclick.settings import Settings, get_logs_dir

CHECK_SECONDS = 0.2


@click.command()
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes.")
@click.option(
    "--import", "imports", multiple=True, callback=split_names,
    help="Modules to import at start. With commas, or repeated.",
)  # fmt: skip
def dev(processes: int, imports: tuple[str, ...]) -> None:
    """Develop: run the stack, the web UI and a worker, until Ctrl-C.

    The worker runs new code as soon as files below the current directory change; running tasks finish with the old
    code. The output of tasks, of the worker and errors of the server are printed here.
    """
    stop = make_stop_pipe()
    with hold_stack("'dev'") as (settings, running, write_url):
        if running is None:
            with serve_stack(settings, write_url):
                _run_worker(settings, stop, processes, imports)
        else:
            print_message(f"'aaiclick up' is already running (pid {running}): its stack is used.")
            _run_worker(settings, stop, processes, imports)


def _run_worker(settings: Settings, stop: int, processes: int, imports: tuple[str, ...]) -> None:
    """Run the worker and print all logs until a signal arrives; raises AaiclickError if the worker ends before."""
    options = [option for name in imports for option in ("--import", name)]
    command = [
        sys.executable,
        "-P",
        "-m",
        "aaiclick",
        "worker",
        "start",
        "--reload",
        "--processes",
        str(processes),
        *options,
    ]
    tail = LogTail(get_logs_dir(settings), Home(settings.home).log_path("server"))
    with _started(command) as worker, tail.run_in_background():
        assert worker.stdout is not None  # noqa: S101
        reader = threading.Thread(target=_print_lines, args=(worker.stdout,))
        reader.start()
        is_stopping = False
        while worker.poll() is None:
            if select.select([stop], [], [], CHECK_SECONDS)[0]:
                os.read(stop, 1)
                is_stopping = True
                worker.send_signal(signal.SIGTERM)
        reader.join()
    if not is_stopping:
        raise AaiclickError("The worker has ended (see above).", remedy="Correct the cause and start again.")


@contextlib.contextmanager
def _started(command: list[str]) -> Generator[subprocess.Popen[str]]:
    """A process in a session of its own, so that Ctrl-C does not reach it; killed at the end."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def _print_lines(stream: IO[str]) -> None:
    for line in stream:
        print_message(f"worker | {line.rstrip()}")
