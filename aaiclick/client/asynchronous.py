"""The client for asynchronous code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from aaiclick.client import calls
from aaiclick.client.calls import Call
from aaiclick.errors import SettingsError, UnansweredError, UnreachableError
from aaiclick.settings import get_settings

TRIES = 3
"""A request whose connection breaks is sent again; those that make something carry an Idempotency-Key."""

PAUSE_SECONDS = 0.3
LOOK_SECONDS = 0.5
QUIET_SECONDS = 600.0
"""Between two pieces of a file: some formats are written a million rows at a time."""


class AsyncClient:
    """Speaks to one server; `url` and `key` come from AAICLICK_SERVER and AAICLICK_API_KEY unless given.

    async with AsyncClient() as client:
        async for job in client.jobs(status="FAILED"):
            print(job["name"])
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout_seconds: float = 60.0) -> None:
        settings = get_settings()
        found = url or settings.server
        if found is None:
            raise SettingsError("No server is named.", remedy="Give its URL, or set AAICLICK_SERVER.")
        secret = key or (settings.api_key.get_secret_value() if settings.api_key else None)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._url = found
        self._seconds = timeout_seconds
        self._http = httpx.AsyncClient(base_url=found, headers=headers, timeout=timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(self, call: Call, *, timeout_seconds: float | None = None) -> Any:
        """Send one request; the answer's JSON, or the error that it stands for."""
        limit = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
        for attempt in range(TRIES):
            try:
                response = await self._http.request(
                    call.method, call.path, params=dict(call.query), json=call.body, headers=dict(call.headers),
                    timeout=limit,
                )  # fmt: skip
            except httpx.TransportError as error:
                if attempt == TRIES - 1 or not _repeatable(call):
                    raise self._away(error) from error
            else:
                return _read(response)
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError("unreachable")

    def _away(self, error: Exception) -> UnreachableError:
        kind = UnansweredError if isinstance(error, httpx.TimeoutException) else UnreachableError
        return kind(
            f"The server at {self._url} does not answer: {error or type(error).__name__}.",
            remedy="Check AAICLICK_SERVER, and that 'aaiclick server start' or 'aaiclick up' runs there.",
        )

    async def pages(self, call: Call) -> AsyncGenerator[dict[str, Any]]:
        """Everything that a listing has, page after page."""
        while True:
            page: dict[str, Any] = await self.call(call)
            for item in page["items"]:
                yield item
            if page["next"] is None:
                return
            call = Call(call.method, call.path, {**call.query, "cursor": page["next"]})

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def create_job(
        self,
        name: str,
        entrypoint: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        tasks: Sequence[Mapping[str, Any]] | None = None,
        groups: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> int:
        """Submit a job: one entry point, or a graph of `tasks` and `groups`; returns its id."""
        answer = await self.call(calls.create_job(name, entrypoint, kwargs, tasks, groups, options))
        return int(answer["id"])

    async def get_job(self, job_id: int) -> dict[str, Any]:
        return await self.call(calls.get(calls.named("jobs", job_id)))

    def jobs(self, status: str | None = None, *, limit: int = 100) -> AsyncGenerator[dict[str, Any]]:
        """Jobs, newest first; `limit` is the size of a page."""
        return self.pages(calls.get("/v1/jobs", status=status, limit=limit))

    async def cancel_job(self, job_id: int) -> str:
        """Cancel a job: "cancelled", "requested" while a worker still runs a task of it, "over" if it had ended."""
        return (await self.call(calls.post(calls.named("jobs", job_id, "cancel"))))["outcome"]

    async def retry_job(self, job_id: int) -> int:
        """Start over what failed in a job; how many tasks came back."""
        return int((await self.call(calls.post(calls.named("jobs", job_id, "retry"))))["count"])

    async def release_job(self, job_id: int) -> int:
        """Let go of the results of a job that is over; how many tables that were."""
        return int((await self.call(calls.post(calls.named("jobs", job_id, "release"))))["tables"])

    async def pause_job(self, job_id: int) -> None:
        """Let nothing more of a job begin."""
        await self.call(calls.post(calls.named("jobs", job_id, "pause")))

    async def resume_job(self, job_id: int) -> None:
        """Let a paused job go on."""
        await self.call(calls.post(calls.named("jobs", job_id, "resume")))

    async def wait_for_job(self, job_id: int) -> dict[str, Any]:
        """The job when it has ended."""
        while True:
            job = await self.get_job(job_id)
            if job["status"] in calls.ENDED:
                return job
            await asyncio.sleep(LOOK_SECONDS)

    async def job_results(self, job_id: int) -> list[dict[str, str]]:
        """What a job came to: `task_id`, `name` and `value` (in words) of the tasks that nothing waits for."""
        return await self.call(calls.get(calls.named("jobs", job_id, "results")))

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def enqueue(self, items: Sequence[Mapping[str, Any]]) -> list[int]:
        """Put items into queues, all or none; each has a `type` and perhaps a `payload` and more."""
        answer = await self.call(calls.post("/v1/tasks", {"items": list(items)}, once=True))
        return [int(task_id) for task_id in answer["ids"]]

    async def get_task(self, task_id: int) -> dict[str, Any]:
        return await self.call(calls.get(calls.named("tasks", task_id)))

    def tasks(self, job_id: int | None = None, **filters: Any) -> AsyncGenerator[dict[str, Any]]:
        """Tasks of a job in their order, or all, newest first."""
        return self.pages(calls.get("/v1/tasks", job_id=job_id, **filters))

    async def why(self, task_id: int) -> list[dict[str, str]]:
        """What stands between a task and its end."""
        return await self.call(calls.get(calls.named("tasks", task_id, "why")))

    async def cancel_task(self, task_id: int) -> str:
        """Cancel a task; the answers are those of `cancel_job`."""
        return (await self.call(calls.post(calls.named("tasks", task_id, "cancel"))))["outcome"]

    async def clear_task(self, task_id: int, also: Sequence[int] = ()) -> int:
        """Run a task and everything after it again, with others of its job if need be; how many that are."""
        call = calls.post(calls.named("tasks", task_id, "clear"), also=[str(each) for each in also])
        return int((await self.call(call))["count"])

    async def log(self, task_id: int, *, offset: int = 0, limit: int = 1_000_000) -> dict[str, Any]:
        """A part of a task's log: `text`, `next_offset`, `ended`."""
        return await self.call(calls.get(calls.named("tasks", task_id, "log"), offset=offset, limit=limit))

    # --- DAGs and datasets --------------------------------------------------------------------------------------------

    async def validate_dag(self, text: str, file: str = "dag.yaml") -> dict[str, Any]:
        """The name of a DAG and how many jobs it has; every error of the file at once."""
        return await self.call(calls.post("/v1/dags/validate", {"text": text, "file": file}))

    async def diff_dag(self, text: str, file: str = "dag.yaml") -> list[dict[str, Any]]:
        """What a deploy of a file would change."""
        return await self.call(calls.post("/v1/dags/diff", {"text": text, "file": file}))

    async def deploy_dag(self, text: str, file: str = "dag.yaml", *, going_on: bool = False) -> dict[str, Any]:
        """Begin to deploy. While `job_id` fills new datasets it does not serve: deploy again, `going_on`, when that is
        done.
        """
        return await self.call(calls.post("/v1/dags/deploy", {"text": text, "file": file, "going_on": going_on}))

    async def dag_versions(self, dag: str | None = None) -> list[dict[str, Any]]:
        """The versions of a DAG, or of all, the newest first."""
        return await self.call(calls.get("/v1/dags" if dag is None else calls.named("dags", dag, "versions")))

    async def roll_back_dag(self, dag: str, to: str | None = None) -> dict[str, Any]:
        """Let an older version serve again: the one whose hash begins with `to`, or the one before."""
        return await self.call(calls.post(calls.named("dags", dag, "rollback"), {"to": to}))

    async def pause_dag(self, dag: str) -> None:
        await self.call(calls.post(calls.named("dags", dag, "pause")))

    async def resume_dag(self, dag: str) -> int:
        """Let a paused DAG go on; how many tasks were waiting."""
        return int((await self.call(calls.post(calls.named("dags", dag, "resume"))))["count"])

    async def backfill_dag(
        self, dag: str, first: str, last: str, job: str | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Run the times or partitions of a range that have not run; with `dry_run` only say which."""
        body = {"job": job, "first": first, "last": last, "dry_run": dry_run}
        return await self.call(calls.post(calls.named("dags", dag, "backfill"), body))

    async def run_dag(self, dag: str, job: str | None = None, payload: Any = None) -> int:
        """Start a source of a DAG; the id of the job that holds everything it causes."""
        body = {"job": job, "payload": payload}
        return int((await self.call(calls.post(calls.named("dags", dag, "run"), body)))["id"])

    async def datasets(self) -> list[dict[str, Any]]:
        return await self.call(calls.get("/v1/datasets"))

    async def get_dataset(self, name: str) -> dict[str, Any]:
        return await self.call(calls.get(calls.named("datasets", name)))

    async def lineage(self, name: str, direction: str = "up") -> dict[str, Any]:
        """What a dataset is made from, or (`down`) what is made from it: `edges` and `columns`."""
        return await self.call(calls.get(calls.named("datasets", name, "lineage"), direction=direction))

    async def query(self, sql: str, **limits: Any) -> list[dict[str, Any]]:
        """The rows of one SELECT over datasets; `max_rows` and `seconds` end it with an error."""
        return (await self.call(calls.post("/v1/datasets/query", {"sql": sql, **limits})))["rows"]

    async def rematerialize(self, name: str) -> int:
        """Make a dataset again, and everything that is made from it; the id of the job."""
        return int((await self.call(calls.post(calls.named("datasets", name, "rematerialize"))))["id"])

    # --- Objects ------------------------------------------------------------------------------------------------------

    async def export_object(self, table_id: str, format: str = "jsonl") -> AsyncGenerator[bytes]:  # noqa: A002
        """All rows of an Object as a file, piece by piece; raises if it breaks off."""
        path = calls.named("objects", table_id, "export")
        begun = False
        try:
            limit = httpx.Timeout(self._seconds, read=max(self._seconds, QUIET_SECONDS))
            async with self._http.stream("GET", path, params={"format": format}, timeout=limit) as response:
                if not response.is_success:
                    await response.aread()
                    _read(response)
                async for piece in response.aiter_bytes():
                    begun = True
                    yield piece
        except httpx.TransportError as error:
            if not begun:
                raise self._away(error) from error
            raise UnreachableError(
                f"The answer of the server at {self._url} broke off.", remedy="Try again; its log may say why."
            ) from error

    # --- the rest -----------------------------------------------------------------------------------------------------

    def dead_letters(self, **filters: Any) -> AsyncGenerator[dict[str, Any]]:
        return self.pages(calls.get("/v1/dead-letters", **filters))

    async def redrive(self, **choice: Any) -> int:
        """Start dead letters over: `ids`, `type`, `fingerprint`, or `all=True`; how many that were."""
        return int((await self.call(calls.post("/v1/dead-letters/redrive", choice)))["count"])

    async def discard(self, **choice: Any) -> int:
        """Give dead letters up, chosen likewise; how many that were."""
        return int((await self.call(calls.post("/v1/dead-letters/discard", choice)))["count"])

    async def queues(self) -> list[dict[str, Any]]:
        return await self.call(calls.get("/v1/queues"))

    async def limit_queue(self, name: str, **limits: Any) -> None:
        """Give a queue its `weight`, `max_running`, `rate_per_second` and `rate_burst`; what is left out is lifted."""
        await self.call(Call("PUT", calls.named("queues", name), body=limits))

    async def pause_queue(self, name: str) -> None:
        await self.call(calls.post(calls.named("queues", name, "pause")))

    async def resume_queue(self, name: str) -> None:
        await self.call(calls.post(calls.named("queues", name, "resume")))

    def workers(self, *, stopped: bool = False) -> AsyncGenerator[dict[str, Any]]:
        return self.pages(calls.get("/v1/workers", stopped=stopped))

    async def drain_worker(self, worker_id: int) -> None:
        """Have a worker finish what it runs and end."""
        await self.call(calls.post(calls.named("workers", worker_id, "drain")))

    async def whoami(self) -> dict[str, Any]:
        return await self.call(calls.get("/v1/whoami"))


def _repeatable(call: Call) -> bool:
    return call.method != "POST" or "Idempotency-Key" in call.headers


def _read(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json() if response.content else None
    try:
        problem = response.json()
    except json.JSONDecodeError:
        problem = None
    raise calls.error_of(response.status_code, problem)
