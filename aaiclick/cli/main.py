"""Entry point of the command line: command registry and error reporting.

Commands are imported when they are called, so that `aaiclick --help` loads click and nothing heavier.
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 unauthorised, 5 unreachable.
"""

from __future__ import annotations

import difflib
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
from click.shell_completion import CompletionItem

from aaiclick._version import __version__
from aaiclick.cli.postgres_host_notice import announce_postgres
from aaiclick.errors import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, AaiclickError
from aaiclick.missing_modules import find_remedy

EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class CommandEntry:
    """Module of a command and its help line."""

    module: str
    help: str


COMMANDS = {
    "init": CommandEntry("init", "Create a project with a job, a DAG and their tests."),
    "up": CommandEntry("stack", "Start the whole stack and keep it running."),
    "dev": CommandEntry("dev", "Start the stack and a worker that reloads; print all logs."),
    "down": CommandEntry("stack", "Stop the embedded stack."),
    "status": CommandEntry("stack", "Show the state of the stack."),
    "run": CommandEntry("run", "Run a job and wait for it."),
    "functions": CommandEntry("functions", "List and run the @job functions that workers have registered."),
    "jobs": CommandEntry("jobs", "List, show, cancel, retry and release jobs."),
    "tasks": CommandEntry("tasks", "List, show, cancel and clear tasks."),
    "logs": CommandEntry("tasks", "Print the log of a task."),
    "schedules": CommandEntry("schedules", "List, create, pause, fire and backfill schedules."),
    "dlq": CommandEntry("dlq", "List, redrive and discard dead letters."),
    "incidents": CommandEntry("incidents", "List, acknowledge, snooze and close incidents."),
    "notify": CommandEntry("notify", "Send messages about incidents: channels, rules, deliveries."),
    "approvals": CommandEntry("approvals", "List, show, approve and reject what waits for people."),
    "events": CommandEntry("events", "Send events to waiting tasks; list and retry dataset events."),
    "queues": CommandEntry("queues_and_workers", "Show, pause and resume queues."),
    "types": CommandEntry("task_types", "Show, pause and resume task types; set their retry policy."),
    "dag": CommandEntry("dag", "Validate, diff, deploy, run and roll back DAGs."),
    "datasets": CommandEntry("datasets", "List, show, query and rematerialize datasets."),
    "worker": CommandEntry("worker", "Run tasks."),
    "server": CommandEntry("server", "Serve the HTTP API."),
    "workers": CommandEntry("queues_and_workers", "List and drain workers."),
    "key": CommandEntry("api_keys", "Create, list and revoke API keys."),
    "secrets": CommandEntry("secrets", "Set, list and remove secrets of an organisation."),
    "org": CommandEntry("org", "List, create and limit organisations."),
    "user": CommandEntry("user", "Add, list, change and remove users."),
    "role": CommandEntry("role", "Create, list and remove roles; grant and revoke them."),
    "data": CommandEntry("data", "List, show and export Objects; drop unused tables."),
    "background": CommandEntry("background_cleanup", "Drop unused ClickHouse tables in a separate process."),
    "chaos": CommandEntry("chaos", "Test a separate installation with injected faults or steady load."),
    "doctor": CommandEntry("doctor", "Check the installation and suggest fixes."),
    "demo": CommandEntry("demo", "Run a shop with a worker that is killed while it works."),
    "backup": CommandEntry("backup", "Back up both databases of one moment."),
    "restore": CommandEntry("backup", "Restore a backup and check the result."),
    "monitoring": CommandEntry("monitoring", "Print alert rules and a dashboard."),
    "mcp": CommandEntry("mcp", "Serve tools for AI assistants (MCP)."),
    "config": CommandEntry("config", "List every setting with its value and source."),
    "migrate": CommandEntry("migrate", "Upgrade the PostgreSQL schema."),
    "completion": CommandEntry("completion", "Print a script that completes commands in a shell."),
    "version": CommandEntry("version", "Show the versions of aaiclick and its dependencies."),
}

ANNOUNCING_COMMANDS = frozenset({"up", "dev", "run", "worker", "server", "background", "migrate"})
"""Commands that start something, or create tables."""


class LazyGroup(click.Group):
    """Command group that imports its commands on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"aaiclick.cli.{entry.module}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of arguments; click suggests only commands that are already imported."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Complete commands without importing them."""
        return [
            CompletionItem(name, help=entry.help) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aaiclick", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Durable data processing: data in ClickHouse, jobs in PostgreSQL, one machine or many."""
    if context.invoked_subcommand in ANNOUNCING_COMMANDS:
        announce_postgres()


def main() -> NoReturn:
    """Run the command line; report errors as one message on standard error and an exit code."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  (closed by the caller)
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    code = run_command(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:  # buffered output fails to flush when the disk is full
        code = _report_os_error(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    for argument in arguments:
        if any("\ud800" <= letter <= "\udfff" for letter in argument):
            return _print_error(
                f"{argument!a} is not UTF-8.", "Check the encoding of the terminal or the script.", EXIT_USAGE
            )
    try:
        outcome = cli.main(arguments, prog_name="aaiclick", standalone_mode=False)
    except AaiclickError as error:
        return _print_error(error.what, _find_other_item(error) or error.remedy, error.exit_code)
    except click.Abort:
        return _print_error("Interrupted.", "", EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        return _report_os_error(error)
    except Exception as error:  # noqa: BLE001  (users see a traceback only with AAICLICK_DEBUG)
        if isinstance(error, ModuleNotFoundError) and (remedy := find_remedy(error)):
            return _print_error(f"{error.msg}.", remedy, EXIT_FAILED)
        return _report_unexpected(error)
    return outcome if isinstance(outcome, int) else 0


def _find_other_item(error: AaiclickError) -> str:
    """Remedy if the id that is not found belongs to another kind of item."""
    if error.exit_code != EXIT_NOT_FOUND:
        return ""
    return importlib.import_module("aaiclick.cli.other_item_suggestion").suggest_other_item(error.what)


def _print_error(what: str, remedy: str, code: int) -> int:
    click.echo(click.style("error: ", fg="red", bold=True) + what, err=True)
    if remedy:
        click.echo(remedy, err=True)
    return code


def _print_traceback(error: Exception) -> None:
    """Print the traceback if AAICLICK_DEBUG is set; loading the settings may itself fail."""
    with suppress(AaiclickError, OSError):
        if importlib.import_module("aaiclick.settings").get_settings().debug:
            traceback.print_exception(error)


def _report_os_error(error: OSError) -> int:
    """Report an operating system error: full disk, missing directory, too many open files."""
    _print_traceback(error)
    filename = f" ({error.filename})" if error.filename else ""
    remedies = {
        errno.ENOSPC: "Free some disk space.",
        errno.ENOENT: "If the current directory has been deleted, change to another.",
        errno.EMFILE: "Raise the limit of open files: ulimit -n 4096",
        errno.EACCES: "Check the permissions of the file or directory.",
    }
    remedy = remedies.get(error.errno or 0, "Set AAICLICK_DEBUG=1 to see a traceback.")
    return _print_error(f"Operating system error: {error.strerror or error}{filename}.", remedy, EXIT_FAILED)


def _report_unexpected(error: Exception) -> int:
    _print_traceback(error)
    tracebacks = importlib.import_module("aaiclick.tracebacks")
    if tracebacks.is_user_error(error):
        location = tracebacks.format_location(error, below=Path.cwd())
        named = traceback.format_exception_only(error)[-1].rstrip()
        return _print_error(f"{named}\n\n{location}\n", "The error is in the code above.", EXIT_FAILED)
    return _print_error(
        f"Unexpected {type(error).__name__}: {error}",
        "This is a bug in aaiclick. Set AAICLICK_DEBUG=1 to see a traceback, and please report it.",
        EXIT_FAILED,
    )
