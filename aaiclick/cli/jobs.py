"""`aaiclick jobs`: list and manage jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from aaiclick.api.field_types import JobState
from aaiclick.api.jobs import GroupProgress, Job, JobTreeNode
from aaiclick.cli.database import elapsed_seconds, error_headline, format_duration, format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import Row, describe_cancellation, output_option, print_message, print_record, print_records
from aaiclick.cli.param_types import ARGUMENT, CURSOR_ID, JOB_ID
from aaiclick.cli.remote import PAGE_SIZE, find_waiting_task
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.client.requests import encode_cursor
from aaiclick.errors import EXIT_FAILED
from aaiclick.lazy_modules import LazyModule
from aaiclick.store.enums import Cancellation, JobStatus

if TYPE_CHECKING:
    from aaiclick.orchestration import job_labels
else:  # the Python API of jobs: other commands import this module
    job_labels = LazyModule("aaiclick.orchestration.job_labels")

MAX_EXPLAINED = 20


@click.group()
def jobs() -> None:
    """List, show, cancel, retry and release jobs.

    Ids may be shortened to their first digits.

    \b
    aaiclick jobs ls --status FAILED
    aaiclick jobs show 3814059377
    aaiclick jobs retry 3814059377
    """


@jobs.command("ls")
@click.option("--status", type=click.Choice([status.value for status in JobStatus], case_sensitive=False),
              help="Only jobs in this state.")  # fmt: skip
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only jobs with this tag; may be repeated.")
@click.option("--owner", default=None, help="Only jobs of this owner.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number of rows.")
@click.option("--before", type=CURSOR_ID, default=None, help="Continue a listing after this id.")
@output_option
def list_jobs(
    status: JobState | None, tags: tuple[str, ...], owner: str | None, limit: int, before: int | None, output: str
) -> None:
    """List jobs, newest first, and why they failed or wait."""
    cursor = encode_cursor(before or None)
    with open_operations() as operations:
        listing = operations.list_jobs(
            status=status, tags=job_labels.parse_tags(tags), owner=owner, cursor=cursor, limit=min(limit, PAGE_SIZE)
        )
        listed = list(islice(listing, limit))
        reasons = {} if output == "json" else _explain_waiting(operations, listed)
    nothing = "No matching jobs found." if status or tags or owner or before else "No jobs found."
    records = [job_json(job) if output == "json" else _listed_row(job, reasons.get(job.id, "")) for job in listed]
    print_records(records, output, empty_message=nothing)
    if len(listed) == limit:
        print_message(f"More: --before {listed[-1].id}")


def _explain_waiting(operations: SyncEndpoints, listed: Sequence[Job]) -> dict[int, str]:
    """Why nothing runs in jobs that have not ended, by job; of the first MAX_EXPLAINED ones."""
    reasons: dict[int, str] = {}
    for job in [job for job in listed if job.completed_at is None][:MAX_EXPLAINED]:
        if job.paused_at is not None:
            reasons[job.id] = "paused"
        elif next(operations.list_tasks(job.id, status="RUNNING", limit=1), None) is None:
            task = find_waiting_task(operations, job.id)
            explained = [] if task is None else operations.explain_task(task.id)
            reasons[job.id] = "; ".join(reason.text.partition("\n")[0] for reason in explained)
    return reasons


def _listed_row(job: Job, reason: str) -> Row:
    row = job_row(job)
    return {name: value for name, value in row.items() if name != "error"} | {"why": row["error"] or reason}


@jobs.command("show")
@click.argument("job_id", type=JOB_ID)
@output_option
def show_job(job_id: int, output: str) -> None:
    """Show a job and the progress of its groups."""
    with open_operations() as operations:
        job, progress, tree = (
            operations.get_job(job_id), operations.get_job_progress(job_id), operations.get_job_tree(job_id),
        )  # fmt: skip
    if output == "json":
        groups = [group.model_dump(mode="json") for group in progress]
        children = [child.model_dump(mode="json") for child in tree[1:]]
        print_record(job_json(job) | {"groups": groups, "children": children}, output)
        return
    print_record(job_row(job) | _label_row(job), output)
    click.echo()
    print_records([_group_row(group) for group in progress], output)
    if job.parent_task_id is not None:
        print_message(f"Child of job {job.parent_job_id or '–'}, submitted by task {job.parent_task_id}.")
    if len(tree) > 1:
        click.echo()
        print_records([_tree_row(node) for node in tree], output)
    print_message(f"List its tasks with: aaiclick tasks ls {job_id}. Show a result with: aaiclick tasks show TASK.")


@jobs.command("cancel")
@click.argument("job_ids", type=JOB_ID, nargs=-1, required=True)
def cancel_jobs(job_ids: tuple[int, ...]) -> int:
    """Cancel jobs: waiting tasks are cancelled at once, running ones are asked to stop."""
    with open_operations() as operations:
        outcomes = [operations.cancel_job(job_id).outcome for job_id in job_ids]
    for job_id, outcome in zip(job_ids, outcomes, strict=True):
        print_message(describe_cancellation(f"Job {job_id}", outcome))
    return EXIT_FAILED if Cancellation.OVER in outcomes else 0


@jobs.command("retry")
@click.argument("job_id", type=JOB_ID)
def retry_job(job_id: int) -> None:
    """Retry the failed tasks of a job and the tasks cancelled because of them."""
    with open_operations() as operations:
        count = operations.retry_job(job_id).count
    print_message(
        f"{count} {'task' if count == 1 else 'tasks'} of job {job_id} will be retried."
        if count
        else f"No task of job {job_id} has failed."
    )


@jobs.command("rerun")
@click.argument("job_id", type=JOB_ID)
@click.option("--arg", "pairs", type=ARGUMENT, multiple=True, metavar="NAME=VALUE",
              help="Run its function with this argument changed; VALUE is JSON or plain text.")  # fmt: skip
def rerun_job(job_id: int, pairs: tuple[tuple[str, object], ...]) -> None:
    """Submit the tasks and arguments of a job as a new job."""
    with open_operations() as operations:
        created = operations.rerun_job(job_id, arguments=dict(pairs) or None)
    print_message(f"Job {created.id} submitted. Show it with: aaiclick jobs show {created.id}")


@jobs.command("release")
@click.argument("job_ids", type=JOB_ID, nargs=-1, required=True)
def release_results(job_ids: tuple[int, ...]) -> None:
    """Release the results of finished jobs: their tables are dropped unless they are referenced elsewhere."""
    with open_operations() as operations:
        tables = sum(operations.release_job(job_id).tables for job_id in job_ids)
    print_message(f"Released {tables} tables.")


@jobs.command("pause")
@click.argument("job_id", type=JOB_ID)
def pause_job(job_id: int) -> None:
    """Pause a job: no further tasks start."""
    with open_operations() as operations:
        operations.pause_job(job_id)
    print_message(f"Job {job_id} paused. Resume it with: aaiclick jobs resume {job_id}")


@jobs.command("resume")
@click.argument("job_id", type=JOB_ID)
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


def _label_row(job: Job) -> Row:
    return {
        "tags": ", ".join(f"{name}={value}" for name, value in job.tags.items()),
        "owner": job.owner or "",
        "code version": ", ".join(job.code_versions or []),
    }


def job_json(job: Job) -> dict[str, Any]:
    """Format a job as JSON."""
    took_seconds = elapsed_seconds(_last_run_started_at(job), job.completed_at)
    return job.model_dump(mode="json") | {"took_seconds": took_seconds}


def _last_run_started_at(job: Job) -> datetime | None:
    """When the last run began: the restart, if there was one, so that idle time does not count."""
    return max(job.started_at, job.restarted_at) if job.started_at and job.restarted_at else job.started_at


def _tree_row(node: JobTreeNode) -> Row:
    return {
        "job": "  " * node.depth + node.name,
        "id": str(node.id),
        "status": node.status,
        "submitted by task": str(node.parent_task_id or "–"),
        "duration": format_duration(node.created_at, node.completed_at),
    }


def _group_row(group: GroupProgress) -> Row:
    counts = {name: getattr(group, name) for name in ("total", "completed", "running", "failed", "cancelled")}
    return {"group": group.group or "-", **counts, "rows": format_row_rate(group.rows, group.seconds)}


def format_row_rate(rows: int | None, seconds: float | None) -> str:
    """Format the processed rows and rate of a group's chunks; empty if it has no chunks."""
    if rows is None:
        return ""
    return f"{rows:,}" + (f" ({rows / seconds:,.0f}/s)" if seconds else "")
