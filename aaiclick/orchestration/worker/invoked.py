"""A worker for the length of one task: what a function of Lambda runs.

    handler: aaiclick.orchestration.worker.invoked.handle

The task comes in the event, claimed (see `runtimes.functions`). The function has AAICLICK_SERVER and AAICLICK_API_KEY
in its environment and no credential of a database: where the data is the server says, to who holds the lease. It keeps
its lease while it runs, and says what came of it under the same lease: an event that comes twice or late changes
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from pathlib import Path
from typing import Any

from aaiclick.errors import LeaseLost, SettingsError
from aaiclick.orchestration.transport import Line, forms
from aaiclick.orchestration.transport.line import GONE
from aaiclick.orchestration.transport.remote import remote_of
from aaiclick.orchestration.worker.executor import Ending, Executor, Outcome, Running, make_running
from aaiclick.orchestration.worker.log_shipping import SHIP_SECONDS
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.orders import Setup
from aaiclick.orchestration.worker.setup import make_executor
from aaiclick.scratch import scratch_directory
from aaiclick.settings import get_settings
from aaiclick.store.leases import Claim, Failure, Lease, Success
from aaiclick.targets import ServerTarget

TICK_SECONDS = 0.25
SPARE_SECONDS = 5.0
"""Of the time that Lambda gives, what is left to say that the task timed out."""

SAID_AGAIN = 5


def handle(event: dict[str, Any], context: Any = None) -> dict[str, str]:
    """Run the task of an event; returns what came of it, for the function's log."""
    settings = get_settings()
    if settings.server is None or settings.api_key is None:
        raise SettingsError(
            "The function does not know its server.",
            remedy="Set AAICLICK_SERVER and AAICLICK_API_KEY.",
        )
    left = getattr(context, "get_remaining_time_in_millis", None)
    seconds = None if left is None else left() / 1000 - SPARE_SECONDS
    target = ServerTarget(settings.server, settings.api_key.get_secret_value())
    with scratch_directory("aaiclick-logs-") as logs, captured_output():
        setup = Setup(target, None, logs, settings.task_modules, (), str(Path.cwd()))
        return asyncio.run(_Invocation(event, setup).run(seconds))


class _Invocation:
    def __init__(self, event: dict[str, Any], setup: Setup) -> None:
        self._task = event["task"]
        self._lease: Lease = forms.lease_of(self._task["lease"])
        self._worker_id = int(event["worker_id"])
        self._lease_seconds = min(float(event["lease_seconds"]), self._task["lease_seconds"] or math.inf)
        self._log_sent = 0
        self._setup = setup

    async def run(self, seconds: float | None) -> dict[str, str]:
        executor = await make_executor(self._setup, threads=1)
        line = await executor.transport.open()
        try:
            claim = await self._fetch()
            await line.start([self._lease])
        except LeaseLost:
            await executor.close()
            return self._said("lost")
        timeout = get_settings().worker_task_timeout_seconds
        running = make_running(claim, self._setup.log_directory, timeout, spooled=True)
        if seconds is not None:
            running.deadline = min(running.deadline, time.monotonic() + seconds)
        try:
            return await self._work(executor, line, running)
        finally:
            await executor.close()

    async def _fetch(self) -> Claim:
        """The task with its arguments complete, and where its data is; raises LeaseLost if somebody else has it."""
        assert isinstance(self._setup.work, ServerTarget)  # noqa: S101
        remote = remote_of(self._setup.work)
        answer = await remote.ask("/internal/task-fetch", lease=forms.lease_form(self._lease))
        remote.hear(answer)
        self._task = {**self._task, "shared": answer["task"]["shared"]}  # what code may run the server decides
        if self._task["kwargs"] is None:
            self._task = {**self._task, "kwargs": answer["task"]["kwargs"]}
        return forms.claim_of(self._task)

    async def _work(self, executor: Executor, line: Line, running: Running) -> dict[str, str]:
        job = running.job = asyncio.create_task(self._execute(executor, line, running))
        watch = asyncio.create_task(self._watch(line, running))
        try:
            await asyncio.wait([job])
            return job.result()
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _execute(self, executor: Executor, line: Line, running: Running) -> dict[str, str]:
        running.begun = True
        outcome = await executor.execute(running)
        running.job = None  # nothing more is to be told to the task
        with contextlib.suppress(*GONE):
            await line.send_log(self._lease, running.log.path, self._log_sent)
        return await self._say(line, outcome)

    async def _watch(self, line: Line, running: Running) -> None:
        """Renew the lease, check for a cancel and for the time limit, send the log."""
        beat = shipped = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            if now > running.deadline:
                running.end(Ending.TIMEOUT)
            if now - shipped > SHIP_SECONDS:
                shipped = now
                with contextlib.suppress(*GONE):
                    self._log_sent = await line.send_log(self._lease, running.log.path, self._log_sent)
            if now - beat < self._lease_seconds / 3:
                continue
            beat = now
            with contextlib.suppress(*GONE):  # a server that is away may be back before the lease has run out
                held = [each for each in await line.held(self._worker_id) if each.lease == self._lease]
                if not held:
                    running.end(Ending.LOST)
                elif held[0].cancelled:
                    running.end(Ending.CANCELLED)
                await line.keep_leases([self._worker_id], self._lease_seconds)

    async def _say(self, line: Line, outcome: Outcome | None) -> dict[str, str]:
        """Say what came of it, until it is heard or the lease has run out; then the invocation is a worker no more."""
        accepted: set[int] = set()
        for nth in range(SAID_AGAIN):
            try:
                accepted, _ = await line.exchange(
                    worker_id=self._worker_id,
                    successes=[outcome] if isinstance(outcome, Success) else [],
                    failures=[outcome] if isinstance(outcome, Failure) else [],
                    releases=[outcome] if isinstance(outcome, Lease) else [],
                    limit=0,
                    queues=[],
                    lease_seconds=self._lease_seconds,
                )
                await line.settle(self._worker_id, [], None)
                break
            except GONE:
                if nth == SAID_AGAIN - 1:
                    raise
                await asyncio.sleep(2**nth * TICK_SECONDS)
        if self._lease.task_id not in accepted:
            return self._said("lost")
        return self._said("completed" if isinstance(outcome, Success) else "failed")

    def _said(self, word: str) -> dict[str, str]:
        return {"task_id": str(self._lease.task_id), "attempt": str(self._lease.attempt), "outcome": word}
