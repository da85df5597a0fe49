"""Tools that change something, in two steps: the first call returns a plan and a token, the second performs it.

The operations write the audit entries. A session has a budget of changes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aaiclick.api.dead_letters import RedriveRequest
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.errors import ConflictError
from aaiclick.mcp.answers import Id

Answer = dict[str, object]
TOKEN_SECONDS = 600.0


@dataclass
class Confirmations:
    """Plans of this session that wait for their confirmation, and the number of changes that are left."""

    budget: int
    _plans: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])

    def perform(self, plan: str, confirm: str, change: Callable[[], object]) -> Answer:
        """Perform a change if `confirm` is the unused token of the same plan; otherwise return the plan and a token."""
        if not confirm:
            token = secrets.token_hex(8)
            self._plans[token] = (plan, time.monotonic() + TOKEN_SECONDS)
            return {"plan": plan, "confirm": token, "next": "Show the plan; call again with this token to perform it."}
        planned, expires_at = self._plans.pop(confirm, ("", 0.0))
        if planned != plan or time.monotonic() > expires_at:
            raise ConflictError(
                "The token does not belong to this call, was used, or has expired.",
                remedy="Call the tool without 'confirm' to get a new plan and token.",
            )
        if self.budget <= 0:
            raise ConflictError(
                "The changes of this session are used up.", remedy="A person can restart 'aaiclick mcp --allow'."
            )
        self.budget -= 1
        return {"done": plan, "result": change(), "changes_left": self.budget}


def retry_job(operations: SyncEndpoints, confirmations: Confirmations, job_id: Id, confirm: str = "") -> Answer:
    """Retry the failed tasks of a job."""
    job = operations.get_job(int(job_id))
    plan = f"Retry {job.failed_tasks} failed tasks of job {job_id} ({job.name}), and what they stopped."
    return confirmations.perform(plan, confirm, lambda: operations.retry_job(int(job_id)))


def cancel_job(operations: SyncEndpoints, confirmations: Confirmations, job_id: Id, confirm: str = "") -> Answer:
    """Cancel a job with all its unfinished tasks."""
    job = operations.get_job(int(job_id))
    plan = f"Cancel job {job_id} ({job.name})."
    return confirmations.perform(plan, confirm, lambda: operations.cancel_job(int(job_id)))


def clear_task(operations: SyncEndpoints, confirmations: Confirmations, task_id: Id, confirm: str = "") -> Answer:
    """Run a finished task again, with all tasks that depend on it."""
    task = operations.get_task(int(task_id))
    plan = f"Run task {task_id} ({task.type}) and its dependents again."
    return confirmations.perform(plan, confirm, lambda: operations.clear_task(int(task_id)))


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
    """Deploy a DAG file. The plan lists its changes."""
    changes = operations.diff_dag(dag_yaml)
    plan = f"Deploy the DAG {operations.validate_dag(dag_yaml).name} with {len(changes)} changes: " + "; ".join(
        f"{change}" for change in changes
    )
    return confirmations.perform(plan, confirm, lambda: operations.deploy_dag(dag_yaml))


WRITE_TOOLS = (retry_job, cancel_job, clear_task, redrive_dead_letters, deploy_dag)
