"""The entry of the command line: which command lives where, and how an error leaves it.

Commands are imported when they are called, so that `aaiclick --help` loads click and nothing heavier.
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 unauthorised, 5 unreachable.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from aaiclick._version import __version__
from aaiclick.errors import EXIT_FAILED, EXIT_USAGE, AaiclickError

EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Entry:
    """Where a command is, and the line it gets in the overview."""

    module: str
    help: str


COMMANDS = {
    "up": Entry("stack", "Start the whole stack and keep it running."),
    "down": Entry("stack", "Stop the embedded stack."),
    "status": Entry("stack", "Show what runs and where."),
    "run": Entry("run", "Run a job and watch it."),
    "jobs": Entry("jobs", "List, show, cancel, retry and release jobs."),
    "tasks": Entry("tasks", "List, show, cancel and clear tasks."),
    "logs": Entry("tasks", "Print what a task said."),
    "dlq": Entry("dlq", "List dead letters, give them another chance, or give them up."),
    "events": Entry("events", "List events that could not be routed, and retry them."),
    "queues": Entry("queues", "Show, pause and resume queues."),
    "types": Entry("types", "Show, pause and resume types of tasks; set when they are tried again."),
    "dag": Entry("dag", "Check, compare, deploy, start and roll back DAGs."),
    "datasets": Entry("datasets", "List, show, query and remake datasets."),
    "worker": Entry("worker", "Run tasks."),
    "server": Entry("server", "Serve the HTTP API."),
    "workers": Entry("queues", "Show workers."),
    "key": Entry("key", "Make, list and revoke API keys."),
    "secrets": Entry("secrets", "Set, list and remove secrets that an organisation's tasks use."),
    "org": Entry("org", "List, make and limit organisations."),
    "user": Entry("user", "Add, list, change and remove users."),
    "role": Entry("role", "Make, list and remove roles; give them to users and take them away."),
    "data": Entry("data", "List, show and export Objects; drop what nobody needs."),
    "background": Entry("background", "Drop tables that nobody needs, beside or without workers."),
    "chaos": Entry("chaos", "Break an installation of its own on purpose, and check that nothing is lost."),
    "doctor": Entry("doctor", "Check the installation and say how to mend it."),
    "config": Entry("config", "List every setting, its value and its source."),
    "migrate": Entry("migrate", "Bring the PostgreSQL schema up to date."),
    "version": Entry("version", "Show the versions of aaiclick and what it runs on."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use; the overview needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"aaiclick.cli.{entry.module}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aaiclick", message="%(prog)s %(version)s")
def cli() -> None:
    """Durable data processing: data in ClickHouse, work in PostgreSQL, one machine or many."""


def main() -> NoReturn:
    """Run the command line; every error leaves as one message on standard error and an exit code."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  (closed by whoever called us)
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:  # what was printed may still be in the buffer when the disk is full
        code = _refused(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: list[str]) -> int:
    for word in arguments:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            return _say(f"{word!a} is not UTF-8.", "Check the encoding of the terminal, or of the script.", EXIT_USAGE)
    try:
        outcome = cli.main(arguments, prog_name="aaiclick", standalone_mode=False)
    except AaiclickError as error:
        return _say(error.what, error.remedy, error.exit_code)
    except click.Abort:
        return _say("Interrupted.", "", EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001  (the last wall: a user never sees a traceback unasked)
        return _unexpected(error)
    return outcome if isinstance(outcome, int) else 0


def _say(what: str, remedy: str, code: int) -> int:
    click.echo(click.style("error: ", fg="red", bold=True) + what, err=True)
    if remedy:
        click.echo(remedy, err=True)
    return code


def _show_where(error: Exception) -> None:
    """If AAICLICK_DEBUG asks for it. Settings are loaded only now, and may be what is wrong."""
    with suppress(AaiclickError, OSError):
        if importlib.import_module("aaiclick.settings").get_settings().debug:
            traceback.print_exception(error)


def _refused(error: OSError) -> int:
    """The system itself said no: a full disk, a directory that is gone, too many open files."""
    _show_where(error)
    where = f" ({error.filename})" if error.filename else ""
    remedies = {
        errno.ENOSPC: "Make room on the disk.",
        errno.ENOENT: "If the current directory has been deleted, change to another.",
        errno.EMFILE: "Raise the limit of open files: ulimit -n 4096",
        errno.EACCES: "Check whose file or directory that is.",
    }
    remedy = remedies.get(error.errno or 0, "AAICLICK_DEBUG=1 shows where it happened.")
    return _say(f"The system refused: {error.strerror or error}{where}.", remedy, EXIT_FAILED)


def _unexpected(error: Exception) -> int:
    _show_where(error)
    return _say(
        f"Unexpected {type(error).__name__}: {error}",
        "This is a defect of aaiclick. AAICLICK_DEBUG=1 shows where it happened; please report it.",
        EXIT_FAILED,
    )
