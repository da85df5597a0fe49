"""Load of failure paths: timeouts of jobs, cancelled sleeps, restarted jobs and pinned versions of the code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from aaiclick.chaos.flow_control_clients import FlowClient
from aaiclick.chaos.history import record_event
from aaiclick.chaos.load_clients import CANCELLED, CLIENT_EVENTS, DONE, RETRY_OPTIONS, JobFields
from aaiclick.chaos.servers import CODE_VERSION
from aaiclick.chaos.tasks import note_failure, run_final, undo_plain
from aaiclick.orchestration import sleep, wait_for_event
from aaiclick.orchestration.failure_paths import make_job_handlers
from aaiclick.store.engine import user_actions

if TYPE_CHECKING:
    from aaiclick.orchestration import Task

TIMEOUT_SECONDS = 1.5
POLL_SECONDS = 0.3
LONG_SECONDS = 3600.0


@dataclass
class FailureClient(FlowClient):
    """A load client with jobs that exceed their timeout, are cancelled in a sleep, and are restarted."""

    shares: ClassVar[Mapping[str, int]] = {
        **FlowClient.shares, "overdue": 1, "asleep": 1, "restarted": 2, "pinned": 1,
    }  # fmt: skip

    def _make_handlers(self, key: str, tasks: list[Task]) -> list[Task]:
        return make_job_handlers(tasks, run_final, note_failure, {"history": str(self.history), "key": key})

    async def _submit_overdue(self, key: str) -> int:
        """Submit a job that waits for longer than its timeout: its step is undone, and its final task runs."""
        step, event = self._make_task("plain"), wait_for_event("never", key=key, timeout_seconds=LONG_SECONDS)
        step.compensate = undo_plain
        step >> event  # pyright: ignore[reportUnusedExpression]
        nodes = [step, event, *self._make_handlers(key, [step, event])]
        fields = JobFields(timeout_seconds=TIMEOUT_SECONDS)
        org = self.rng.choice(self.orgs[1:])
        total, _ = await self._submit_job(
            key, [*nodes], nodes, [], org=org, ends=("FAILED",), finals=(key,), fields=fields, is_sized=False
        )
        return total

    async def _submit_asleep(self, key: str) -> int:
        """Submit a long sleep, and cancel it."""
        pause, last = sleep(LONG_SECONDS), self._make_task("plain")
        pause >> last  # pyright: ignore[reportUnusedExpression]
        nodes = [pause, last, *self._make_handlers(key, [pause, last])]
        org = self.rng.choice(self.orgs[1:])
        total, job_id = await self._submit_job(key, [*nodes], nodes, [], org=org, ends=(CANCELLED,), finals=(key,))
        await asyncio.sleep(self.rng.random())

        async def cancel() -> None:
            async with self._connection() as connection:
                if await connection.fetchval("SELECT cancel_requested_at IS NULL FROM jobs WHERE id = $1", job_id):
                    await user_actions.cancel_job(connection, job_id)  # a second request would cancel the final task

        await self._retry_until_done(cancel)
        record_event(self.history, CLIENT_EVENTS, acknowledged="cancelled", key=key)
        return total

    async def _submit_restarted(self, key: str) -> int:
        """Submit a job that fails, and retry or redrive it until it has completed."""
        first, last = self._make_task("fail_first"), self._make_task("plain")
        first.options = replace(RETRY_OPTIONS, max_attempts=1)
        first >> last  # pyright: ignore[reportUnusedExpression]
        nodes = [first, last, *self._make_handlers(key, [first, last])]
        org, is_redriven = self.rng.choice(self.orgs[1:]), self.rng.random() < 0.5
        total, job_id = await self._submit_job(key, [*nodes], nodes, [(first.id, last.id)], org=org, finals=(key,))

        async def restart() -> bool:
            async with self._connection() as connection:
                status = await connection.fetchval("SELECT status::text FROM jobs WHERE id = $1", job_id)
                if status == "FAILED" and is_redriven:
                    await user_actions.redrive_dead_letters(connection, task_ids=[first.id, last.id])
                elif status == "FAILED":
                    await user_actions.retry_failed_tasks(connection, job_id)
                await asyncio.sleep(POLL_SECONDS)
                return status == DONE

        while not await self._retry_until_done(restart):
            pass
        return total

    async def _submit_pinned(self, key: str) -> int:
        """Submit a job that only workers with one version of the code may run."""
        tasks = [self._make_task("plain") for _ in range(3)]
        fields = JobFields(pinned_version=CODE_VERSION)
        return (await self._submit_job(key, [*tasks], tasks, [], org=self.orgs[1], fields=fields))[0]
