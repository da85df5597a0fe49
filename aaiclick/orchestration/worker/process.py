"""A warm worker process: it claims tasks in batches, runs many at once, and acknowledges them in batches.

Two *pumps*, each with a line of its own, do the traffic with the queue: acknowledge what has finished, claim
what there is room for. While one waits for an answer the other works, and outcomes that come in meanwhile form the
next batch: under load batches grow by themselves, without load a task is claimed and acknowledged at once. Nothing
spins: an idle pump waits for a notification, for a timer, or for a task to finish.

How many tasks are claimed ahead of running follows the rate at which they finish: many for tasks of microseconds,
none for tasks of seconds, which other workers could begin meanwhile.

A process of a runtime (`Summons`) claims when it is called: as many tasks as it has heard messages.

The process knows nothing of heartbeats: its supervisor, which runs no code of tasks and so cannot be held up by it,
keeps the leases and ends a process that does not let go of a task (see `supervisor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from aaiclick.orchestration.steady import steadily
from aaiclick.orchestration.transport import Line, Transport
from aaiclick.orchestration.transport.line import GONE, REFUSED, patience
from aaiclick.orchestration.worker.claim_buffer import ClaimBuffer
from aaiclick.orchestration.worker.executor import (
    Ending,
    Executor,
    Outcome,
    Running,
    ending_outcome,
    failed,
    make_running,
    refused,
)
from aaiclick.orchestration.worker.isolated import Isolation, suspected
from aaiclick.orchestration.worker.orders import Duty
from aaiclick.orchestration.worker.summons import Summons
from aaiclick.store.leases import Claim, Failure, Lane, Lease, Success, Tally
from aaiclick.store.supervision import Held

TICK_SECONDS = 0.05
POLL_SECONDS = 1.0
AHEAD_SECONDS = 0.05
MOST_AHEAD = 1000
MOST_AT_ONCE = 1000
STALE_SECONDS = 1.0
SURE_SECONDS = 0.25
"""So much longer ago than any question that waits for its answer was asked: the answer must have been lost."""
STUMBLED = "worker stumbled"
RECONNECT_SECONDS = (0.05, 0.2, 1.0, 2.0)
PUMPS = 2

_logger = logging.getLogger(__name__)


class Talk(NamedTuple):
    """What was said and asked, and not answered yet."""

    began: float
    outcomes: list[Outcome]


class WorkerProcess:
    """Holds tasks, and what has come of them until the queue knows."""

    def __init__(
        self,
        duty: Duty,
        transport: Transport,
        executor: Executor,
        isolation: Isolation,
        summons: Summons | None = None,
    ) -> None:
        self._duty = duty
        self._summons = summons
        self._transport = transport
        self._executor = executor
        self._isolation = isolation
        self._running: dict[int, Running] = {}
        self._deaf: set[int] = set()
        self._ahead = ClaimBuffer()
        self._outcomes: list[Outcome] = []
        self._wake = asyncio.Event()
        self._empty = False
        self._stopping = False
        self._asking = 0
        self._talks: list[Talk] = []
        self._taken = 0
        self._exchanges = 0
        self._finished = 0
        self._rate = 0.0
        self._due = math.inf
        self._due_unknown = False
        self._lanes: dict[int, Lane] = {}
        self._tallies: defaultdict[Lane, Tally] = defaultdict(Tally)

    async def run(self) -> None:
        """Work until told to stop, or until `max_tasks` or `drain` says that it is enough."""
        beside = [asyncio.create_task(steadily(work)) for work in (self._tick, self._attend)]
        if self._summons is not None:
            beside.append(asyncio.create_task(steadily(self._summons.listen, self._free, self._wake.set)))
        try:
            async with asyncio.TaskGroup() as pumps:
                for _ in range(PUMPS):
                    pumps.create_task(self._pump())
        finally:
            for work in beside:
                work.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if self._summons is not None:
                await self._summons.close()

    def stop(self) -> None:
        """Claim nothing more; give back what has not begun; let the rest finish."""
        self._stopping = True
        self._give_back_unbegun()
        self._wake.set()

    def release_all(self) -> None:
        """End what still runs and give it back: somebody else finishes it."""
        for running in list(self._running.values()):
            running.end(Ending.RELEASED)

    @property
    def _done(self) -> bool:
        """Whether nothing is held, nothing is under way and nothing more is wanted."""
        if len(self._running) > len(self._deaf) or self._ahead or self._outcomes or self._talks:
            return False
        nothing_left = self._empty if self._summons is None else self._summons.silent
        return self._stopping or self._enough or (self._duty.drain and nothing_left)

    @property
    def worn(self) -> bool:
        """Whether code of a task that others have by now does not end: nothing but the end of the process does that."""
        return bool(self._deaf)

    @property
    def _enough(self) -> bool:
        return self._duty.max_tasks is not None and self._taken >= self._duty.max_tasks

    # --- the pumps ----------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Acknowledge and claim over one line, which is opened again for as long as it takes."""
        failures = 0
        while not self._done:
            said = self._exchanges
            try:
                line = await self._transport.open()
                try:
                    await self._pump_over(line, failures)
                    await self._report(line)
                finally:
                    await line.close()
            except GONE:
                failures = 0 if self._exchanges > said else failures + 1
                await asyncio.sleep(RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)])
        self._wake.set()

    async def _pump_over(self, line: Line, failures: int) -> None:
        while not self._done:
            await self._let_finish()
            # Nothing is awaited until it is counted as asked for: the other pump wants the rest.
            wanted = self._wanted()
            if not self._outcomes and not wanted:
                await self._something_to_do()
                continue
            outcomes, self._outcomes = self._outcomes, []
            self._asking += wanted
            talk = Talk(time.monotonic(), outcomes)
            self._talks.append(talk)
            try:
                with line.answering_within(patience(self._duty.lease_seconds / 2, failures)):
                    claims = await self._exchange(line, outcomes, wanted)
            except BaseException:
                self._outcomes = outcomes + self._outcomes  # the queue may not know them: they are said again
                raise
            finally:
                self._asking -= wanted
                self._talks.remove(talk)
            failures = 0
            self._take(claims, wanted)

    async def _let_finish(self) -> None:
        """Tasks that end at once end together: go on while each turn of the loop brings more outcomes."""
        seen = -1
        while seen < len(self._outcomes) < MOST_AT_ONCE:
            seen = len(self._outcomes)
            await asyncio.sleep(0)

    async def _exchange(self, line: Line, outcomes: list[Outcome], wanted: int) -> Sequence[Claim]:
        """Say and ask. What cannot be stored holds up nobody: then each outcome is said by itself, and those that are
        refused are failures. `outcomes` are taken away as they are heard.
        """
        try:
            return await self._ask(line, outcomes, wanted)
        except REFUSED:
            if not outcomes:
                raise
        while outcomes:
            try:
                await self._ask(line, outcomes[:1], 0)
            except REFUSED as error:
                await self._ask(line, [refused(outcomes[0], error)], 0)
            del outcomes[0]
        return ()

    async def _ask(self, line: Line, outcomes: list[Outcome], wanted: int) -> Sequence[Claim]:
        """An outcome that is not accepted belongs to an attempt that somebody else has: nothing is to be done."""
        accepted, claims = await line.exchange(
            worker_id=self._duty.worker_id,
            successes=[outcome for outcome in outcomes if isinstance(outcome, Success)],
            failures=[outcome for outcome in outcomes if isinstance(outcome, Failure)],
            releases=[outcome for outcome in outcomes if isinstance(outcome, Lease)],
            limit=wanted,
            queues=self._duty.queues,
            lease_seconds=self._duty.lease_seconds,
        )
        self._exchanges += 1
        self._count(outcomes, accepted)
        if self._due_unknown or any(isinstance(said, Failure) for said in outcomes):
            self._due_unknown = False
            self._expect(await line.next_due())
        return claims

    def _count(self, outcomes: Sequence[Outcome], accepted: set[int]) -> None:
        for said in outcomes:
            if isinstance(said, Lease):
                continue
            lane = self._lanes.pop(said.lease.task_id, None)
            if lane is None or said.lease.task_id not in accepted:
                continue
            if isinstance(said, Success):
                self._tallies[lane].completed += 1
            elif said.outcome != "RELEASED":
                self._tallies[lane].failed += 1

    async def _something_to_do(self) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), POLL_SECONDS)

    def _wanted(self) -> int:
        """How many more tasks to claim now."""
        if self._stopping or self._empty or self._enough:
            return 0
        ahead = min(MOST_AHEAD, int(self._rate * AHEAD_SECONDS))
        room = self._duty.concurrency + ahead - len(self._running) - len(self._ahead) - self._asking
        if self._duty.max_tasks is not None:
            room = min(room, self._duty.max_tasks - self._taken - self._asking)
        if self._summons is not None:
            room = min(room, self._summons.heard - self._asking)
        return max(0, room)

    def _free(self) -> int:
        """How many more tasks could begin at once."""
        return 0 if self._stopping or self._enough else self._duty.concurrency - len(self._running) - len(self._ahead)

    def _take(self, claims: Sequence[Claim], wanted: int) -> None:
        self._taken += len(claims)
        self._empty = len(claims) < wanted
        if self._summons is not None:
            self._empty = False  # what was not there for one message may be there for the next
            self._summons.answered(wanted)
        now = time.monotonic()
        for claim in claims:
            self._ahead.push(claim, now)
        while self._ahead and len(self._running) < self._duty.concurrency and not self._stopping:
            self._begin(self._ahead.pop())
        if self._stopping:  # since they were asked for; nobody would end what begins now
            self._give_back_unbegun()

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _begin(self, claim: Claim) -> None:
        running = make_running(
            claim, self._duty.log_directory, self._duty.task_timeout_seconds, spooled=self._transport.sends_logs
        )
        self._running[claim.lease.task_id] = running
        running.job = asyncio.create_task(self._work(running))

    async def _work(self, running: Running) -> None:
        running.begun = True
        try:
            outcome = await self._outcome(running)
        except Exception as error:
            _logger.exception("Task %s: this should not have happened.", running.claim.lease.task_id)
            outcome = failed(
                running, f"The worker stumbled over it: {type(error).__name__}.", STUMBLED, permanent=False
            )
        if self._executor.witness is not None:
            self._executor.witness.ended(running, outcome)
        if self._transport.sends_logs and running.began is not None:
            await self._pass_on(running)
        del self._running[running.claim.lease.task_id]
        self._deaf.discard(running.claim.lease.task_id)
        self._finished += 1
        if outcome is not None:
            self._outcomes.append(outcome)
            if not isinstance(outcome, Lease):
                self._lanes[running.claim.lease.task_id] = running.claim.org_id, running.claim.queue
        if self._ahead and not self._stopping:
            self._begin(self._ahead.pop())
        self._wake.set()

    async def _outcome(self, running: Running) -> Outcome | None:
        if running.ending is not None:
            return ending_outcome(running)
        if self._duty.isolate or running.claim.suspect:
            return await self._isolation.run(running)
        return suspected(await self._executor.execute(running))

    async def _pass_on(self, running: Running) -> None:
        """Send the log while the lease holds; what the supervisor has sent of it before is overwritten with the same.

        A log that cannot be sent does not change the outcome.
        """
        running.job = None  # nothing more is to be told to the task
        with contextlib.suppress(*GONE):
            line = await self._transport.open()
            await line.send_log(running.claim.lease, running.log.path, 0)
        with contextlib.suppress(OSError):
            running.log.path.unlink()

    def _give_back_unbegun(self) -> None:
        self._outcomes.extend(self._ahead.leases())
        self._ahead.clear()

    # --- beside the pumps ---------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Time limits, the rate of finishing, and what was claimed too early."""
        while True:
            before = self._finished
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._rate = 0.7 * self._rate + 0.3 * (self._finished - before) / TICK_SECONDS
            for running in list(self._running.values()):
                if now > running.deadline:
                    running.end(Ending.TIMEOUT)
                if running.ending is Ending.LOST and now - running.told_at > self._duty.grace_seconds:
                    self._wear_out(running)
            if self._ahead.is_stale(now - STALE_SECONDS):
                self._give_back_unbegun()
                self._wake.set()
            if now >= self._due:
                self._due, self._due_unknown = math.inf, True  # who looks also asks what is due after this
                self._look()

    def _wear_out(self, running: Running) -> None:
        """Code of a task that others have by now goes on: it would keep its place here for ever."""
        self._deaf.add(running.claim.lease.task_id)
        if not self._stopping:
            _logger.warning("Task %s does not end. This process finishes, to be replaced.", running.claim.lease.task_id)
            self.stop()

    async def _attend(self) -> None:
        """A third line: it hears of new work and of cancels, and says which tasks run."""
        failures = 0
        while True:
            began, seconds = time.monotonic(), patience(self._duty.lease_seconds / 2, failures)
            with contextlib.suppress(*GONE):
                line = await self._transport.open()
                try:
                    await self._attend_over(line, seconds)
                finally:
                    await line.close()
            failures = 0 if time.monotonic() - began > 2 * seconds else failures + 1
            await asyncio.sleep(POLL_SECONDS)

    async def _attend_over(self, line: Line, patience_seconds: float) -> None:
        cancels = asyncio.Event()

        def on_cancel(*_: object) -> None:
            cancels.set()

        with line.answering_within(patience_seconds):
            await line.listen(self._on_ready, on_cancel)
        checked = 0.0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            look = now - checked > POLL_SECONDS or cancels.is_set()
            with line.answering_within(patience_seconds):
                await self._announce(line)
                if look:
                    checked = now
                    cancels.clear()
                    await self._look_after(line)

    async def _look_after(self, line: Line) -> None:
        await self._reconcile(line)
        await self._report(line)
        self._look()
        self._expect(await line.next_due())

    def _expect(self, seconds: float | None) -> None:
        """Something becomes due then: look for work at that moment."""
        if seconds is not None:
            self._due = min(self._due, time.monotonic() + seconds)

    def _on_ready(self, *_: object) -> None:
        self._look()

    def _look(self) -> None:
        """There may be work."""
        self._empty = False
        self._wake.set()

    async def _announce(self, line: Line) -> None:
        """Tasks that have run for a moment are RUNNING; those that end sooner are never told of twice."""
        begun = [running for running in self._running.values() if not running.announced and running.began is not None]
        if begun:
            await line.start([running.claim.lease for running in begun])
            for running in begun:
                running.announced = True

    async def _report(self, line: Line) -> None:
        """Add to the counters of the worker's row, and of queues."""
        if self._tallies:
            tallies, self._tallies = self._tallies, defaultdict(Tally)
            await line.count(self._duty.worker_id, tallies)

    async def _reconcile(self, line: Line) -> None:
        """Compare what we hold with what the queue says we hold.

        A lease that it gave to another: the task here ends. A cancel: likewise. A lease that we never heard of, because
        the answer to a claim was lost on the way: it is given back.
        """
        known = self._held()
        rows = await line.held(self._duty.worker_id)
        theirs = {row.lease.task_id: row for row in rows}
        for task_id, running in list(self._running.items()):
            row = theirs.get(task_id)
            if row is None or row.lease != running.claim.lease:
                if _attempt(running.claim.lease) in known and running.announced:
                    running.end(Ending.LOST)
            elif row.cancelled:
                running.end(Ending.CANCELLED)
        self._outcomes += unheard_of(rows, known | self._held(), [talk.began for talk in self._talks], time.monotonic())
        self._wake.set()

    def _held(self) -> set[tuple[int, int]]:
        """The attempts that we know of."""
        leases = [running.claim.lease for running in self._running.values()]
        leases += self._ahead.leases()
        for outcomes in (self._outcomes, *(talk.outcomes for talk in self._talks)):
            leases += [outcome if isinstance(outcome, Lease) else outcome.lease for outcome in outcomes]
        return {_attempt(lease) for lease in leases}


def unheard_of(rows: Sequence[Held], known: set[tuple[int, int]], asked: Sequence[float], now: float) -> list[Lease]:
    """Leases that the queue has given us and whose answer was lost: claimed before anything was asked that still waits.

    `known` are the attempts that we knew of before or after the queue said what we hold; times are of our own clock.
    """
    sure = now - min(asked, default=now) + SURE_SECONDS
    return [row.lease for row in rows if _attempt(row.lease) not in known and row.age_seconds > sure]


def _attempt(lease: Lease) -> tuple[int, int]:
    return lease.task_id, lease.attempt
