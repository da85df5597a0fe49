"""`aaiclick jobs`: list and manage jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aaiclick.cli import remote
from aaiclick.cli.database import elapsed_seconds, error_headline, format_duration, format_time
from aaiclick.cli.operations import open_operations
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
from aaiclick.store.engine import queries
from aaiclick.store.enums import Cancellation, JobStatus

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.client import Client
    from aaiclick.store.connections import Connection

PAGE_SIZE = 1_000
JSON_FIELDS = (
    "id", "name", "status", "total_tasks", "open_tasks", "failed_tasks", "cancelled_tasks", "timeout_seconds",
    "created_at", "started_at", "restarted_at", "completed_at", "deadline_at", "cancel_requested_at", "paused_at",
    "error",
)  # fmt: skip


@click.group()
def jobs() -> None:
    """List, show, cancel, retry and release jobs."""


@jobs.command("ls")
@click.option("--status", type=click.Choice([status.value for status in JobStatus], case_sensitive=False),
              help="Only jobs in this state.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number of rows.")
@click.option("--before", type=CURSOR_ID, default=None, help="Continue a listing after this id.")
@output_option
def list_jobs(status: str | None, limit: int, before: int | None, output: str) -> None:
    """List jobs, newest first."""
    wanted_status = status.upper() if status else None

    async def list_local(connection: Connection) -> list[Row]:
        job_rows = await queries.list_jobs(
            connection, status=wanted_status, before=before or queries.LAST_ID, limit=limit
        )
        return [dict(row) for row in job_rows]

    query = requests.get(
        "/v1/jobs", status=wanted_status, limit=min(limit, PAGE_SIZE), cursor=requests.encode_cursor(before or None)
    )
    rows = call_local_or_remote(list_local, lambda client: remote.parse_rows(client.pages(query), limit))
    nothing = "No matching jobs found." if wanted_status or before else "No jobs found."
    print_rows(rows, output, job_row, job_json, empty_message=nothing)
    if len(rows) == limit:
        print_message(f"More: --before {rows[-1]['id']}")


@jobs.command("show")
@click.argument("job_id", type=ID)
@output_option
def show_job(job_id: int, output: str) -> None:
    """Show a job and the progress of its groups."""

    async def show_local(connection: Connection) -> tuple[Row, list[Row]]:
        progress = await queries.load_job_progress(connection, job_id)
        return dict(await find_job(connection, job_id)), [dict(row) for row in progress]

    def show_remote(client: Client) -> tuple[Row, list[Row]]:
        progress = client.call(requests.get(requests.build_path("jobs", job_id, "progress")))
        return client.get_job(job_id).model_dump(), [row | {"name": row["group"]} for row in progress]

    job, progress = call_local_or_remote(show_local, show_remote)
    if output == "json":
        print_record(job_json(job) | {"groups": [_group_json(row) for row in progress]}, output)
        return
    print_record(job_row(job), output)
    click.echo()
    print_records(
        [{"group": row["name"] or "-", **_group_counts(row), "rows": format_row_rate(row)} for row in progress], output
    )
    print_message(f"List its tasks with: aaiclick tasks ls {job_id}. Show a result with: aaiclick tasks show TASK.")


@jobs.command("cancel")
@click.argument("job_ids", type=ID, nargs=-1, required=True)
def cancel_jobs(job_ids: tuple[int, ...]) -> int:
    """Cancel jobs: waiting tasks are cancelled at once, running ones are asked to stop."""
    with open_operations() as operations:
        outcomes = [operations.cancel_job(job_id).outcome for job_id in job_ids]
    for job_id, outcome in zip(job_ids, outcomes, strict=True):
        print_message(describe_cancellation(f"Job {job_id}", outcome))
    return EXIT_FAILED if Cancellation.OVER in outcomes else 0


@jobs.command("retry")
@click.argument("job_id", type=ID)
def retry_job(job_id: int) -> None:
    """Retry the failed tasks of a job and the tasks cancelled because of them."""
    with open_operations() as operations:
        count = operations.retry_job(job_id).count
    print_message(
        f"{count} tasks of job {job_id} will be retried." if count else f"No task of job {job_id} has failed."
    )


@jobs.command("release")
@click.argument("job_ids", type=ID, nargs=-1, required=True)
def release_results(job_ids: tuple[int, ...]) -> None:
    """Release the results of finished jobs: their tables are dropped unless they are referenced elsewhere."""
    with open_operations() as operations:
        tables = sum(operations.release_job(job_id).tables for job_id in job_ids)
    print_message(f"Released {tables} tables.")


@jobs.command("pause")
@click.argument("job_id", type=ID)
def pause_job(job_id: int) -> None:
    """Pause a job: no further tasks start."""
    with open_operations() as operations:
        operations.pause_job(job_id)
    print_message(f"Job {job_id} paused. Resume it with: aaiclick jobs resume {job_id}")


@jobs.command("resume")
@click.argument("job_id", type=ID)
def resume_job(job_id: int) -> None:
    """Resume a paused job."""
    with open_operations() as operations:
        operations.resume_job(job_id)
    print_message(f"Job {job_id} resumed.")


async def find_job(connection: Connection, job_id: int) -> asyncpg.Record:
    row = await queries.get_job(connection, job_id)
    if row is None:
        raise NotFoundError(f"There is no job {job_id}.", remedy="'aaiclick jobs ls' lists the jobs.")
    return row


def job_row(row: Row) -> dict[str, object]:
    """Format a job as a table row."""
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "status": row["status"],
        "tasks": f"{row['total_tasks'] - row['open_tasks']}/{row['total_tasks']}",
        "failed": row["failed_tasks"],
        "created": format_time(row["created_at"]),
        "duration": format_duration(queries.last_run_started_at(row), row["completed_at"]),
        "error": error_headline(row["error"]),
    }


def job_json(row: Row) -> dict[str, Any]:
    """Format a job as JSON."""
    return select_fields(row, JSON_FIELDS) | {
        "took_seconds": elapsed_seconds(queries.last_run_started_at(row), row["completed_at"])
    }


def _group_json(row: Row) -> dict[str, object]:
    """Format the progress of a group as JSON; tasks without a group have no name."""
    return {"name": row["name"] or None, **_group_counts(row), "rows": row["rows"], "seconds": row["seconds"]}


def _group_counts(row: Row) -> dict[str, object]:
    return {name: row[name] for name in ("total", "completed", "running", "failed", "cancelled")}


def format_row_rate(row: Any) -> str:
    """Format the processed rows and rate of a group's chunks; empty if it has no chunks."""
    if row["rows"] is None:
        return ""
    rate = f" ({row['rows'] / row['seconds']:,.0f}/s)" if row["seconds"] else ""
    return f"{row['rows']:,}{rate}"
