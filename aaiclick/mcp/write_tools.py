"""Tools that change something, in two steps: the first call returns a plan and a token, the second performs it.

The operations write the audit entries.
"""

from __future__ import annotations

import hashlib

from aaiclick.api.dead_letters import RedriveRequest
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.mcp.confirmations import Confirmations
from aaiclick.mcp.tool_results import Answer, Id, parse_id

DIGEST_DIGITS = 32


def retry_job(operations: SyncEndpoints, confirmations: Confirmations, job_id: Id, confirm: str = "") -> Answer:
    """Retry the failed tasks of a job."""
    job = operations.get_job(parse_id(job_id))
    plan = f"Retry {job.failed_tasks} failed tasks of job {job_id} ({job.name}), and what they stopped."
    return confirmations.perform(plan, confirm, lambda: operations.retry_job(parse_id(job_id)))


def cancel_job(operations: SyncEndpoints, confirmations: Confirmations, job_id: Id, confirm: str = "") -> Answer:
    """Cancel a job with all its unfinished tasks."""
    job = operations.get_job(parse_id(job_id))
    plan = f"Cancel job {job_id} ({job.name})."
    return confirmations.perform(plan, confirm, lambda: operations.cancel_job(parse_id(job_id)))


def clear_task(operations: SyncEndpoints, confirmations: Confirmations, task_id: Id, confirm: str = "") -> Answer:
    """Run a finished task again, with all tasks that depend on it."""
    task = operations.get_task(parse_id(task_id))
    plan = f"Run task {task_id} ({task.type}) and its dependents again."
    return confirmations.perform(plan, confirm, lambda: operations.clear_task(parse_id(task_id)))


def redrive_dead_letters(
    operations: SyncEndpoints, confirmations: Confirmations, fingerprint: str, confirm: str = ""
) -> Answer:
    """Run the dead letters with one error fingerprint again."""
    groups = operations.group_dead_letters()
    count = sum(group.count for group in groups if group.fingerprint == fingerprint)
    plan = f"Redrive {count} dead letters with the error {fingerprint}."
    selection = RedriveRequest(fingerprint=fingerprint)
    return confirmations.perform(plan, confirm, lambda: operations.redrive_dead_letters(selection))


def deploy_dag(operations: SyncEndpoints, confirmations: Confirmations, dag_yaml: str, confirm: str = "") -> Answer:
    """Deploy a DAG file. The plan lists its changes; they are shortened, so it also has the digest of the text."""
    changes = operations.diff_dag(dag_yaml)
    digest = hashlib.sha256(dag_yaml.encode()).hexdigest()[:DIGEST_DIGITS]
    plan = (
        f"Deploy the DAG {operations.validate_dag(dag_yaml).name} (SHA-256 of its text: {digest}…) "
        f"with {len(changes)} changes: " + "; ".join(f"{change}" for change in changes)
    )
    return confirmations.perform(plan, confirm, lambda: operations.deploy_dag(dag_yaml))


WRITE_TOOLS = (retry_job, cancel_job, clear_task, redrive_dead_letters, deploy_dag)
