"""`aaiclick tasks` and `aaiclick logs`: list and manage tasks, and print their logs."""

from __future__ import annotations

import asyncio
import importlib
import json
import pdb
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from aaiclick.api.tasks import Task
from aaiclick.cli import remote
from aaiclick.cli.database import elapsed_seconds, error_headline, format_duration, format_time
from aaiclick.cli.operations import open_operations
from aaiclick.cli.output import (
    Row,
    describe_cancellation,
    output_option,
    print_message,
    print_models,
    print_record,
    print_records,
)
from aaiclick.cli.param_types import CURSOR_ID, ID
from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.cli.user_module import load_target
from aaiclick.client.requests import encode_cursor
from aaiclick.errors import EXIT_FAILED
from aaiclick.local import find_clickhouse
from aaiclick.orchestration.decorators import TaskFunction
from aaiclick.orchestration.worker.logs import LogExcerpt
from aaiclick.settings import get_settings
from aaiclick.store.enums import Cancellation
from aaiclick.tracebacks import is_user_error, report_user_errors

FOLLOW_SECONDS = 0.2


@click.group()
def tasks() -> None:
    """List, show, cancel and clear tasks."""


@tasks.command("ls")
@click.argument("job_id", type=ID)
@click.option("--after", type=CURSOR_ID, default=0, help="Continue a listing after this id.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Maximum number of rows."
)
@output_option
def list_tasks(job_id: int, after: int, limit: int, output: str) -> None:
    """List the tasks of a job in order of creation."""
    with open_operations() as operations:
        listing = operations.list_tasks(job_id, cursor=encode_cursor(after or None), limit=min(limit, PAGE_SIZE))
        listed = list(islice(listing, limit))
    to_record = task_json if output == "json" else _table_row
    print_records([to_record(task) for task in listed], output, empty_message=f"No more tasks in job {job_id}.")
    if len(listed) == limit:
        print_message(f"More: --after {listed[-1].id}")


@tasks.command("show")
@click.argument("task_id", type=ID)
@output_option
def show_task(task_id: int, output: str) -> None:
    """Show a task: state, waiting reason, arguments, result and error."""
    with open_operations() as operations:
        task, reasons = operations.get_task(task_id), operations.explain_task(task_id)
    value = None if remote.is_remote() else _preview_result(task.result)
    if output == "json":
        print_record(task_json(task) | {"why": [reason.model_dump() for reason in reasons], "value": value}, output)
        return
    facts = _table_row(task) | {
        "why": "; ".join(reason.text.partition("\n")[0] for reason in reasons),
        "kwargs": json.dumps(task.kwargs),
        "result": None if task.result is None else json.dumps(task.result),
        "value": value,
        "error": task.error,
    }
    for name, fact in facts.items():
        click.echo(f"{name:9} {fact if fact is not None else ''}")


@tasks.command("why")
@click.argument("task_id", type=ID)
@output_option
def explain_waiting(task_id: int, output: str) -> None:
    """Explain why a task is not running."""
    with open_operations() as operations:
        reasons = operations.explain_task(task_id)
    print_models(reasons, output, lambda reason: reason.model_dump(), empty_message="Nothing blocks the task.")


@tasks.command("cancel")
@click.argument("task_ids", type=ID, nargs=-1, required=True)
def cancel_tasks(task_ids: tuple[int, ...]) -> int:
    """Cancel tasks: waiting tasks are cancelled at once, running ones are asked to stop."""
    task_ids = tuple(dict.fromkeys(task_ids))
    with open_operations() as operations:
        for task_id in task_ids:  # check all ids before changing anything
            operations.get_task(task_id)
        outcomes = [operations.cancel_task(task_id).outcome for task_id in task_ids]
    for task_id, outcome in zip(task_ids, outcomes, strict=True):
        print_message(describe_cancellation(f"Task {task_id}", outcome))
    return EXIT_FAILED if Cancellation.OVER in outcomes else 0


@tasks.command("clear")
@click.argument("task_ids", type=ID, nargs=-1, required=True)
def clear_tasks(task_ids: tuple[int, ...]) -> None:
    """Run tasks of a job and all their dependents again."""
    first_id, *other_ids = dict.fromkeys(task_ids)
    with open_operations() as operations:
        count = operations.clear_task(first_id, other_ids).count
    print_message(f"{count} tasks cleared.")


@tasks.command("debug")
@click.argument("task_id", type=ID)
@click.option("--pdb", "post_mortem", is_flag=True, help="Open the debugger where the function raises an exception.")
def debug_task(task_id: int, post_mortem: bool) -> None:
    """Repeat a task here with its real inputs; nothing is stored and the job does not change.

    Run it in the directory of your code. breakpoint() works.
    """
    if remote.is_remote():
        remote.refuse_remote("'tasks debug'")
    sys.path.insert(0, str(Path.cwd()))
    debugging = importlib.import_module("aaiclick.orchestration.debugging")  # slow import: the ClickHouse client
    try:
        with report_user_errors(f"Task {task_id}", "Correct the line and run the command again."):
            try:
                value = asyncio.run(debugging.repeat_task(task_id, _load_function))
            except Exception as error:
                if post_mortem and is_user_error(error):
                    pdb.post_mortem(error.__traceback__)
                raise
    finally:
        sys.path.pop(0)
    click.echo(f"Result: {value!r}")


def _load_function(entrypoint: str) -> Any:
    """Undecorated function of an entry point."""
    target = load_target(entrypoint)
    return target.function if isinstance(target, TaskFunction) else target


@click.command()
@click.argument("task_id", type=ID)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the task has finished.")
@click.option("--attempt", type=click.IntRange(1), default=None, help="Only this attempt.")
def logs(task_id: int, follow: bool, attempt: int | None) -> None:
    """Print the log of a task."""
    excerpt = LogExcerpt(attempt)
    has_output = False
    for piece in _read_log(task_id, follow):
        has_output |= _echo_text(excerpt.feed(piece))
        if excerpt.is_finished:
            break
    has_output |= _echo_text(excerpt.unfinished_line())
    if not has_output:
        subject = f"Task {task_id}" if attempt is None else f"Attempt {attempt} of task {task_id}"
        print_message(f"{subject} has no log that can be read here.")


def _echo_text(text: str) -> bool:
    click.echo(text, nl=False)
    return bool(text)


def _read_log(task_id: int, follow: bool) -> Iterator[str]:
    """Yield the log; with `follow`, yield additions until the task has finished."""
    offset = 0
    with open_operations() as operations:
        while True:
            part = operations.read_task_log(task_id, offset=offset)
            yield part.text
            if part.next_offset == offset:
                if part.ended or not follow:
                    return
                time.sleep(FOLLOW_SECONDS)
            offset = part.next_offset


def _preview_result(result: object) -> str | None:
    """Format a result for display; None if there is none."""
    if result is None:
        return None
    from aaiclick.data.preview import preview_result  # slow import, only needed for results

    return asyncio.run(preview_result(result, find_clickhouse(get_settings())))


def task_json(task: Task) -> Row:
    """Format a task as JSON."""
    took_seconds = elapsed_seconds(task.started_at, task.completed_at)
    return task.model_dump(mode="json") | {"took_seconds": took_seconds}


def _table_row(task: Task) -> Row:
    return {
        "id": str(task.id),
        "type": task.type,
        "status": task.status,
        "attempt": task.attempt,
        "started": format_time(task.started_at),
        "duration": format_duration(task.started_at, task.completed_at),
        "output": task.output_summary,
        "error": error_headline(task.error),
    }
