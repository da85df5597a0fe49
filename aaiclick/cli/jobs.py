"""`aaiclick jobs`: list and manage jobs."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

import click

from aaiclick.api.field_types import JobState
from aaiclick.api.jobs import GroupProgress, Job
from aaiclick.cli.database import elapsed_seconds, error_headline, format_duration, format_time
from aaiclick.cli.operations import open_operations
from aaiclick.cli.output import Row, describe_cancellation, output_option, print_message, print_record, print_records
from aaiclick.cli.param_types import CURSOR_ID, ID
from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.client.requests import encode_cursor
from aaiclick.errors import EXIT_FAILED
from aaiclick.store.enums import Cancellation, JobStatus


@click.group()
def jobs() -> None:
    """List, show, cancel, retry and release jobs."""


@jobs.command("ls")
@click.option("--status", type=click.Choice([status.value for status in JobStatus], case_sensitive=False),
              help="Only jobs in this state.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number of rows.")
@click.option("--before", type=CURSOR_ID, default=None, help="Continue a listing after this id.")
@output_option
def list_jobs(status: JobState | None, limit: int, before: int | None, output: str) -> None:
    """List jobs, newest first."""
    with open_operations() as operations:
        listing = operations.list_jobs(status=status, cursor=encode_cursor(before or None), limit=min(limit, PAGE_SIZE))
        listed = list(islice(listing, limit))
    to_record = job_json if output == "json" else job_row
    nothing = "No matching jobs found." if status or before else "No jobs found."
    print_records([to_record(job) for job in listed], output, empty_message=nothing)
    if len(listed) == limit:
        print_message(f"More: --before {listed[-1].id}")


@jobs.command("show")
@click.argument("job_id", type=ID)
@output_option
def show_job(job_id: int, output: str) -> None:
    """Show a job and the progress of its groups."""
    with open_operations() as operations:
        job, progress = operations.get_job(job_id), operations.get_job_progress(job_id)
    if output == "json":
        print_record(job_json(job) | {"groups": [group.model_dump(mode="json") for group in progress]}, output)
        return
    print_record(job_row(job), output)
    click.echo()
    print_records([_group_row(group) for group in progress], output)
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


@jobs.command("rerun")
@click.argument("job_id", type=ID)
def rerun_job(job_id: int) -> None:
    """Submit the tasks and arguments of a job as a new job."""
    with open_operations() as operations:
        created = operations.rerun_job(job_id)
    print_message(f"Job {created.id} submitted. Show it with: aaiclick jobs show {created.id}")


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


def job_row(job: Job) -> Row:
    """Format a job as a table row."""
    return {
        "id": str(job.id),
        "name": job.name,
        "status": job.status,
        "tasks": f"{job.total_tasks - job.open_tasks}/{job.total_tasks}",
        "failed": job.failed_tasks,
        "created": format_time(job.created_at),
        "duration": format_duration(_last_run_started_at(job), job.completed_at),
        "error": error_headline(job.error),
    }


def job_json(job: Job) -> dict[str, Any]:
    """Format a job as JSON."""
    took_seconds = elapsed_seconds(_last_run_started_at(job), job.completed_at)
    return job.model_dump(mode="json") | {"took_seconds": took_seconds}


def _last_run_started_at(job: Job) -> datetime | None:
    """When the last run began: the restart, if there was one, so that idle time does not count."""
    return max(job.started_at, job.restarted_at) if job.started_at and job.restarted_at else job.started_at


def _group_row(group: GroupProgress) -> Row:
    counts = {name: getattr(group, name) for name in ("total", "completed", "running", "failed", "cancelled")}
    return {"group": group.group or "-", **counts, "rows": format_row_rate(group.rows, group.seconds)}


def format_row_rate(rows: int | None, seconds: float | None) -> str:
    """Format the processed rows and rate of a group's chunks; empty if it has no chunks."""
    if rows is None:
        return ""
    return f"{rows:,}" + (f" ({rows / seconds:,.0f}/s)" if seconds else "")
