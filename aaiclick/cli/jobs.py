"""`aaiclick jobs`: what was submitted and how far it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from aaiclick.cli import remote
from aaiclick.cli.database import first_line, moment, seconds, took_seconds
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
from aaiclick.store import control, reads
from aaiclick.store.tables import release_jobs
from aaiclick.store.words import Cancellation, JobStatus

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.client import Client
    from aaiclick.store.engine import Connection

PAGE = 1_000
NAMES = (
    "id", "name", "status", "total_tasks", "open_tasks", "failed_tasks", "cancelled_tasks", "timeout_seconds",
    "created_at", "started_at", "restarted_at", "completed_at", "deadline_at", "cancel_requested_at", "paused_at",
    "error",
)  # fmt: skip


@click.group()
def jobs() -> None:
    """List, show, cancel, retry and release jobs."""


@jobs.command()
@click.option("--status", type=click.Choice([status.value for status in JobStatus], case_sensitive=False),
              help="Only jobs in this state.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", type=PLACE, default=None, help="Continue a listing: the last id of the page before.")
@output_option
def ls(status: str | None, limit: int, before: int | None, output: str) -> None:
    """List jobs, newest first."""
    wanted = status.upper() if status else None

    async def work(connection: Connection) -> list[Row]:
        found = await reads.list_jobs(connection, status=wanted, before=before or reads.LAST_ID, limit=limit)
        return [dict(each) for each in found]

    query = calls.get("/v1/jobs", status=wanted, limit=min(limit, PAGE), cursor=calls.cursor(before or None))
    rows = reach(work, lambda client: remote.rows(client.pages(query), limit))
    nothing = "There are no such jobs." if wanted or before else "There are no jobs."
    print_rows(rows, output, job_line, job_facts, nothing=nothing)
    if len(rows) == limit:
        note(f"More: --before {rows[-1]['id']}")


@jobs.command()
@click.argument("job_id", type=ID)
@output_option
def show(job_id: int, output: str) -> None:
    """Show a job and how far each of its groups is."""

    async def work(connection: Connection) -> tuple[Row, list[Row]]:
        progress = await reads.job_progress(connection, job_id)
        return dict(await find_job(connection, job_id)), [dict(each) for each in progress]

    def ask(client: Client) -> tuple[Row, list[Row]]:
        progress = client.call(calls.get(calls.named("jobs", job_id, "progress")))
        return remote.row(client.get_job(job_id)), [each | {"name": each["group"]} for each in progress]

    job, progress = reach(work, ask)
    if output == "json":
        print_record(job_facts(job) | {"groups": [_group_facts(row) for row in progress]}, output)
        return
    print_record(job_line(job), output)
    click.echo()
    print_records([{"group": row["name"] or "-", **_counts(row), "rows": pace(row)} for row in progress], output)
    note(f"Its tasks: aaiclick tasks ls {job_id}. What one returned: aaiclick tasks show TASK.")


@jobs.command()
@click.argument("job_ids", type=ID, nargs=-1, required=True)
def cancel(job_ids: tuple[int, ...]) -> int:
    """Cancel jobs: waiting tasks end at once, running ones are told to stop."""

    async def end(connection: Connection, job_id: int) -> str:
        async with recorded(connection):
            job = await find_job(connection, job_id)
            outcome = await control.cancel_job(connection, job_id)
            await note_deed(connection, job["org_id"], "job.cancel", str(job_id))
        return outcome

    async def work(connection: Connection) -> list[str]:
        return [await end(connection, job_id) for job_id in job_ids]

    outcomes = reach(work, lambda client: [client.cancel_job(job_id) for job_id in job_ids])
    for job_id, outcome in zip(job_ids, outcomes, strict=True):
        note(cancellation_text(f"Job {job_id}", outcome))
    return EXIT_FAILED if Cancellation.OVER in outcomes else 0


@jobs.command()
@click.argument("job_id", type=ID)
def retry(job_id: int) -> None:
    """Start over what failed in a job, and what was cancelled because of it."""

    async def work(connection: Connection) -> int:
        async with recorded(connection):
            job = await find_job(connection, job_id)
            back = await control.retry_failed_tasks(connection, job_id)
            await note_deed(connection, job["org_id"], "job.retry", str(job_id), {"tasks": len(back)})
        return len(back)

    count = reach(work, lambda client: client.retry_job(job_id))
    note(f"{count} tasks of job {job_id} start over." if count else f"Nothing in job {job_id} has failed.")


@jobs.command()
@click.argument("job_ids", type=ID, nargs=-1, required=True)
def release(job_ids: tuple[int, ...]) -> None:
    """Let go of the results of jobs that are over: their tables are dropped unless somebody else needs them."""

    async def let_go(connection: Connection, job_id: int) -> int:
        async with recorded(connection):
            job = await find_job(connection, job_id)
            tables = await release_jobs(connection, [job_id])
            await note_deed(connection, job["org_id"], "job.release", str(job_id), {"tables": tables})
        return tables

    async def work(connection: Connection) -> int:
        return sum([await let_go(connection, job_id) for job_id in job_ids])

    tables = reach(work, lambda client: sum(client.release_job(job_id) for job_id in job_ids))
    note(f"Released {tables} tables.")


@jobs.command()
@click.argument("job_id", type=ID)
def pause(job_id: int) -> None:
    """Let nothing more of a job begin."""
    _do(job_id, "job.pause", control.pause_job, lambda client: client.pause_job(job_id))
    note(f"Job {job_id} is paused: aaiclick jobs resume {job_id}")


@jobs.command()
@click.argument("job_id", type=ID)
def resume(job_id: int) -> None:
    """Let a paused job go on."""
    _do(job_id, "job.resume", control.resume_job, lambda client: client.resume_job(job_id))
    note(f"Job {job_id} goes on.")


def _do(
    job_id: int, action: str, near: Callable[[Connection, int], Awaitable[object]], afar: Callable[[Client], object]
) -> None:
    async def work(connection: Connection) -> None:
        async with recorded(connection):
            job = await find_job(connection, job_id)
            await near(connection, job_id)
            await note_deed(connection, job["org_id"], action, str(job_id))

    reach(work, afar)


async def find_job(connection: Connection, job_id: int) -> asyncpg.Record:
    row = await reads.get_job(connection, job_id)
    if row is None:
        raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs there are.")
    return row


def job_line(row: Row) -> dict[str, Any]:
    """A job in a table."""
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "status": row["status"],
        "tasks": f"{row['total_tasks'] - row['open_tasks']}/{row['total_tasks']}",
        "failed": row["failed_tasks"],
        "created": moment(row["created_at"]),
        "took": seconds(reads.began(row), row["completed_at"]),
        "error": first_line(row["error"]),
    }


def job_facts(row: Row) -> dict[str, Any]:
    """A job in JSON."""
    return named(row, NAMES) | {"took_seconds": took_seconds(reads.began(row), row["completed_at"])}


def _group_facts(row: Row) -> dict[str, Any]:
    """How far a group is, in JSON; what is in none has no name."""
    return {"name": row["name"] or None, **_counts(row), "rows": row["rows"], "seconds": row["seconds"]}


def _counts(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("total", "completed", "running", "failed", "cancelled")}


def pace(row: Any) -> str:
    """How many rows the chunks of a group have done, and how fast; nothing where there are no chunks."""
    if row["rows"] is None:
        return ""
    rate = f" ({row['rows'] / row['seconds']:,.0f}/s)" if row["seconds"] else ""
    return f"{row['rows']:,}{rate}"
