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
from typing import TYPE_CHECKING, Any

import click

from aaiclick.api.tasks import Task
from aaiclick.cli import remote
from aaiclick.cli.database import elapsed_seconds, error_headline, format_duration, format_time
from aaiclick.cli.enqueue import enqueue_item
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import (
    Row,
    describe_cancellation,
    output_option,
    print_message,
    print_models,
    print_record,
    print_records,
)
from aaiclick.cli.param_types import CURSOR_ID, JOB_ID, TASK_ID, TASK_OR_JOB_ID
from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.client.requests import encode_cursor
from aaiclick.errors import EXIT_FAILED, NotFoundError
from aaiclick.lazy_modules import LazyModule
from aaiclick.local import find_clickhouse
from aaiclick.settings import get_settings
from aaiclick.store.enums import Cancellation
from aaiclick.tracebacks import is_user_error, report_user_errors

if TYPE_CHECKING:
    from datetime import datetime

    from aaiclick.cli import entrypoint_import
    from aaiclick.orchestration.worker import logs as worker_logs
else:  # the Python API of jobs: a list of tasks does not need it
    entrypoint_import = LazyModule("aaiclick.cli.entrypoint_import")
    worker_logs = LazyModule("aaiclick.orchestration.worker.logs")

FOLLOW_SECONDS = 0.2


@click.group()
def tasks() -> None:
    """Enqueue, list, show, cancel and clear tasks.

    Ids may be shortened to their first digits.

    \b
    aaiclick tasks ls 3814059377
    aaiclick tasks why 3814059378
    aaiclick tasks clear 3814059378
    """


tasks.add_command(enqueue_item)


@tasks.command("ls")
@click.argument("job_id", type=JOB_ID)
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
@click.argument("task_id", type=TASK_ID)
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
        "code": task.code_version,
        "cached": None if task.cached_from is None else f"result of task {task.cached_from}",
        "error": task.error,
    }
    for name, fact in facts.items():
        click.echo(f"{name:9} {fact if fact is not None else ''}")


@tasks.command("why")
@click.argument("task_id", type=TASK_ID)
@output_option
def explain_waiting(task_id: int, output: str) -> None:
    """Explain why a task is not running."""
    with open_operations() as operations:
        reasons = operations.explain_task(task_id)
    print_models(reasons, output, lambda reason: reason.model_dump(), empty_message="Nothing blocks the task.")


@tasks.command("cancel")
@click.argument("task_ids", type=TASK_ID, nargs=-1, required=True)
def cancel_tasks(task_ids: tuple[int, ...]) -> int:
    """Cancel tasks: waiting tasks are cancelled at once, running ones are asked to stop."""
    with open_operations() as operations:
        task_ids = tuple(dict.fromkeys(task_ids))
        for task_id in task_ids:  # check all ids before changing anything
            operations.get_task(task_id)
        outcomes = [operations.cancel_task(task_id).outcome for task_id in task_ids]
    for task_id, outcome in zip(task_ids, outcomes, strict=True):
        print_message(describe_cancellation(f"Task {task_id}", outcome))
    return EXIT_FAILED if Cancellation.OVER in outcomes else 0


@tasks.command("clear")
@click.argument("task_ids", type=TASK_ID, nargs=-1, required=True)
def clear_tasks(task_ids: tuple[int, ...]) -> None:
    """Run tasks of a job and all their dependents again."""
    with open_operations() as operations:
        first_id, *other_ids = dict.fromkeys(task_ids)
        count = operations.clear_task(first_id, other_ids).count
    print_message(f"{count} tasks cleared.")


@tasks.command("debug")
@click.argument("task_id", type=TASK_ID)
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
    target = entrypoint_import.load_target(entrypoint)
    return target.function if isinstance(target, entrypoint_import.TaskFunction) else target


@click.command()
@click.argument("task_or_job_id", type=TASK_OR_JOB_ID)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the task or job has finished.")
@click.option("--attempt", type=click.IntRange(1), default=None, help="Only this attempt.")
def logs(task_or_job_id: int, follow: bool, attempt: int | None) -> None:
    """Print the log of a task, or of all tasks of a job.

    \b
    aaiclick logs 381405937744023552
    aaiclick logs -f 381405937744023552
    """
    with open_operations() as operations:
        task_id = job_id = task_or_job_id
        try:
            operations.get_task(task_id)
        except NotFoundError:
            if not _is_job(operations, job_id):
                raise
            _print_job_logs(operations, job_id, follow, attempt)
        else:
            if not _print_log(operations, task_id, follow, attempt):
                subject = f"Task {task_id}" if attempt is None else f"Attempt {attempt} of task {task_id}"
                print_message(f"{subject} has printed nothing, or its log is on another machine.")


def _is_job(operations: SyncEndpoints, job_id: int) -> bool:
    try:
        operations.get_job(job_id)
    except NotFoundError:
        return False
    return True


def _print_job_logs(operations: SyncEndpoints, job_id: int, follow: bool, attempt: int | None) -> None:
    """Print the logs of a job's tasks one after the other; with `follow`, until the job has ended."""
    printed: set[int] = set()
    has_output = False
    while True:
        ended = operations.get_job(job_id).completed_at is not None
        for task in operations.list_tasks(job_id, limit=PAGE_SIZE):
            if task.id in printed or (follow and task.started_at is None and not ended):
                continue
            printed.add(task.id)
            heading = f"== {task.type}, task {task.id}, {task.status} ==\n"
            has_output |= _print_log(operations, task.id, follow, attempt, heading)
        if ended or not follow:
            break
        time.sleep(FOLLOW_SECONDS)
    if not has_output:
        print_message(f"The tasks of job {job_id} have printed nothing, or their logs are on another machine.")


def _print_log(operations: SyncEndpoints, task_id: int, follow: bool, attempt: int | None, heading: str = "") -> bool:
    """Print the log of a task, after a heading if there is any output; returns whether there is."""
    excerpt = worker_logs.LogExcerpt(attempt)
    has_output = False
    last_attempt = worker_logs.LastAttempt()
    for piece in _read_log(operations, task_id, follow):
        last_attempt.feed(piece)
        text = excerpt.feed(piece)
        if text and not has_output:
            text = heading + text
        has_output |= _echo_text(text)
        if excerpt.is_finished:
            break
    has_output |= _echo_text(excerpt.unfinished_line())
    task = operations.get_task(task_id)
    if has_output and attempt is None and task.completed_at is not None and last_attempt.number < task.attempt:
        _echo_text(f"=== attempt {task.attempt} has printed nothing ===\n")
    return has_output


def _echo_text(text: str) -> bool:
    click.echo(text, nl=False)
    return bool(text)


def _read_log(operations: SyncEndpoints, task_id: int, follow: bool) -> Iterator[str]:
    """Yield the log; with `follow`, yield additions until the task has finished."""
    offset = 0
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
    from aaiclick.data.result_preview import preview_result  # slow import, only needed for results

    return asyncio.run(preview_result(result, find_clickhouse(get_settings())))


def task_json(task: Task) -> Row:
    """Format a task as JSON."""
    took_seconds = elapsed_seconds(last_attempt_started_at(task), task.completed_at)
    return task.model_dump(mode="json") | {"took_seconds": took_seconds}


def last_attempt_started_at(task: Task) -> datetime | None:
    """Return the start of the attempt that runs or was the last; None while the task waits for its next attempt."""
    is_running = task.status in ("CLAIMED", "RUNNING")
    return task.started_at if is_running or task.completed_at is not None else None


def _table_row(task: Task) -> Row:
    return {
        "id": str(task.id),
        "type": task.type,
        "status": task.status,
        "attempt": task.attempt,
        "started": format_time(task.started_at),
        "duration": format_duration(last_attempt_started_at(task), task.completed_at),
        "output": task.output_summary,
        "error": error_headline(task.error),
    }
