"""Handle of a job for the asynchronous client."""

from __future__ import annotations

import asyncio

from aaiclick.api.jobs import GroupProgress, Job, JobResult
from aaiclick.client.endpoints import AsyncEndpoints
from aaiclick.client.job_handle import MAX_POLL_SECONDS, POLL_SECONDS, check_completed, combine_results


class AsyncJobHandle:
    """A submitted job: `await AsyncJobHandle(client, job_id).result()`.

    ```python
    async with AsyncClient(url, key) as client:
        handle = AsyncJobHandle(client, (await client.create_job("nightly", "shop.load")).id)
        await handle.cancel()
    ```
    """

    def __init__(self, endpoints: AsyncEndpoints, job_id: int) -> None:
        self._endpoints = endpoints
        self.id = job_id

    def __repr__(self) -> str:
        return f"AsyncJobHandle({self.id})"

    async def get_job(self) -> Job:
        """The job with all its fields."""
        return await self._endpoints.get_job(self.id)

    async def status(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED or CANCELLED."""
        return (await self.get_job()).status

    async def progress(self) -> list[GroupProgress]:
        """Numbers of tasks of each group; the group "" has the tasks without a group."""
        return await self._endpoints.get_job_progress(self.id)

    async def wait(self, timeout_seconds: float | None = None) -> Job:
        """Wait until the job has ended and return it; raises TimeoutError."""
        pause = POLL_SECONDS
        async with asyncio.timeout(timeout_seconds):
            while (job := await self.get_job()).completed_at is None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.2, MAX_POLL_SECONDS)
        return job

    async def result(self, timeout_seconds: float | None = None) -> object:
        """Wait for the job and return the result of its final task, or a list if it has several.

        Values are JSON values (a date is text), and of tables the first rows as text: read them with `export_object`.
        Raises JobFailedError if the job has failed or was cancelled.
        """
        check_completed(await self.wait(timeout_seconds))
        results: list[JobResult] = []
        while page := await self._endpoints.get_job_results(self.id, after=results[-1].task_id if results else 0):
            results += page
        return combine_results(results)

    async def logs(self) -> str:
        """Output of the job's tasks so far, each after a line with its name."""
        return "\n".join(
            [
                f"--- {task.type} (task {task.id})\n{text}"
                async for task in self._endpoints.list_tasks(self.id)
                if (text := await self._read_log(task.id))
            ]
        )

    async def cancel(self) -> bool:
        """Cancel the job; False if it had ended before."""
        return (await self._endpoints.cancel_job(self.id)).outcome != "over"

    async def _read_log(self, task_id: int) -> str:
        text, offset = "", 0
        while True:
            part = await self._endpoints.read_task_log(task_id, offset=offset)
            text += part.text
            if part.next_offset == offset:
                return text
            offset = part.next_offset
