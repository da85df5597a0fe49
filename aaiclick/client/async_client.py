"""Asynchronous client of the HTTP API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from aaiclick.api.field_types import ChangedIdsResponse
from aaiclick.api.jobs import ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.api.workers import LimitsRequest, RetryPolicyRequest
from aaiclick.client import requests
from aaiclick.client.requests import ApiRequest
from aaiclick.errors import SettingsError, UnansweredError, UnreachableError
from aaiclick.settings import get_settings

MAX_ATTEMPTS = 3
"""Attempts per request if the connection breaks; requests that create something carry an Idempotency-Key."""

PAUSE_SECONDS = 0.3
POLL_SECONDS = 0.5
EXPORT_READ_SECONDS = 600.0
"""Read timeout of an export: some formats are written a million rows at a time."""


class AsyncClient:
    """Client of one server; `url` and `key` default to AAICLICK_SERVER and AAICLICK_API_KEY.

    async with AsyncClient() as client:
        async for job in client.jobs(status="FAILED"):
            print(job["name"])
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout_seconds: float = 60.0) -> None:
        settings = get_settings()
        server_url = url or settings.server
        if server_url is None:
            raise SettingsError("No server is configured.", remedy="Pass its URL, or set AAICLICK_SERVER.")
        secret = key or (settings.api_key.get_secret_value() if settings.api_key else None)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._url = server_url
        self._seconds = timeout_seconds
        self._http = httpx.AsyncClient(base_url=server_url, headers=headers, timeout=timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(self, call: ApiRequest, *, timeout_seconds: float | None = None) -> Any:
        """Send one request; return the JSON of the response, or raise the error of its problem code."""
        limit = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
        for attempt in range(MAX_ATTEMPTS):
            try:
                response = await self._http.request(
                    call.method, call.path, params=dict(call.query), json=call.body, headers=dict(call.headers),
                    timeout=limit,
                )  # fmt: skip
            except httpx.TransportError as error:
                if attempt == MAX_ATTEMPTS - 1 or not _is_repeatable(call):
                    raise self._unreachable_error(error) from error
            else:
                return _decode_response(response)
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError("unreachable")

    def _unreachable_error(self, error: Exception) -> UnreachableError:
        error_class = UnansweredError if isinstance(error, httpx.TimeoutException) else UnreachableError
        return error_class(
            f"The server at {self._url} does not answer: {error or type(error).__name__}.",
            remedy="Check AAICLICK_SERVER, and that 'aaiclick server start' or 'aaiclick up' runs there.",
        )

    async def pages(self, call: ApiRequest) -> AsyncGenerator[dict[str, Any]]:
        """Iterate over all items of a listing, page by page."""
        while True:
            page: dict[str, Any] = await self.call(call)
            for item in page["items"]:
                yield item
            if page["next"] is None:
                return
            call = ApiRequest(call.method, call.path, {**call.query, "cursor": page["next"]})

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def create_job(
        self,
        name: str,
        entrypoint: str | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        tasks: Sequence[Mapping[str, object]] | None = None,
        groups: Sequence[Mapping[str, object]] | None = None,
        **options: object,
    ) -> int:
        """Submit a job: one entry point, or a graph of `tasks` and `groups`; returns its id."""
        answer = await self.call(requests.create_job(name, entrypoint, kwargs, tasks, groups, options))
        return int(answer["id"])

    async def get_job(self, job_id: int) -> dict[str, Any]:
        return await self.call(requests.get(requests.build_path("jobs", job_id)))

    def jobs(self, status: str | None = None, *, limit: int = 100) -> AsyncGenerator[dict[str, Any]]:
        """Iterate over jobs, newest first; `limit` is the page size."""
        return self.pages(requests.get("/v1/jobs", status=status, limit=limit))

    async def cancel_job(self, job_id: int) -> CancelResponse:
        """Cancel a job; the outcome is "cancelled", "requested" if a task still runs, or "over" if it had finished."""
        return CancelResponse(**await self.call(requests.post(requests.build_path("jobs", job_id, "cancel"))))

    async def retry_job(self, job_id: int, *, cancelled: bool = False) -> ChangedIdsResponse:
        """Retry the failed tasks of a job; with `cancelled` all cancelled ones too."""
        request = requests.post(requests.build_path("jobs", job_id, "retry"), cancelled=cancelled or None)
        return ChangedIdsResponse(**await self.call(request))

    async def release_job(self, job_id: int) -> ReleasedTablesResponse:
        """Release the results of a finished job."""
        return ReleasedTablesResponse(**await self.call(requests.post(requests.build_path("jobs", job_id, "release"))))

    async def pause_job(self, job_id: int) -> None:
        """Pause a job: no further task starts."""
        await self.call(requests.post(requests.build_path("jobs", job_id, "pause")))

    async def resume_job(self, job_id: int) -> None:
        """Resume a paused job."""
        await self.call(requests.post(requests.build_path("jobs", job_id, "resume")))

    async def wait_for_job(self, job_id: int) -> dict[str, Any]:
        """Wait until a job has finished and return it."""
        while True:
            job = await self.get_job(job_id)
            if job["status"] in requests.ENDED:
                return job
            await asyncio.sleep(POLL_SECONDS)

    async def job_results(self, job_id: int) -> list[dict[str, str]]:
        """Return `task_id`, `name` and `value` (as text) of the tasks of a job without dependents."""
        return await self.call(requests.get(requests.build_path("jobs", job_id, "results")))

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def enqueue(self, items: Sequence[Mapping[str, object]]) -> list[int]:
        """Enqueue items atomically; each has a `type` and optionally a `payload` and more. Returns the task ids."""
        answer = await self.call(requests.post("/v1/tasks", {"items": list(items)}, idempotent=True))
        return [int(task_id) for task_id in answer["ids"]]

    async def get_task(self, task_id: int) -> dict[str, Any]:
        return await self.call(requests.get(requests.build_path("tasks", task_id)))

    def tasks(self, job_id: int | None = None, **filters: object) -> AsyncGenerator[dict[str, Any]]:
        """Iterate over the tasks of a job in order, or over all tasks, newest first."""
        return self.pages(requests.get("/v1/tasks", job_id=job_id, **filters))

    async def why(self, task_id: int) -> list[dict[str, str]]:
        """Explain why a task has not finished."""
        return await self.call(requests.get(requests.build_path("tasks", task_id, "why")))

    async def cancel_task(self, task_id: int) -> str:
        """Cancel a task; returns the same values as `cancel_job`."""
        return (await self.call(requests.post(requests.build_path("tasks", task_id, "cancel"))))["outcome"]

    async def clear_task(self, task_id: int, also: Sequence[int] = ()) -> int:
        """Run a task and its dependents again, and the tasks `also` of its job; returns how many."""
        call = requests.post(requests.build_path("tasks", task_id, "clear"), also=[str(other_id) for other_id in also])
        return int((await self.call(call))["count"])

    async def log(self, task_id: int, *, offset: int = 0, limit: int = 1_000_000) -> dict[str, Any]:
        """Return a part of a task's log: `text`, `next_offset`, `ended`."""
        return await self.call(requests.get(requests.build_path("tasks", task_id, "log"), offset=offset, limit=limit))

    # --- DAGs and datasets --------------------------------------------------------------------------------------------

    async def validate_dag(self, text: str, file: str = "dag.yaml") -> dict[str, Any]:
        """Validate a DAG file; returns its name and number of definitions, or raises all errors at once."""
        return await self.call(requests.post("/v1/dags/validate", {"text": text, "file": file}))

    async def diff_dag(self, text: str, file: str = "dag.yaml") -> list[dict[str, Any]]:
        """Return the changes that a deploy of the file would make."""
        return await self.call(requests.post("/v1/dags/diff", {"text": text, "file": file}))

    async def deploy_dag(self, text: str, file: str = "dag.yaml", *, resume: bool = False) -> dict[str, Any]:
        """Deploy a DAG file.

        If `job_id` is set, that job fills new datasets first: deploy again with `resume` when it has finished.
        """
        return await self.call(requests.post("/v1/dags/deploy", {"text": text, "file": file, "resume": resume}))

    async def dag_versions(self, dag: str | None = None) -> list[dict[str, Any]]:
        """Return the versions of a DAG, or of all DAGs, newest first."""
        return await self.call(
            requests.get("/v1/dags" if dag is None else requests.build_path("dags", dag, "versions"))
        )

    async def roll_back_dag(self, dag: str, to: str | None = None) -> dict[str, Any]:
        """Activate an older version: the one with the hash prefix `to`, or the previous one."""
        return await self.call(requests.post(requests.build_path("dags", dag, "rollback"), {"to": to}))

    async def pause_dag(self, dag: str) -> None:
        await self.call(requests.post(requests.build_path("dags", dag, "pause")))

    async def resume_dag(self, dag: str) -> int:
        """Resume a paused DAG; returns the number of tasks that were held."""
        return int((await self.call(requests.post(requests.build_path("dags", dag, "resume"))))["count"])

    async def backfill_dag(
        self, dag: str, first: str, last: str, job: str | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Run the missing times or partitions of a range; with `dry_run` only list them."""
        body = {"job": job, "first": first, "last": last, "dry_run": dry_run}
        return await self.call(requests.post(requests.build_path("dags", dag, "backfill"), body))

    async def run_dag(self, dag: str, job: str | None = None, payload: object = None) -> int:
        """Trigger a source of a DAG; returns the id of the job of the run."""
        body = {"job": job, "payload": payload}
        return int((await self.call(requests.post(requests.build_path("dags", dag, "run"), body)))["id"])

    async def datasets(self) -> list[dict[str, Any]]:
        return await self.call(requests.get("/v1/datasets"))

    async def get_dataset(self, name: str) -> dict[str, Any]:
        return await self.call(requests.get(requests.build_path("datasets", name)))

    async def lineage(self, name: str, direction: str = "up") -> dict[str, Any]:
        """Return the upstream or (`down`) downstream lineage of a dataset: `edges` and `columns`."""
        return await self.call(requests.get(requests.build_path("datasets", name, "lineage"), direction=direction))

    async def query(self, sql: str, **limits: object) -> list[dict[str, Any]]:
        """Return the rows of a SELECT over datasets; raises beyond `max_rows` or `seconds`."""
        return (await self.call(requests.post("/v1/datasets/query", {"sql": sql, **limits})))["rows"]

    async def rematerialize(self, name: str) -> int:
        """Rematerialize a dataset and everything downstream of it; returns the job id."""
        return int((await self.call(requests.post(requests.build_path("datasets", name, "rematerialize"))))["id"])

    # --- Objects ------------------------------------------------------------------------------------------------------

    async def export_object(self, table_id: str, format: str = "jsonl") -> AsyncGenerator[bytes]:  # noqa: A002
        """Stream all rows of an Object in a file format; raises UnreachableError if the connection breaks."""
        path = requests.build_path("objects", table_id, "export")
        has_begun = False
        try:
            limit = httpx.Timeout(self._seconds, read=max(self._seconds, EXPORT_READ_SECONDS))
            async with self._http.stream("GET", path, params={"format": format}, timeout=limit) as response:
                if not response.is_success:
                    await response.aread()
                    _decode_response(response)
                async for piece in response.aiter_bytes():
                    has_begun = True
                    yield piece
        except httpx.TransportError as error:
            if not has_begun:
                raise self._unreachable_error(error) from error
            raise UnreachableError(
                f"The server at {self._url} closed the connection during a response.",
                remedy="Try again; the server's log may have the reason.",
            ) from error

    # --- dead letters, queues, workers --------------------------------------------------------------------------------

    def dead_letters(self, **filters: object) -> AsyncGenerator[dict[str, Any]]:
        return self.pages(requests.get("/v1/dead-letters", **filters))

    async def redrive(self, **choice: object) -> int:
        """Redrive dead letters chosen by `ids`, `type`, `fingerprint` or `all=True`; returns how many."""
        return int((await self.call(requests.post("/v1/dead-letters/redrive", choice)))["count"])

    async def discard(self, **choice: object) -> int:
        """Discard dead letters, chosen as in `redrive`; returns how many."""
        return int((await self.call(requests.post("/v1/dead-letters/discard", choice)))["count"])

    async def queues(self) -> list[dict[str, Any]]:
        return await self.call(requests.get("/v1/queues"))

    async def set_queue_limits(self, name: str, limits: LimitsRequest) -> None:
        """Set the weight and limits of a queue; an omitted limit is removed."""
        await self.call(requests.put(requests.build_path("queues", name), limits.model_dump(exclude_none=True)))

    async def pause_queue(self, name: str) -> None:
        await self.call(requests.post(requests.build_path("queues", name, "pause")))

    async def resume_queue(self, name: str) -> None:
        await self.call(requests.post(requests.build_path("queues", name, "resume")))

    async def set_type_retry_policy(self, name: str, policy: RetryPolicyRequest) -> None:
        """Set the retry policy of a task type; None restores the default."""
        await self.call(requests.put(requests.build_path("types", name), policy.model_dump()))

    async def pause_type(self, name: str) -> None:
        """Pause a task type: no further task starts."""
        await self.call(requests.post(requests.build_path("types", name, "pause")))

    async def resume_type(self, name: str) -> None:
        """Resume a paused task type."""
        await self.call(requests.post(requests.build_path("types", name, "resume")))

    def workers(self, *, stopped: bool = False) -> AsyncGenerator[dict[str, Any]]:
        return self.pages(requests.get("/v1/workers", stopped=stopped))

    async def drain_worker(self, worker_id: int) -> None:
        """Drain a worker: it finishes its running tasks and exits."""
        await self.call(requests.post(requests.build_path("workers", worker_id, "drain")))

    async def whoami(self) -> dict[str, Any]:
        return await self.call(requests.get("/v1/whoami"))


def _is_repeatable(call: ApiRequest) -> bool:
    return call.method != "POST" or "Idempotency-Key" in call.headers


def _decode_response(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json() if response.content else None
    try:
        problem = response.json()
    except json.JSONDecodeError:
        problem = None
    raise requests.parse_problem(response.status_code, problem)
