"""Synchronous client of the HTTP API: runs the asynchronous one on a background event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from aaiclick.api.field_types import ChangedIdsResponse
from aaiclick.api.jobs import ReleasedTablesResponse
from aaiclick.api.tasks import CancelResponse
from aaiclick.api.workers import LimitsRequest, RetryPolicyRequest
from aaiclick.client.async_client import AsyncClient
from aaiclick.client.requests import ApiRequest

T = TypeVar("T")


class Client:
    """Synchronous version of `AsyncClient`. Thread-safe."""

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout_seconds: float = 60.0) -> None:
        self._client = AsyncClient(url, key, timeout_seconds=timeout_seconds)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="aaiclick-client")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop the event loop."""
        if self._loop.is_closed():
            return
        self._wait_for(self._client.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait_for(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _iterate(self, source: AsyncGenerator[T]) -> Iterator[T]:
        async def next_item() -> T | None:
            return await anext(source, None)

        while (item := self._wait_for(next_item())) is not None:
            yield item

    def call(self, call: ApiRequest) -> Any:
        """Send one request; return the JSON of the response, or raise the error of its problem code."""
        return self._wait_for(self._client.call(call))

    def pages(self, call: ApiRequest) -> Iterator[dict[str, Any]]:
        """Iterate over all items of a listing, page by page."""
        return self._iterate(self._client.pages(call))

    def create_job(
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
        return self._wait_for(self._client.create_job(name, entrypoint, kwargs, tasks=tasks, groups=groups, **options))

    def get_job(self, job_id: int) -> dict[str, Any]:
        return self._wait_for(self._client.get_job(job_id))

    def jobs(self, status: str | None = None, *, limit: int = 100) -> Iterator[dict[str, Any]]:
        """Iterate over jobs, newest first; `limit` is the page size."""
        return self._iterate(self._client.jobs(status, limit=limit))

    def cancel_job(self, job_id: int) -> CancelResponse:
        """Cancel a job; the outcome is "cancelled", "requested" if a task still runs, or "over" if it had finished."""
        return self._wait_for(self._client.cancel_job(job_id))

    def retry_job(self, job_id: int, *, cancelled: bool = False) -> ChangedIdsResponse:
        """Retry the failed tasks of a job; with `cancelled` all cancelled ones too."""
        return self._wait_for(self._client.retry_job(job_id, cancelled=cancelled))

    def release_job(self, job_id: int) -> ReleasedTablesResponse:
        """Release the results of a finished job."""
        return self._wait_for(self._client.release_job(job_id))

    def pause_job(self, job_id: int) -> None:
        """Pause a job: no further task starts."""
        self._wait_for(self._client.pause_job(job_id))

    def resume_job(self, job_id: int) -> None:
        """Resume a paused job."""
        self._wait_for(self._client.resume_job(job_id))

    def wait_for_job(self, job_id: int) -> dict[str, Any]:
        """Wait until a job has finished and return it."""
        return self._wait_for(self._client.wait_for_job(job_id))

    def job_results(self, job_id: int) -> list[dict[str, str]]:
        """Return `task_id`, `name` and `value` (as text) of the tasks of a job without dependents."""
        return self._wait_for(self._client.job_results(job_id))

    def enqueue(self, items: Sequence[Mapping[str, object]]) -> list[int]:
        """Enqueue items atomically; each has a `type` and optionally a `payload` and more. Returns the task ids."""
        return self._wait_for(self._client.enqueue(items))

    def get_task(self, task_id: int) -> dict[str, Any]:
        return self._wait_for(self._client.get_task(task_id))

    def tasks(self, job_id: int | None = None, **filters: object) -> Iterator[dict[str, Any]]:
        """Iterate over the tasks of a job in order, or over all tasks, newest first."""
        return self._iterate(self._client.tasks(job_id, **filters))

    def why(self, task_id: int) -> list[dict[str, str]]:
        """Explain why a task has not finished."""
        return self._wait_for(self._client.why(task_id))

    def cancel_task(self, task_id: int) -> str:
        return self._wait_for(self._client.cancel_task(task_id))

    def clear_task(self, task_id: int, also: Sequence[int] = ()) -> int:
        """Run a task and its dependents again, and the tasks `also` of its job; returns how many."""
        return self._wait_for(self._client.clear_task(task_id, also))

    def log(self, task_id: int, *, offset: int = 0, limit: int = 1_000_000) -> dict[str, Any]:
        """Return a part of a task's log: `text`, `next_offset`, `ended`."""
        return self._wait_for(self._client.log(task_id, offset=offset, limit=limit))

    def validate_dag(self, text: str, file: str = "dag.yaml") -> dict[str, Any]:
        """Validate a DAG file; returns its name and number of definitions, or raises all errors at once."""
        return self._wait_for(self._client.validate_dag(text, file))

    def diff_dag(self, text: str, file: str = "dag.yaml") -> list[dict[str, Any]]:
        """Return the changes that a deploy of the file would make."""
        return self._wait_for(self._client.diff_dag(text, file))

    def deploy_dag(self, text: str, file: str = "dag.yaml", *, resume: bool = False) -> dict[str, Any]:
        """Deploy a DAG file.

        If `job_id` is set, that job fills new datasets first: deploy again with `resume` when it has finished.
        """
        return self._wait_for(self._client.deploy_dag(text, file, resume=resume))

    def dag_versions(self, dag: str | None = None) -> list[dict[str, Any]]:
        """Return the versions of a DAG, or of all DAGs, newest first."""
        return self._wait_for(self._client.dag_versions(dag))

    def roll_back_dag(self, dag: str, to: str | None = None) -> dict[str, Any]:
        """Activate an older version: the one with the hash prefix `to`, or the previous one."""
        return self._wait_for(self._client.roll_back_dag(dag, to))

    def pause_dag(self, dag: str) -> None:
        self._wait_for(self._client.pause_dag(dag))

    def resume_dag(self, dag: str) -> int:
        """Resume a paused DAG; returns the number of tasks that were held."""
        return self._wait_for(self._client.resume_dag(dag))

    def backfill_dag(
        self, dag: str, first: str, last: str, job: str | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Run the missing times or partitions of a range; with `dry_run` only list them."""
        return self._wait_for(self._client.backfill_dag(dag, first, last, job, dry_run=dry_run))

    def run_dag(self, dag: str, job: str | None = None, payload: object = None) -> int:
        """Trigger a source of a DAG; returns the id of the job of the run."""
        return self._wait_for(self._client.run_dag(dag, job, payload))

    def datasets(self) -> list[dict[str, Any]]:
        return self._wait_for(self._client.datasets())

    def get_dataset(self, name: str) -> dict[str, Any]:
        return self._wait_for(self._client.get_dataset(name))

    def lineage(self, name: str, direction: str = "up") -> dict[str, Any]:
        """Return the upstream or (`down`) downstream lineage of a dataset: `edges` and `columns`."""
        return self._wait_for(self._client.lineage(name, direction))

    def query(self, sql: str, **limits: object) -> list[dict[str, Any]]:
        """Return the rows of a SELECT over datasets; raises beyond `max_rows` or `seconds`."""
        return self._wait_for(self._client.query(sql, **limits))

    def rematerialize(self, name: str) -> int:
        """Rematerialize a dataset and everything downstream of it; returns the job id."""
        return self._wait_for(self._client.rematerialize(name))

    def export_object(self, table_id: str, format: str = "jsonl") -> Iterator[bytes]:  # noqa: A002
        """Stream all rows of an Object in a file format; raises UnreachableError if the connection breaks."""
        return self._iterate(self._client.export_object(table_id, format))

    def dead_letters(self, **filters: object) -> Iterator[dict[str, Any]]:
        return self._iterate(self._client.dead_letters(**filters))

    def redrive(self, **choice: object) -> int:
        """Redrive dead letters chosen by `ids`, `type`, `fingerprint` or `all=True`; returns how many."""
        return self._wait_for(self._client.redrive(**choice))

    def discard(self, **choice: object) -> int:
        """Discard dead letters, chosen as in `redrive`; returns how many."""
        return self._wait_for(self._client.discard(**choice))

    def queues(self) -> list[dict[str, Any]]:
        return self._wait_for(self._client.queues())

    def set_queue_limits(self, name: str, limits: LimitsRequest) -> None:
        """Set the weight and limits of a queue; an omitted limit is removed."""
        self._wait_for(self._client.set_queue_limits(name, limits))

    def pause_queue(self, name: str) -> None:
        self._wait_for(self._client.pause_queue(name))

    def resume_queue(self, name: str) -> None:
        self._wait_for(self._client.resume_queue(name))

    def set_type_retry_policy(self, name: str, policy: RetryPolicyRequest) -> None:
        """Set the retry policy of a task type; None restores the default."""
        self._wait_for(self._client.set_type_retry_policy(name, policy))

    def pause_type(self, name: str) -> None:
        """Pause a task type: no further task starts."""
        self._wait_for(self._client.pause_type(name))

    def resume_type(self, name: str) -> None:
        """Resume a paused task type."""
        self._wait_for(self._client.resume_type(name))

    def workers(self, *, stopped: bool = False) -> Iterator[dict[str, Any]]:
        return self._iterate(self._client.workers(stopped=stopped))

    def drain_worker(self, worker_id: int) -> None:
        """Drain a worker: it finishes its running tasks and exits."""
        self._wait_for(self._client.drain_worker(worker_id))

    def whoami(self) -> dict[str, Any]:
        return self._wait_for(self._client.whoami())
