"""Endpoints of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType

from aaiclick.api.field_types import ChangedIdsResponse, CreatedResponse, JobState, Page
from aaiclick.api.jobs import GroupProgress, Job, JobEvent, JobResult, JobTreeNode, ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.client.endpoint_decorators import endpoint, listing
from aaiclick.client.requests import ApiRequest, build_request


class JobEndpoints:
    """Methods for jobs."""

    @endpoint
    def create_job(
        self,
        name: str,
        entrypoint: str | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        tasks: Sequence[Mapping[str, object]] | None = None,
        groups: Sequence[Mapping[str, object]] | None = None,
        **options: object,
    ) -> ApiRequest[CreatedResponse]:
        """Submit a job: one entry point, or a graph of `tasks` and `groups`."""
        body: dict[str, object] = {"name": name, **options}
        if entrypoint is not None:
            body |= {"entrypoint": entrypoint, "kwargs": dict(kwargs or {})}
        if tasks is not None:
            body |= {"tasks": list(tasks), "groups": list(groups or ())}
        return build_request("POST", CreatedResponse, "jobs", body=body, idempotent=True)

    @listing
    def list_jobs(
        self,
        *,
        status: JobState | None = None,
        tags: Mapping[str, str] | None = None,
        owner: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> ApiRequest[Page[Job]]:
        """Iterate over jobs, newest first; with all of the tags and this owner."""
        tag = [f"{name}={value}" for name, value in (tags or {}).items()] or None
        query = {"status": status, "tag": tag, "owner": owner, "cursor": cursor, "limit": limit}
        return build_request("GET", Page[Job], "jobs", query=query)

    @endpoint
    def get_job(self, job_id: int) -> ApiRequest[Job]:
        """Get a job."""
        return build_request("GET", Job, "jobs", job_id)

    @endpoint
    def get_job_tree(self, job_id: int) -> ApiRequest[list[JobTreeNode]]:
        """Get a job with the child jobs below it, each after its parent."""
        return build_request("GET", list[JobTreeNode], "jobs", job_id, "tree")

    @endpoint
    def get_job_progress(self, job_id: int) -> ApiRequest[list[GroupProgress]]:
        """Get the progress of each group of a job."""
        return build_request("GET", list[GroupProgress], "jobs", job_id, "progress")

    @endpoint
    def get_job_results(self, job_id: int, *, after: int = 0) -> ApiRequest[list[JobResult]]:
        """Get up to 100 results of tasks of a job without dependents, after the task `after`; none is the end."""
        return build_request("GET", list[JobResult], "jobs", job_id, "results", query={"after": after or None})

    @endpoint
    def list_job_events(self, job_id: int) -> ApiRequest[list[JobEvent]]:
        """List the events of a job: start, unsuccessful attempts, end."""
        return build_request("GET", list[JobEvent], "jobs", job_id, "events")

    @endpoint
    def cancel_job(self, job_id: int) -> ApiRequest[CancelResponse]:
        """Cancel a job; the outcome is "cancelled", "requested" if a task still runs, or "over" if it had finished."""
        return build_request("POST", CancelResponse, "jobs", job_id, "cancel")

    @endpoint
    def retry_job(self, job_id: int, *, cancelled: bool = False) -> ApiRequest[ChangedIdsResponse]:
        """Retry the failed tasks of a job; with `cancelled` all cancelled ones too."""
        query = {"cancelled": cancelled or None}
        return build_request("POST", ChangedIdsResponse, "jobs", job_id, "retry", query=query)

    @endpoint
    def release_job(self, job_id: int) -> ApiRequest[ReleasedTablesResponse]:
        """Release the results of a finished job."""
        return build_request("POST", ReleasedTablesResponse, "jobs", job_id, "release")

    @endpoint
    def rerun_job(self, job_id: int, *, arguments: Mapping[str, object] | None = None) -> ApiRequest[CreatedResponse]:
        """Submit the tasks and arguments of a job as a new job; with `arguments`, its function with these changes."""
        body = {"arguments": dict(arguments or {})}
        return build_request("POST", CreatedResponse, "jobs", job_id, "rerun", body=body)

    @endpoint
    def pause_job(self, job_id: int) -> ApiRequest[None]:
        """Pause a job: no further task starts."""
        return build_request("POST", NoneType, "jobs", job_id, "pause")

    @endpoint
    def resume_job(self, job_id: int) -> ApiRequest[None]:
        """Resume a paused job."""
        return build_request("POST", NoneType, "jobs", job_id, "resume")
