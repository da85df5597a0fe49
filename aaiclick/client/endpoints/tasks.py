"""Endpoints of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aaiclick.api.field_types import ChangedIdsResponse, CreatedIdsResponse, Page, TaskState
from aaiclick.api.tasks import CancelResponse, Task, TaskDetail, TaskLog, WaitReason
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class TaskEndpoints:
    """Methods for tasks."""

    @endpoint
    def enqueue(self, items: Sequence[Mapping[str, object]]) -> ApiRequest[CreatedIdsResponse]:
        """Enqueue items atomically; each has a `type` and optionally a `payload` and more."""
        return build_request("POST", CreatedIdsResponse, "tasks", body={"items": list(items)}, idempotent=True)

    @listing
    def list_tasks(
        self,
        job_id: int | None = None,
        *,
        status: TaskState | None = None,
        type: str | None = None,  # noqa: A002  (the column's name)
        queue: str | None = None,
        idempotency_key: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> ApiRequest[Page[Task]]:
        """Iterate over the tasks of a job in order, or over all tasks, newest first."""
        query = {
            "job_id": job_id, "status": status, "type": type, "queue": queue, "idempotency_key": idempotency_key,
            "cursor": cursor, "limit": limit,
        }  # fmt: skip
        return build_request("GET", Page[Task], "tasks", query=query)

    @endpoint
    def get_task(self, task_id: int) -> ApiRequest[TaskDetail]:
        """Get a task with its arguments, result and unsuccessful attempts."""
        return build_request("GET", TaskDetail, "tasks", task_id)

    @endpoint
    def explain_task(self, task_id: int) -> ApiRequest[list[WaitReason]]:
        """Explain why a task is not running."""
        return build_request("GET", list[WaitReason], "tasks", task_id, "why")

    @endpoint
    def read_task_log(self, task_id: int, *, offset: int = 0, limit: int = 1_000_000) -> ApiRequest[TaskLog]:
        """Read a part of a task's log, in bytes; a negative offset counts from the end."""
        return build_request("GET", TaskLog, "tasks", task_id, "log", query={"offset": offset, "limit": limit})

    @endpoint
    def cancel_task(self, task_id: int) -> ApiRequest[CancelResponse]:
        """Cancel a task; the outcomes are those of `cancel_job`."""
        return build_request("POST", CancelResponse, "tasks", task_id, "cancel")

    @endpoint
    def clear_task(self, task_id: int, also: Sequence[int] = ()) -> ApiRequest[ChangedIdsResponse]:
        """Run a task and its dependents again, and the tasks `also` of its job."""
        query = {"also": [str(other_id) for other_id in also]}
        return build_request("POST", ChangedIdsResponse, "tasks", task_id, "clear", query=query)
