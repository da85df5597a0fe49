"""Worker process: claims tasks in batches, runs many concurrently, and acknowledges them in batches.

Two *pumps*, each with its own connection, acknowledge finished tasks and claim new ones. While one waits for a
response the other works, and outcomes that arrive meanwhile form the next batch: batches grow under load, and without
load a task is claimed and acknowledged at once. An idle pump waits for a notification, a timer, or a finished task.

The number of tasks claimed in advance follows the rate at which tasks finish: many for tasks of microseconds, none for
tasks of seconds, which other workers could start earlier.

A process of a runtime (`SqsWakeup`) claims as many tasks as it has received messages.

The process sends no heartbeats: its supervisor runs no code of tasks, so tasks cannot block it. It renews the leases
and kills a process with tasks that do not stop (see `supervisor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from aaiclick.orchestration.background_coroutines import run_forever
from aaiclick.orchestration.gateway import GatewayConnection, WorkerGateway
from aaiclick.orchestration.gateway.base import REJECTED_ERRORS, backoff_timeout
from aaiclick.orchestration.worker.at_most_once_start import StartBarrier
from aaiclick.orchestration.worker.claim_buffer import ClaimBuffer
from aaiclick.orchestration.worker.executor import Executor
from aaiclick.orchestration.worker.failure_outcomes import Outcome, make_failure, make_rejected_failure, stopped_outcome
from aaiclick.orchestration.worker.isolation import Isolation, mark_memory_suspect
from aaiclick.orchestration.worker.outcome_counter import OutcomeCounter
from aaiclick.orchestration.worker.process_config import WorkerConfig
from aaiclick.orchestration.worker.running_task import RunningTask, StopReason, make_running_task
from aaiclick.orchestration.worker.sqs_wakeup import SqsWakeup
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, Success
from aaiclick.store.engine.worker_leases import HeldLease
from aaiclick.store.postgres_connections import CONNECTION_ERRORS

TICK_SECONDS = 0.05
POLL_SECONDS = 1.0
BUFFER_SECONDS = 0.05
MAX_BUFFERED = 1000
MAX_BATCH = 128
STALE_SECONDS = 1.0
LOST_CLAIM_SECONDS = 0.25
"""A claim that is older than the oldest open request by this much was lost: its response never arrived."""
INTERNAL_ERROR = "worker internal error"
RECONNECT_SECONDS = (0.05, 0.2, 1.0, 2.0)
PUMPS = 2
LAST_REPORT_SECONDS = 15.0

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class InFlightExchange:
    """A request to acknowledge and claim that has no response yet."""

    began: float
    outcomes: list[Outcome]
    limit: int
    """Number of tasks that it may still claim."""
    wakeups: int
    """Number of wake-ups before it: tasks that became ready since may be missing in its claims."""


class WorkerProcess:
    """Runs claimed tasks, and holds their outcomes until the queue has accepted them."""

    def __init__(
        self,
        config: WorkerConfig,
        gateway: WorkerGateway,
        executor: Executor,
        isolation: Isolation,
        wakeup: SqsWakeup | None = None,
    ) -> None:
        self._config = config
        self._wakeup = wakeup
        self._gateway = gateway
        self._executor = executor
        executor.batches.on_slot_freed = self._on_slot_freed
        self._isolation = isolation
        self._running: dict[int, RunningTask] = {}
        self._starts = StartBarrier()
        self._stuck: set[int] = set()
        self._buffer = ClaimBuffer()
        self._outcomes: list[Outcome] = []
        self._wake = asyncio.Event()
        self._is_queue_empty = False
        self._wakeups = 0
        self._stopping = False
        self._in_flight: list[InFlightExchange] = []
        self._claimed = 0
        self._exchanges = 0
        self._finished = 0
        self._rate = 0.0
        self._next_due = math.inf
        self._is_due_unknown = False
        self._counter = OutcomeCounter(config.worker_id)

    async def run(self) -> None:
        """Run tasks until `stop` is called, `max_tasks` is reached, or the queue is empty with `drain`."""
        background = [asyncio.create_task(run_forever(work)) for work in (self._check_timers, self._run_listener)]
        if self._wakeup is not None:
            background.append(
                asyncio.create_task(run_forever(self._wakeup.receive_messages, self._free_slots, self._wake.set))
            )
        try:
            async with asyncio.TaskGroup() as pumps:
                for _ in range(PUMPS):
                    pumps.create_task(self._run_pump())
            await self._report_last_counts()
        finally:
            for work in background:
                work.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            if self._wakeup is not None:
                await self._wakeup.close()

    def stop(self) -> None:
        """Stop claiming, release tasks that have not started, and let running tasks finish."""
        self._stopping = True
        self._release_unstarted()
        self._wake.set()

    def release_all(self) -> None:
        """Stop running tasks and release them to other workers."""
        for running in list(self._running.values()):
            running.request_stop(StopReason.RELEASED)

    @property
    def _is_done(self) -> bool:
        """Whether no task is held, no request is open, and nothing more is to be claimed."""
        if len(self._running) > len(self._stuck) or self._buffer or self._outcomes or self._in_flight:
            return False
        nothing_left = self._is_queue_empty if self._wakeup is None else self._wakeup.is_idle
        return self._stopping or self._is_limit_reached or (self._config.drain and nothing_left)

    @property
    def has_stuck_tasks(self) -> bool:
        """Whether code of a task with a lost lease does not stop: only the end of the process ends it."""
        return bool(self._stuck)

    @property
    def _is_limit_reached(self) -> bool:
        return self._config.max_tasks is not None and self._claimed >= self._config.max_tasks

    # --- the pumps ----------------------------------------------------------------------------------------------------

    async def _run_pump(self) -> None:
        """Acknowledge and claim over one connection, and reconnect after errors."""
        failures = 0
        while not self._is_done:
            exchanges_before = self._exchanges
            try:
                connection = await self._gateway.connect()
                try:
                    await self._pump_connection(connection, failures)
                finally:
                    await connection.close()
            except CONNECTION_ERRORS:
                failures = 0 if self._exchanges > exchanges_before else failures + 1
                await asyncio.sleep(RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)])
        self._wake.set()

    async def _pump_connection(self, connection: GatewayConnection, failures: int) -> None:
        while not self._is_done:
            await self._collect_outcomes()
            # No await before the claims are counted as in flight: the other pump claims the rest.
            limit = self._claim_limit()
            if not self._outcomes and not limit:
                await self._wait_for_work()
                continue
            outcomes, self._outcomes = self._outcomes, []
            exchange = InFlightExchange(time.monotonic(), outcomes, limit, self._wakeups)
            self._in_flight.append(exchange)
            try:
                with connection.response_deadline(backoff_timeout(self._config.lease_seconds / 2, failures)):
                    await self._exchange_outcomes(connection, exchange)
            except BaseException:
                self._outcomes = outcomes + self._outcomes  # the queue may not have them: send them again
                raise
            finally:
                self._in_flight.remove(exchange)
            failures = 0

    async def _report_last_counts(self) -> None:
        """Report the remaining counts; gives up after LAST_REPORT_SECONDS without a response."""
        deadline = time.monotonic() + LAST_REPORT_SECONDS
        while not self._counter.is_reported and (seconds := deadline - time.monotonic()) > 0:
            try:
                connection = await self._gateway.connect()
                try:
                    with connection.response_deadline(seconds):
                        await self._counter.report(connection)
                finally:
                    await connection.close()
            except CONNECTION_ERRORS:
                await asyncio.sleep(RECONNECT_SECONDS[0])

    async def _collect_outcomes(self) -> None:
        """Yield to the event loop while each turn adds outcomes, to acknowledge short tasks in one batch."""
        previous_count = -1
        while previous_count < len(self._outcomes) < MAX_BATCH:
            previous_count = len(self._outcomes)
            await asyncio.sleep(0)

    async def _exchange_outcomes(self, connection: GatewayConnection, exchange: InFlightExchange) -> None:
        """Send outcomes and claim.

        If the queue rejects a batch, each outcome is sent alone, and rejected ones become failures. Accepted outcomes
        are removed from `outcomes`.
        """
        outcomes = exchange.outcomes
        try:
            await self._send_exchange(connection, outcomes, exchange)
        except REJECTED_ERRORS:
            if not outcomes:
                raise
        else:
            return
        exchange.limit = 0
        while outcomes:
            try:
                await self._send_exchange(connection, outcomes[:1], exchange)
            except REJECTED_ERRORS as error:
                await self._send_exchange(connection, [make_rejected_failure(outcomes[0], error)], exchange)
            del outcomes[0]

    async def _send_exchange(
        self, connection: GatewayConnection, outcomes: list[Outcome], exchange: InFlightExchange
    ) -> None:
        """Send outcomes and claim. An outcome that is not accepted has lost its lease and is dropped."""
        successes = [outcome for outcome in outcomes if isinstance(outcome, Success)]
        unsuccessful = outcomes if len(successes) < len(outcomes) else ()
        failures = [outcome for outcome in unsuccessful if isinstance(outcome, Failure)]
        releases = [outcome for outcome in unsuccessful if isinstance(outcome, Lease)]
        accepted = await connection.acknowledge_and_claim(
            worker_id=self._config.worker_id,
            successes=successes,
            failures=failures,
            releases=releases,
            limit=exchange.limit,
            queues=self._config.queues,
            lease_seconds=self._config.lease_seconds,
            on_claimed=functools.partial(self._accept_claims, exchange),
        )
        self._exchanges += 1
        self._counter.count(outcomes, accepted)
        if releases:
            self._is_queue_empty = False  # they are ready again
        if self._is_due_unknown or failures:
            self._is_due_unknown = False
            self._schedule_check(await connection.seconds_to_next_due())

    async def _wait_for_work(self) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._wake.wait()

    def _claim_limit(self) -> int:
        """Number of tasks to claim now."""
        if self._stopping or self._is_limit_reached or (self._is_queue_empty and not self._outcomes):
            return 0
        ahead = min(MAX_BUFFERED, int(self._rate * BUFFER_SECONDS))
        in_flight = sum(exchange.limit for exchange in self._in_flight)
        room = self._config.concurrency + ahead - self._used_slots - len(self._buffer) - in_flight
        if self._config.max_tasks is not None:
            room = min(room, self._config.max_tasks - self._claimed - in_flight)
        if self._wakeup is not None:
            room = min(room, self._wakeup.pending - in_flight)
        return max(0, room)

    @property
    def _used_slots(self) -> int:
        """Number of running tasks; those of one batch count as one, and not before it runs."""
        return len(self._running) - self._executor.batches.batched_items

    def _free_slots(self) -> int:
        """Number of tasks that could start now."""
        return (
            0
            if self._stopping or self._is_limit_reached
            else self._config.concurrency - self._used_slots - len(self._buffer)
        )

    def _accept_claims(self, exchange: InFlightExchange, claims: Sequence[Claim]) -> None:
        """Start claimed tasks; the rest of the exchange makes its acknowledgements durable."""
        limit, exchange.limit = exchange.limit, 0
        self._claimed += len(claims)
        self._is_queue_empty = len(claims) < limit and exchange.wakeups == self._wakeups
        if self._wakeup is not None:
            self._is_queue_empty = False  # the next message may find a task
            self._wakeup.acknowledge(limit)
        now = time.monotonic()
        for claim in claims:
            self._buffer.push(claim, now)
        self._start_buffered()
        if self._stopping:  # requested while the claim was in flight
            self._release_unstarted()

    def _start_buffered(self) -> None:
        while self._buffer and self._used_slots < self._config.concurrency and not self._stopping:
            self._start_task(self._buffer.pop())

    def _on_slot_freed(self) -> None:
        """Start or claim another task: the last one waits for its batch."""
        self._start_buffered()
        self._wake.set()

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _start_task(self, claim: Claim) -> None:
        running = make_running_task(
            claim, self._config.log_directory, self._config.task_timeout_seconds, spooled=self._gateway.sends_logs
        )
        if claim.runs_once:
            running.before_call = self._starts.begin_task
        self._running[claim.lease.task_id] = running
        running.asyncio_task = asyncio.get_running_loop().create_task(self._run_task(running))

    async def _run_task(self, running: RunningTask) -> None:
        running.is_started = True
        try:
            if running.stop_reason is not None:
                outcome = stopped_outcome(running)
            elif self._config.isolate or running.claim.suspect:
                outcome = await self._execute_isolated(running)
            else:
                outcome = mark_memory_suspect(await self._executor.execute(running))
        except Exception as error:
            _logger.exception("Task %s failed by an error of the worker.", running.claim.lease.task_id)
            outcome = make_failure(
                running, f"Internal error of the worker: {type(error).__name__}.", INTERNAL_ERROR, permanent=False
            )
        if self._executor.telemetry is not None:
            self._executor.telemetry.record_end(running, outcome)
        if self._gateway.sends_logs and running.began is not None:
            await self._send_log(running)
        del self._running[running.claim.lease.task_id]
        self._stuck.discard(running.claim.lease.task_id)
        self._finished += 1
        if outcome is not None:
            self._outcomes.append(outcome)
            if not isinstance(outcome, Lease):
                self._counter.record_end(running.claim)
        self._start_buffered()
        self._wake.set()

    async def _execute_isolated(self, running: RunningTask) -> Outcome | None:
        if not await self._starts.has_begun(running):
            return stopped_outcome(running)
        return await self._isolation.run(running)

    async def _send_log(self, running: RunningTask) -> None:
        """Send the whole log while the lease is valid; a log that cannot be sent does not change the outcome."""
        running.asyncio_task = None  # the task has finished and cannot be stopped any more
        with contextlib.suppress(*CONNECTION_ERRORS):
            connection = await self._gateway.connect()
            await connection.send_log(running.claim.lease, running.log.path, 0)
        with contextlib.suppress(OSError):
            running.log.path.unlink()

    def _release_unstarted(self) -> None:
        self._outcomes.extend(self._buffer.leases())
        self._buffer.clear()

    # --- background tasks ---------------------------------------------------------------------------------------------

    async def _check_timers(self) -> None:
        """Enforce time limits, measure the rate of finished tasks, and release claims that wait for too long."""
        while True:
            before = self._finished
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._rate = 0.7 * self._rate + 0.3 * (self._finished - before) / TICK_SECONDS
            for running in list(self._running.values()):
                if now > running.deadline:
                    running.request_stop(StopReason.TIMEOUT)
                if (
                    running.stop_reason is StopReason.LOST
                    and now - running.stop_requested_at > self._config.grace_seconds
                ):
                    self._mark_stuck(running)
            if self._buffer.is_stale(now - STALE_SECONDS):
                self._release_unstarted()
                self._wake.set()
            if now >= self._next_due:
                self._next_due, self._is_due_unknown = math.inf, True  # the next exchange asks for the one after this
                self._wake_pumps()

    def _mark_stuck(self, running: RunningTask) -> None:
        """Stop this process, since code of a task with a lost lease would occupy its slot for ever."""
        self._stuck.add(running.claim.lease.task_id)
        if not self._stopping:
            _logger.warning(
                "Task %s does not stop. This process finishes its other tasks and is replaced.",
                running.claim.lease.task_id,
            )
            self.stop()

    async def _run_listener(self) -> None:
        """Listen for ready tasks and cancellations, and report running tasks, over a third connection."""
        failures = 0
        while True:
            began, seconds = time.monotonic(), backoff_timeout(self._config.lease_seconds / 2, failures)
            with contextlib.suppress(*CONNECTION_ERRORS):
                connection = await self._gateway.connect()
                try:
                    await self._listen_on(connection, seconds)
                finally:
                    await connection.close()
            failures = 0 if time.monotonic() - began > 2 * seconds else failures + 1
            await asyncio.sleep(POLL_SECONDS)

    async def _listen_on(self, connection: GatewayConnection, response_seconds: float) -> None:
        cancels = asyncio.Event()

        def on_cancel(*_: object) -> None:
            cancels.set()

        with connection.response_deadline(response_seconds):
            await connection.listen(self._on_ready, on_cancel)
        checked = 0.0
        while True:
            await self._starts.wait_for_start(TICK_SECONDS)
            now = time.monotonic()
            look = now - checked > POLL_SECONDS or cancels.is_set()
            with connection.response_deadline(response_seconds):
                await self._starts.send_starts(connection)
                await self._report_running(connection)
                if look:
                    checked = now
                    cancels.clear()
                    await self._synchronise(connection)

    async def _synchronise(self, connection: GatewayConnection) -> None:
        await self._reconcile(connection)
        await self._counter.report(connection)
        self._wake_pumps()
        self._schedule_check(await connection.seconds_to_next_due())

    def _schedule_check(self, seconds: float | None) -> None:
        """Wake the pumps when the next task is due."""
        if seconds is not None:
            self._next_due = min(self._next_due, time.monotonic() + seconds)

    def _on_ready(self, *_: object) -> None:
        self._wake_pumps()

    def _wake_pumps(self) -> None:
        """Make the pumps claim."""
        self._is_queue_empty = False
        self._wakeups += 1
        self._wake.set()

    async def _report_running(self, connection: GatewayConnection) -> None:
        """Set tasks to RUNNING that have run for a moment; shorter ones need no extra call."""
        unreported = [
            running
            for running in self._running.values()
            if not running.is_reported and running.began is not None and not running.claim.runs_once
        ]
        if unreported:
            await connection.mark_running([running.claim.lease for running in unreported])
            for running in unreported:
                running.is_reported = True

    async def _reconcile(self, connection: GatewayConnection) -> None:
        """Compare the tasks of this process with the leases in the queue.

        Tasks that lost their lease or were cancelled are stopped. Leases with a lost claim response are released.
        """
        known_attempts = self._held_attempts()
        rows = await connection.held_leases(self._config.worker_id)
        rows_by_task = {row.lease.task_id: row for row in rows}
        for task_id, running in list(self._running.items()):
            row = rows_by_task.get(task_id)
            if row is None or row.lease != running.claim.lease:
                if _attempt_key(running.claim.lease) in known_attempts and running.is_reported:
                    running.request_stop(StopReason.LOST)
            elif row.cancelled:
                running.request_stop(StopReason.CANCELLED)
        self._outcomes += lost_claims(
            rows,
            known_attempts | self._held_attempts(),
            [exchange.began for exchange in self._in_flight],
            time.monotonic(),
        )
        self._wake.set()

    def _held_attempts(self) -> set[tuple[int, int]]:
        """Attempts that this process holds: buffered, running, or finished and not acknowledged."""
        leases = [running.claim.lease for running in self._running.values()]
        leases += self._buffer.leases()
        for outcomes in (self._outcomes, *(exchange.outcomes for exchange in self._in_flight)):
            leases += [outcome if isinstance(outcome, Lease) else outcome.lease for outcome in outcomes]
        return {_attempt_key(lease) for lease in leases}


def lost_claims(
    rows: Sequence[HeldLease], known_attempts: set[tuple[int, int]], request_times: Sequence[float], now: float
) -> list[Lease]:
    """Leases with a lost claim response: claimed before the oldest open request.

    `known_attempts` are those that the process held before or after it read `rows`; times are of the local clock.
    """
    min_age_seconds = now - min(request_times, default=now) + LOST_CLAIM_SECONDS
    return [
        row.lease for row in rows if _attempt_key(row.lease) not in known_attempts and row.age_seconds > min_age_seconds
    ]


def _attempt_key(lease: Lease) -> tuple[int, int]:
    return lease.task_id, lease.attempt
