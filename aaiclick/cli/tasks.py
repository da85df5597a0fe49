"""`aaiclick tasks` and `aaiclick logs`: single tasks, why they wait, what they said."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaiclick.catalog.made import made_in_words
from aaiclick.cli import remote
from aaiclick.cli.database import first_line, moment, seconds, took_seconds, with_database
from aaiclick.cli.deeds import note_deed, recorded
from aaiclick.cli.kinds import ID, PLACE
from aaiclick.cli.output import (
    Row,
    cancellation_text,
    named,
    note,
    output_option,
    print_record,
    print_records,
    print_rows,
)
from aaiclick.cli.remote import reach
from aaiclick.client import calls
from aaiclick.errors import EXIT_FAILED, NotFoundError
from aaiclick.local import find_clickhouse
from aaiclick.orchestration.worker.logs import Excerpt
from aaiclick.settings import get_logs_dir, get_settings
from aaiclick.store import control, reads
from aaiclick.store.waiting import Reason, why_waiting
from aaiclick.store.words import Cancellation

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

PAGE = 1_000
NAMES = (
    "id", "job_id", "type", "queue", "status", "readiness", "attempt", "failures", "max_attempts", "created_at",
    "available_at", "started_at", "completed_at", "worker_id", "made", "error", "error_fingerprint",
)  # fmt: skip

FOLLOW_SECONDS = 0.2
ENDED = ("COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED")


@click.group()
def tasks() -> None:
    """List, show, cancel and clear tasks."""


@tasks.command()
@click.argument("job_id", type=ID)
@click.option("--after", type=PLACE, default=0, help="Continue a listing: the last id of the page before.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many to list, at most."
)
@output_option
def ls(job_id: int, after: int, limit: int, output: str) -> None:
    """List the tasks of a job in the order they were made."""

    async def work(connection: Connection) -> list[Row]:
        found = await reads.list_tasks(connection, job_id, after=after, limit=limit)
        if not found and await reads.get_job(connection, job_id) is None:
            raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
        return [_row(each) for each in found]

    query = calls.get("/v1/tasks", job_id=job_id, limit=min(limit, PAGE), cursor=calls.cursor(after or None))
    rows = reach(work, lambda client: remote.rows(client.pages(query), limit))
    print_rows(rows, output, _line, task_facts, nothing=f"Job {job_id} has no more tasks.")
    if len(rows) == limit:
        note(f"More: --after {rows[-1]['id']}")


@tasks.command()
@click.argument("task_id", type=ID)
@output_option
def show(task_id: int, output: str) -> None:
    """Show a task: its state, why it waits, its arguments, its result, its error."""

    async def work(connection: Connection) -> tuple[Row, list[Reason]]:
        return _row(await _task(connection, task_id)), await why_waiting(connection, task_id)

    row, reasons = reach(work, lambda client: (_from_server(client, task_id), _reasons(client, task_id)))
    value = _shown(row["result"]) if get_settings().server is None else None
    if output == "json":
        why = [asdict(reason) for reason in reasons]
        texts = {name: None if row[name] is None else json.loads(row[name]) for name in ("kwargs", "result")}
        print_record(task_facts(row) | {"why": why, **texts, "value": value, "log_path": row["log_path"]}, output)
        return
    facts = _line(row) | {
        "why": "; ".join(reason.words.partition("\n")[0] for reason in reasons),
        "kwargs": row["kwargs"],
        "result": row["result"],
        "value": value,
        "log": row["log_path"],
        "error": row["error"],
    }
    for name, fact in facts.items():
        click.echo(f"{name:9} {fact if fact is not None else ''}")


@tasks.command()
@click.argument("task_id", type=ID)
@output_option
def why(task_id: int, output: str) -> None:
    """Say why a task is not running."""

    async def work(connection: Connection) -> list[Reason]:
        await _task(connection, task_id)
        return await why_waiting(connection, task_id)

    reasons = reach(work, lambda client: _reasons(client, task_id))
    print_records([asdict(reason) for reason in reasons], output, nothing="Nothing stands in its way.")


@tasks.command()
@click.argument("task_ids", type=ID, nargs=-1, required=True)
def cancel(task_ids: tuple[int, ...]) -> int:
    """Cancel tasks: a waiting one ends at once, a running one is told to stop."""

    task_ids = tuple(dict.fromkeys(task_ids))

    async def work(connection: Connection) -> list[str]:
        async with recorded(connection):
            found = [await _task(connection, task_id) for task_id in task_ids]
            outcomes = await control.cancel_tasks(connection, task_ids)
            for row in found:
                await note_deed(connection, row["org_id"], "task.cancel", str(row["id"]))
        return [outcomes[task_id] for task_id in task_ids]

    def ask(client: Client) -> list[str]:
        for task_id in task_ids:  # all of them, or none
            client.get_task(task_id)
        return [client.cancel_task(task_id) for task_id in task_ids]

    outcomes = reach(work, ask)
    for task_id, outcome in zip(task_ids, outcomes, strict=True):
        note(cancellation_text(f"Task {task_id}", outcome))
    return EXIT_FAILED if Cancellation.OVER in outcomes else 0


@tasks.command()
@click.argument("task_ids", type=ID, nargs=-1, required=True)
def clear(task_ids: tuple[int, ...]) -> None:
    """Run tasks of a job again, and everything that depends on them."""
    first, *also = dict.fromkeys(task_ids)

    async def work(connection: Connection) -> int:
        async with recorded(connection):
            row, *_ = [await _task(connection, task_id) for task_id in (first, *also)]
            count = len(await control.clear(connection, first, also))
            await note_deed(connection, row["org_id"], "task.clear", str(first), {"tasks": count})
        return count

    note(f"{reach(work, lambda client: client.clear_task(first, also))} tasks run again.")


@click.command()
@click.argument("task_id", type=ID)
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the task has ended.")
@click.option("--attempt", type=click.IntRange(1), default=None, help="Only this attempt.")
def logs(task_id: int, follow: bool, attempt: int | None) -> None:
    """Print what a task said."""
    excerpt = Excerpt(attempt)
    said = False
    for piece in _from_server_in_pieces(task_id, follow) if remote.is_remote() else _in_pieces(task_id, follow):
        said |= _echo(excerpt.feed(piece))
        if excerpt.is_over:
            break
    said |= _echo(excerpt.rest())
    if not said:
        whose = f"Task {task_id}" if attempt is None else f"Attempt {attempt} of task {task_id}"
        note(f"{whose} has said nothing that can be read here.")


def _echo(text: str) -> bool:
    click.echo(text, nl=False)
    return bool(text)


def _in_pieces(task_id: int, follow: bool) -> Iterator[str]:
    """A log as it is now, and what is added until the task has ended if one follows it; there may be none yet."""
    position = 0
    while True:
        row = with_database(lambda connection: _task(connection, task_id))
        path = Path(row["log_path"]) if row["log_path"] else get_logs_dir() / f"{task_id}.log"
        if path.exists():
            with path.open(errors="replace") as stream:
                stream.seek(position)
                piece, position = stream.read(), stream.tell()
            yield piece
        if not follow or row["status"] in ENDED:
            return
        time.sleep(FOLLOW_SECONDS)


def _from_server_in_pieces(task_id: int, follow: bool) -> Iterator[str]:
    offset = 0
    with remote.open_client() as client:
        while True:
            part = client.log(task_id, offset=offset)
            yield part["text"]
            if part["next_offset"] == offset:
                if part["ended"] or not follow:
                    return
                time.sleep(FOLLOW_SECONDS)
            offset = part["next_offset"]


def _shown(result: str | None) -> str | None:
    """A result in words; None if there is none."""
    if result is None:
        return None
    from aaiclick.data.shown import show  # heavy: only what has a result needs it

    return asyncio.run(show(json.loads(result), find_clickhouse(get_settings())))


def _from_server(client: Client, task_id: int) -> Row:
    found = remote.row(client.get_task(task_id))
    texts = {name: None if found[name] is None else json.dumps(found[name]) for name in ("kwargs", "result")}
    return found | texts | {"log_path": None}


def _reasons(client: Client, task_id: int) -> list[Reason]:
    return [Reason(**reason) for reason in client.why(task_id)]


async def _task(connection: Connection, task_id: int) -> asyncpg.Record:
    row = await reads.get_task(connection, task_id)
    if row is None:
        raise NotFoundError(f"There is no task {task_id}.", remedy="'aaiclick tasks ls JOB' lists the tasks of a job.")
    return row


def _row(task: asyncpg.Record) -> Row:
    """A task as the API says it."""
    return dict(task) | {"made": made_in_words(task["outputs"])}


def task_facts(row: Row) -> Row:
    """A task in JSON."""
    took = took_seconds(row["started_at"], row["completed_at"])
    return named(row, NAMES) | {"partitions": row["partitions"] or [], "took_seconds": took}


def _line(row: Row) -> Row:
    return {
        "id": str(row["id"]),
        "type": row["type"],
        "status": row["status"],
        "attempt": row["attempt"],
        "started": moment(row["started_at"]),
        "took": seconds(row["started_at"], row["completed_at"]),
        "made": row["made"],
        "error": first_line(row["error"]),
    }
