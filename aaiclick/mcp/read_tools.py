"""Tools that change nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

from aaiclick.api.datasets import LineageDirection
from aaiclick.api.field_types import TaskState
from aaiclick.api.tasks import Task
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.mcp.tool_results import NOTICE, Answer, Id, parse_id

MAX_ITEMS = 50
MAX_SCANNED = 500
MAX_HOURS = 24.0 * 365 * 10
MAX_ROWS = 200
QUERY_SECONDS = 30.0
LOG_BYTES = 200_000
CONTEXT_LINES = 30
ERROR_MARKS = ("Traceback (most recent call last)", "ERROR", "CRITICAL", "Error:")


def list_failures(operations: SyncEndpoints, hours: float = 24.0) -> Answer:
    """List what failed recently: jobs, and dead letters grouped by error. Start here."""
    since = datetime.now(UTC) - timedelta(hours=min(max(hours, 0.0), MAX_HOURS))
    failed = islice(operations.list_jobs(status="FAILED"), MAX_SCANNED)
    jobs = [job for job in failed if job.completed_at is None or job.completed_at >= since]
    return {
        "jobs": jobs[:MAX_ITEMS],
        "dead_letters_by_error": operations.group_dead_letters()[:MAX_ITEMS],
        "next": "explain_failure(job_id) for a job; list_dead_letters(fingerprint) for a group.",
    }


def explain_failure(operations: SyncEndpoints, job_id: Id) -> Answer:
    """Explain why a job failed: its first failed tasks with errors and attempts, and how many tasks they stopped."""
    tasks = list(islice(operations.list_tasks(parse_id(job_id)), MAX_SCANNED))
    failed = [task for task in tasks if task.status in ("FAILED", "DEAD_LETTER")]
    first = sorted(failed, key=lambda task: (task.completed_at or task.created_at, task.id))
    return {
        "job": operations.get_job(parse_id(job_id)),
        "first_failed_tasks": [operations.get_task(task.id) for task in first[:3]],
        "other_failed_tasks": [summarize(task) for task in first[3:MAX_ITEMS]],
        "cancelled_because_of_them": sum(task.status == "CANCELLED" for task in tasks),
        "notice": NOTICE,
        "next": "read_log(task_id) shows the log around the error.",
    }


def summarize(task: Task) -> Answer:
    return {"id": task.id, "type": task.type, "status": task.status, "error": (task.error or "")[-300:]}


def list_dead_letters(operations: SyncEndpoints, fingerprint: str | None = None) -> Answer:
    """List dead letters, newest first, all or those with one error fingerprint."""
    letters = list(islice(operations.list_dead_letters(fingerprint=fingerprint), MAX_ITEMS))
    return {"dead_letters": letters, "notice": NOTICE}


def explain_task(operations: SyncEndpoints, task_id: Id) -> Answer:
    """Explain the state of a task: why it waits, or how its attempts ended."""
    return {
        "task": operations.get_task(parse_id(task_id)),
        "why": operations.explain_task(parse_id(task_id)),
        "notice": NOTICE,
    }


def list_tasks(operations: SyncEndpoints, job_id: Id, status: TaskState | None = None) -> Answer:
    """List the tasks of a job, all or those with a status such as PENDING, RUNNING, FAILED or CANCELLED."""
    tasks = islice(operations.list_tasks(parse_id(job_id), status=status), MAX_ITEMS)
    return {"tasks": [summarize(task) for task in tasks], "progress": operations.get_job_progress(parse_id(job_id))}


def read_log(operations: SyncEndpoints, task_id: Id, lines: int = CONTEXT_LINES) -> Answer:
    """Read the log of a task around its last error, or its end if there is no error in it."""
    log = operations.read_task_log(parse_id(task_id), limit=LOG_BYTES)
    text = log.text.splitlines()
    marked = [n for n, line in enumerate(text) if any(mark in line for mark in ERROR_MARKS)]
    center = marked[-1] if marked else len(text)
    shown = text[max(0, center - lines) : center + lines]
    return {"task_id": str(task_id), "lines": len(text), "log": "\n".join(shown), "notice": NOTICE}


def list_datasets(operations: SyncEndpoints) -> Answer:
    """List the datasets that the caller may read, with their rows and last updates."""
    return {"datasets": operations.list_datasets()}


def describe_dataset(operations: SyncEndpoints, name: str) -> Answer:
    """Describe a dataset: columns, generations, and the latest tasks that wrote it."""
    return {"dataset": operations.get_dataset(name)}


def get_lineage(operations: SyncEndpoints, name: str, direction: LineageDirection = "up") -> Answer:
    """Get the lineage of a dataset to the column: what it is made of (up), or what depends on it (down)."""
    return {"lineage": operations.get_lineage(name, direction)}


def query_datasets(operations: SyncEndpoints, sql: str, max_rows: int = 50) -> Answer:
    """Run a SELECT over datasets by their names. The statement is parsed; other statements are refused."""
    limit = min(max(1, max_rows), MAX_ROWS)
    result = operations.query_datasets(sql, max_rows=limit, seconds=QUERY_SECONDS)
    return {"rows": result, "notice": NOTICE}


def list_workers_and_queues(operations: SyncEndpoints) -> Answer:
    """List running workers and queues with their waiting and running tasks, limits and pauses."""
    workers = [worker for worker in islice(operations.list_workers(), MAX_SCANNED) if worker.stopped_at is None]
    return {"workers": workers[:MAX_ITEMS], "queues": operations.list_queues()[:MAX_ITEMS]}


def list_schedules(operations: SyncEndpoints) -> Answer:
    """List schedules with their next times and last runs."""
    return {"schedules": list(islice(operations.list_schedules(), MAX_ITEMS))}


def plan_deploy(operations: SyncEndpoints, dag_yaml: str) -> Answer:
    """Validate a DAG file and show what its deployment would change. Nothing is deployed."""
    return {"dag": operations.validate_dag(dag_yaml), "changes": operations.diff_dag(dag_yaml)}


READ_TOOLS = (
    list_failures, explain_failure, list_dead_letters, explain_task, list_tasks, read_log, list_datasets,
    describe_dataset, get_lineage, query_datasets, list_workers_and_queues, list_schedules, plan_deploy,
)  # fmt: skip
