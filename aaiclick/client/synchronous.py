"""The client for ordinary code: the asynchronous one, run on a loop of its own in the background."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from aaiclick.client.asynchronous import AsyncClient
from aaiclick.client.calls import Call

T = TypeVar("T")


class Client:
    """`AsyncClient`, waiting for each answer. Safe to use from several threads."""

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout_seconds: float = 60.0) -> None:
        self._client = AsyncClient(url, key, timeout_seconds=timeout_seconds)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="aaiclick-client")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        if self._loop.is_closed():
            return
        self._run(self._client.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _each(self, source: AsyncGenerator[T]) -> Iterator[T]:
        async def following() -> T | None:
            return await anext(source, None)

        while (item := self._run(following())) is not None:
            yield item

    def call(self, call: Call) -> Any:
        """Send one request; the answer's JSON, or the error that it stands for."""
        return self._run(self._client.call(call))

    def pages(self, call: Call) -> Iterator[dict[str, Any]]:
        """Everything that a listing has, page after page."""
        return self._each(self._client.pages(call))

    def create_job(
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
        return self._run(self._client.create_job(name, entrypoint, kwargs, tasks=tasks, groups=groups, **options))

    def get_job(self, job_id: int) -> dict[str, Any]:
        return self._run(self._client.get_job(job_id))

    def jobs(self, status: str | None = None, *, limit: int = 100) -> Iterator[dict[str, Any]]:
        """Jobs, newest first; `limit` is the size of a page."""
        return self._each(self._client.jobs(status, limit=limit))

    def cancel_job(self, job_id: int) -> str:
        """Cancel a job: "cancelled", "requested" while a worker still runs a task of it, "over" if it had ended."""
        return self._run(self._client.cancel_job(job_id))

    def retry_job(self, job_id: int) -> int:
        """Start over what failed in a job; how many tasks came back."""
        return self._run(self._client.retry_job(job_id))

    def release_job(self, job_id: int) -> int:
        """Let go of the results of a job that is over; how many tables that were."""
        return self._run(self._client.release_job(job_id))

    def pause_job(self, job_id: int) -> None:
        """Let nothing more of a job begin."""
        self._run(self._client.pause_job(job_id))

    def resume_job(self, job_id: int) -> None:
        """Let a paused job go on."""
        self._run(self._client.resume_job(job_id))

    def wait_for_job(self, job_id: int) -> dict[str, Any]:
        """The job when it has ended."""
        return self._run(self._client.wait_for_job(job_id))

    def job_results(self, job_id: int) -> list[dict[str, str]]:
        """What a job came to: `task_id`, `name` and `value` (in words) of the tasks that nothing waits for."""
        return self._run(self._client.job_results(job_id))

    def enqueue(self, items: Sequence[Mapping[str, Any]]) -> list[int]:
        """Put items into queues, all or none; each has a `type` and perhaps a `payload` and more."""
        return self._run(self._client.enqueue(items))

    def get_task(self, task_id: int) -> dict[str, Any]:
        return self._run(self._client.get_task(task_id))

    def tasks(self, job_id: int | None = None, **filters: Any) -> Iterator[dict[str, Any]]:
        """Tasks of a job in their order, or all, newest first."""
        return self._each(self._client.tasks(job_id, **filters))

    def why(self, task_id: int) -> list[dict[str, str]]:
        """What stands between a task and its end."""
        return self._run(self._client.why(task_id))

    def cancel_task(self, task_id: int) -> str:
        return self._run(self._client.cancel_task(task_id))

    def clear_task(self, task_id: int, also: Sequence[int] = ()) -> int:
        """Run a task and everything after it again, with others of its job if need be; how many that are."""
        return self._run(self._client.clear_task(task_id, also))

    def log(self, task_id: int, *, offset: int = 0, limit: int = 1_000_000) -> dict[str, Any]:
        """A part of a task's log: `text`, `next_offset`, `ended`."""
        return self._run(self._client.log(task_id, offset=offset, limit=limit))

    def validate_dag(self, text: str, file: str = "dag.yaml") -> dict[str, Any]:
        """The name of a DAG and how many jobs it has; every error of the file at once."""
        return self._run(self._client.validate_dag(text, file))

    def diff_dag(self, text: str, file: str = "dag.yaml") -> list[dict[str, Any]]:
        """What a deploy of a file would change."""
        return self._run(self._client.diff_dag(text, file))

    def deploy_dag(self, text: str, file: str = "dag.yaml", *, going_on: bool = False) -> dict[str, Any]:
        """Begin to deploy. While `job_id` fills new datasets it does not serve: deploy again, `going_on`, when that is
        done.
        """
        return self._run(self._client.deploy_dag(text, file, going_on=going_on))

    def dag_versions(self, dag: str | None = None) -> list[dict[str, Any]]:
        """The versions of a DAG, or of all, the newest first."""
        return self._run(self._client.dag_versions(dag))

    def roll_back_dag(self, dag: str, to: str | None = None) -> dict[str, Any]:
        """Let an older version serve again: the one whose hash begins with `to`, or the one before."""
        return self._run(self._client.roll_back_dag(dag, to))

    def pause_dag(self, dag: str) -> None:
        self._run(self._client.pause_dag(dag))

    def resume_dag(self, dag: str) -> int:
        """Let a paused DAG go on; how many tasks were waiting."""
        return self._run(self._client.resume_dag(dag))

    def backfill_dag(
        self, dag: str, first: str, last: str, job: str | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Run the times or partitions of a range that have not run; with `dry_run` only say which."""
        return self._run(self._client.backfill_dag(dag, first, last, job, dry_run=dry_run))

    def run_dag(self, dag: str, job: str | None = None, payload: Any = None) -> int:
        """Start a source of a DAG; the id of the job that holds everything it causes."""
        return self._run(self._client.run_dag(dag, job, payload))

    def datasets(self) -> list[dict[str, Any]]:
        return self._run(self._client.datasets())

    def get_dataset(self, name: str) -> dict[str, Any]:
        return self._run(self._client.get_dataset(name))

    def lineage(self, name: str, direction: str = "up") -> dict[str, Any]:
        """What a dataset is made from, or (`down`) what is made from it: `edges` and `columns`."""
        return self._run(self._client.lineage(name, direction))

    def query(self, sql: str, **limits: Any) -> list[dict[str, Any]]:
        """The rows of one SELECT over datasets; `max_rows` and `seconds` end it with an error."""
        return self._run(self._client.query(sql, **limits))

    def rematerialize(self, name: str) -> int:
        """Make a dataset again, and everything that is made from it; the id of the job."""
        return self._run(self._client.rematerialize(name))

    def export_object(self, table_id: str, format: str = "jsonl") -> Iterator[bytes]:  # noqa: A002
        """All rows of an Object as a file, piece by piece; raises if it breaks off."""
        return self._each(self._client.export_object(table_id, format))

    def dead_letters(self, **filters: Any) -> Iterator[dict[str, Any]]:
        return self._each(self._client.dead_letters(**filters))

    def redrive(self, **choice: Any) -> int:
        """Start dead letters over: `ids`, `type`, `fingerprint`, or `all=True`; how many that were."""
        return self._run(self._client.redrive(**choice))

    def discard(self, **choice: Any) -> int:
        """Give dead letters up, chosen likewise; how many that were."""
        return self._run(self._client.discard(**choice))

    def queues(self) -> list[dict[str, Any]]:
        return self._run(self._client.queues())

    def limit_queue(self, name: str, **limits: Any) -> None:
        """Give a queue its `weight`, `max_running`, `rate_per_second` and `rate_burst`; what is left out is lifted."""
        self._run(self._client.limit_queue(name, **limits))

    def pause_queue(self, name: str) -> None:
        self._run(self._client.pause_queue(name))

    def resume_queue(self, name: str) -> None:
        self._run(self._client.resume_queue(name))

    def workers(self, *, stopped: bool = False) -> Iterator[dict[str, Any]]:
        return self._each(self._client.workers(stopped=stopped))

    def drain_worker(self, worker_id: int) -> None:
        """Have a worker finish what it runs and end."""
        self._run(self._client.drain_worker(worker_id))

    def whoami(self) -> dict[str, Any]:
        return self._run(self._client.whoami())
