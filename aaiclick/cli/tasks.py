"""`aaiclick tasks` and `aaiclick logs`: list and manage tasks, and print their logs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaiclick.catalog.task_summary import summarize_outputs
from aaiclick.cli import remote
from aaiclick.cli.audit import audited_transaction, write_audit
from aaiclick.cli.database import elapsed_seconds, error_headline, format_duration, format_time, with_database
from aaiclick.cli.output import (
    Row,
    describe_cancellation,
    output_option,
    print_message,
    print_record,
    print_records,
    print_rows,
    select_fields,
)
from aaiclick.cli.param_types import CURSOR_ID, ID
from aaiclick.cli.remote import call_local_or_remote
from aaiclick.client import requests
from aaiclick.errors import EXIT_FAILED, NotFoundError
from aaiclick.local import find_clickhouse
from aaiclick.orchestration.worker.logs import LogExcerpt
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.store.engine import control, queries
from aaiclick.store.engine.explain import Reason, explain_task
from aaiclick.store.enums import Cancellation

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

PAGE_SIZE = 1_000
JSON_FIELDS = (
    "id", "job_id", "type", "queue", "status", "readiness", "attempt", "failures", "max_attempts", "created_at",
    "available_at", "started_at", "completed_at", "worker_id", "output_summary", "error", "error_fingerprint",
)  # fmt: skip

FOLLOW_SECONDS = 0.2
ENDED_STATES = ("COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED")


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

    async def list_local(connection: Connection) -> list[Row]:
        task_rows = await queries.list_tasks(connection, job_id, after=after, limit=limit)
        if not task_rows and await queries.get_job(connection, job_id) is None:
            raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs.")
        return [_task_row(row) for row in task_rows]

    query = requests.get(
        "/v1/tasks", job_id=job_id, limit=min(limit, PAGE_SIZE), cursor=requests.encode_cursor(after or None)
    )
    rows = call_local_or_remote(list_local, lambda client: remote.parse_rows(client.pages(query), limit))
    print_rows(rows, output, _table_row, task_json, empty_message=f"No more tasks in job {job_id}.")
    if len(rows) == limit:
        print_message(f"More: --after {rows[-1]['id']}")


@tasks.command("show")
@click.argument("task_id", type=ID)
@output_option
def show_task(task_id: int, output: str) -> None:
    """Show a task: state, waiting reason, arguments, result and error."""

    async def show_local(connection: Connection) -> tuple[Row, list[Reason]]:
        return _task_row(await _load_task(connection, task_id)), await explain_task(connection, task_id)

    row, reasons = call_local_or_remote(
        show_local, lambda client: (_load_task_remote(client, task_id), _load_reasons_remote(client, task_id))
    )
    value = _preview_result(row["result"]) if get_settings().server is None else None
    if output == "json":
        reason_records = [_reason_json(reason) for reason in reasons]
        texts = {name: None if row[name] is None else json.loads(row[name]) for name in ("kwargs", "result")}
        print_record(
            task_json(row) | {"why": reason_records, **texts, "value": value, "log_path": row["log_path"]}, output
        )
        return
    facts = _table_row(row) | {
        "why": "; ".join(reason.text.partition("\n")[0] for reason in reasons),
        "kwargs": row["kwargs"],
        "result": row["result"],
        "value": value,
        "log": row["log_path"],
        "error": row["error"],
    }
    for name, fact in facts.items():
        click.echo(f"{name:9} {fact if fact is not None else ''}")


@tasks.command("why")
@click.argument("task_id", type=ID)
@output_option
def explain_waiting(task_id: int, output: str) -> None:
    """Explain why a task is not running."""

    async def explain_local(connection: Connection) -> list[Reason]:
        await _load_task(connection, task_id)
        return await explain_task(connection, task_id)

    reasons = call_local_or_remote(explain_local, lambda client: _load_reasons_remote(client, task_id))
    print_records([_reason_json(reason) for reason in reasons], output, empty_message="Nothing blocks the task.")


@tasks.command("cancel")
@click.argument("task_ids", type=ID, nargs=-1, required=True)
def cancel_tasks(task_ids: tuple[int, ...]) -> int:
    """Cancel tasks: waiting tasks are cancelled at once, running ones are asked to stop."""
    task_ids = tuple(dict.fromkeys(task_ids))

    async def cancel_local(connection: Connection) -> list[str]:
        async with audited_transaction(connection):
            task_rows = [await _load_task(connection, task_id) for task_id in task_ids]
            outcomes = await control.cancel_tasks(connection, task_ids)
            for row in task_rows:
                await write_audit(connection, row["org_id"], "task.cancel", str(row["id"]))
        return [outcomes[task_id] for task_id in task_ids]

    def cancel_remote(client: Client) -> list[str]:
        for task_id in task_ids:  # check all ids before changing anything
            client.get_task(task_id)
        return [client.cancel_task(task_id).outcome for task_id in task_ids]

    outcomes = call_local_or_remote(cancel_local, cancel_remote)
    for task_id, outcome in zip(task_ids, outcomes, strict=True):
        print_message(describe_cancellation(f"Task {task_id}", outcome))
    return EXIT_FAILED if Cancellation.OVER in outcomes else 0


@tasks.command("clear")
@click.argument("task_ids", type=ID, nargs=-1, required=True)
def clear_tasks(task_ids: tuple[int, ...]) -> None:
    """Run tasks of a job and all their dependents again."""
    first_id, *other_ids = dict.fromkeys(task_ids)

    async def clear_local(connection: Connection) -> int:
        async with audited_transaction(connection):
            row, *_ = [await _load_task(connection, task_id) for task_id in (first_id, *other_ids)]
            count = len(await control.clear_tasks(connection, first_id, other_ids))
            await write_audit(connection, row["org_id"], "task.clear", str(first_id), {"tasks": count})
        return count

    count = call_local_or_remote(clear_local, lambda client: client.clear_task(first_id, other_ids).count)
    print_message(f"{count} tasks cleared.")


@click.command()
@click.argument("task_id", type=ID)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the task has finished.")
@click.option("--attempt", type=click.IntRange(1), default=None, help="Only this attempt.")
def logs(task_id: int, follow: bool, attempt: int | None) -> None:
    """Print the log of a task."""
    excerpt = LogExcerpt(attempt)
    has_output = False
    for piece in _read_log_remote(task_id, follow) if remote.is_remote() else _read_log(task_id, follow):
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
    position = 0
    while True:
        row = with_database(lambda connection: _load_task(connection, task_id))
        path = Path(row["log_path"]) if row["log_path"] else get_logs_dir() / f"{task_id}.log"
        if path.exists():
            with path.open(errors="replace") as stream:
                stream.seek(position)
                piece, position = stream.read(), stream.tell()
            yield piece
        if not follow or row["status"] in ENDED_STATES:
            return
        time.sleep(FOLLOW_SECONDS)


def _read_log_remote(task_id: int, follow: bool) -> Iterator[str]:
    offset = 0
    with remote.open_client() as client:
        while True:
            part = client.read_task_log(task_id, offset=offset)
            yield part.text
            if part.next_offset == offset:
                if part.ended or not follow:
                    return
                time.sleep(FOLLOW_SECONDS)
            offset = part.next_offset


def _preview_result(result: str | None) -> str | None:
    """Format a result for display; None if there is none."""
    if result is None:
        return None
    from aaiclick.data.preview import preview_result  # slow import, only needed for results

    return asyncio.run(preview_result(json.loads(result), find_clickhouse(get_settings())))


def _load_task_remote(client: Client, task_id: int) -> Row:
    task = client.get_task(task_id).model_dump()
    texts = {name: None if task[name] is None else json.dumps(task[name]) for name in ("kwargs", "result")}
    return task | texts | {"log_path": None}


def _load_reasons_remote(client: Client, task_id: int) -> list[Reason]:
    return [Reason(reason.code, reason.text) for reason in client.explain_task(task_id)]


def _reason_json(reason: Reason) -> Row:
    """Format a waiting reason with the field names of the API."""
    return {"code": reason.code, "text": reason.text}


async def _load_task(connection: Connection, task_id: int) -> asyncpg.Record:
    row = await queries.get_task(connection, task_id)
    if row is None:
        raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls JOB' lists the tasks of a job.")
    return row


def _task_row(task: asyncpg.Record) -> Row:
    """Return a task in the format of the API."""
    return dict(task) | {"output_summary": summarize_outputs(task["outputs"])}


def task_json(row: Row) -> Row:
    """Format a task as JSON."""
    took = elapsed_seconds(row["started_at"], row["completed_at"])
    return select_fields(row, JSON_FIELDS) | {"partitions": row["partitions"] or [], "took_seconds": took}


def _table_row(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "type": row["type"],
        "status": row["status"],
        "attempt": row["attempt"],
        "started": format_time(row["started_at"]),
        "duration": format_duration(row["started_at"], row["completed_at"]),
        "output": row["output_summary"],
        "error": error_headline(row["error"]),
    }
