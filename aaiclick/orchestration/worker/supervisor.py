"""The supervisor of a worker: it starts the processes that run tasks, keeps their leases, and ends what does not end.

It runs no code of tasks, so nothing a task does can hold it up: not a loop that never yields, not an extension that
keeps the interpreter's lock, not a full memory in another process. That is why heartbeats and time limits are its
work.

- *Heartbeat.* All leases of its living processes are extended together. A process that has died is found by the
  system, at once; its tasks are given back, marked as suspects, and run alone from then on (see `isolated`).
- *Time limits and cancels.* A process ends its tasks by itself when it can. One that still holds a task
  `grace_seconds` past its end is killed; that task is charged, the others of the process are not.
- *Loops.* Expired leases, due retries, dead workers, timeouts of jobs, schedules: each supervisor offers to lead (see
  `loops`). Events of datasets are routed by whoever is there first.
- *Stop.* At SIGTERM or SIGINT processes claim nothing more and finish; after `stop_seconds` (or at a second signal)
  what still runs is given back, and what does not listen even then is killed. Nobody is left behind, whether the
  queue is there or not; a queue that is away is waited for as long as processes are.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import math
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from aaiclick._version import __version__
from aaiclick.errors import EntrypointError, ForbiddenError, UnauthorisedError, UnreachableError
from aaiclick.orchestration.loops import router, tidy_logs
from aaiclick.orchestration.loops.keeper import TERM_SECONDS
from aaiclick.orchestration.steady import steadily
from aaiclick.orchestration.transport import Line, Transport, make_transport
from aaiclick.orchestration.transport.line import GONE, Registration, patience
from aaiclick.orchestration.worker.log_shipping import SHIP_SECONDS, LogShipper
from aaiclick.orchestration.worker.orders import FINISHED, UNFIT, Duty, Setup, in_words
from aaiclick.settings import get_settings
from aaiclick.snowflake import get_snowflake_id
from aaiclick.store import supervision
from aaiclick.targets import PostgresTarget, RuntimeTarget

AGAIN_SECONDS = 0.25
TURNS_IN_TERM = 3
LOOP_SECONDS = TERM_SECONDS / TURNS_IN_TERM
LOOPS_IN_LEASE = 10
RESTART_SECONDS = (0.0, 0.5, 2.0, 5.0)
STEADY_SECONDS = 5.0
"""A process that ran this long was killed, or killed by a task; sooner, it may never work."""
TELL_SECONDS = 3.0
GIVE_UP_SECONDS = 5.0
HOUSE_SECONDS = 30.0
"""What loops do at once may take a while; nobody's lease depends on it."""

_logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What `aaiclick worker start` was asked for."""

    processes: int
    duty: Duty
    setup: Setup
    heartbeat_seconds: float
    stop_seconds: float
    runtimes: tuple[RuntimeTarget, ...] = ()
    """Runtimes elsewhere that are told of their tasks from here."""
    again_seconds: float = 60.0


@dataclass
class Child:
    """One process and the worker row that stands for it."""

    worker_id: int
    process: Process
    started: float = field(default_factory=time.monotonic)
    overdue: list[supervision.Overdue] = field(default_factory=list)
    drained: bool = False


class Absence:
    """How long the queue has been away, said once and taken back once, whoever notices."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told = False
        self._hopeless_from = math.inf

    def noticed(self, error: BaseException) -> None:
        """It is away."""
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        if not self._told and now - self._since >= TELL_SECONDS:
            self._told = True
            _logger.warning("%s %s", str(error).partition("\n")[0], _what_now(error))

    def stopping(self) -> None:
        """From now on it is waited for only so long, however long it was away before."""
        self._hopeless_from = min(self._hopeless_from, time.monotonic() + GIVE_UP_SECONDS)

    @property
    def ending(self) -> bool:
        return self._hopeless_from < math.inf

    @property
    def hopeless(self) -> bool:
        return time.monotonic() > self._hopeless_from

    def over(self) -> None:
        if self._told:
            _logger.warning("It is back.")
        self._since, self._told = None, False


def _what_now(error: BaseException) -> str:
    if isinstance(error, UnauthorisedError | ForbiddenError):
        return "Nothing begins until it does; to use another credential, start the worker with it."
    return "Waiting for it; tasks go on meanwhile."


class Insistent:
    """A line for work that must be done, however long the queue is away; one piece of it at a time.

    Only a worker that is to stop, and has no process left that might have something to say, gives up in the end: what
    it held is given to others when its leases run out.
    """

    def __init__(
        self, transport: Transport, absence: Absence, children: Mapping[int, Child], patience_seconds: float
    ) -> None:
        self._transport = transport
        self._patience_seconds = patience_seconds
        self._absence = absence
        self._children = children
        self._lock = asyncio.Lock()
        self._line: Line | None = None

    async def do(self, work: Callable[[Line], Awaitable[T]]) -> T:
        async with self._lock:
            failures = 0
            while True:
                seconds = patience(self._patience_seconds, failures)
                if self._absence.ending and not self._children:
                    seconds = min(seconds, GIVE_UP_SECONDS)
                try:
                    if self._line is None or self._line.closed:
                        async with asyncio.timeout(seconds):
                            self._line = await self._transport.open()
                    with self._line.answering_within(seconds):
                        done = await work(self._line)
                except GONE as error:
                    failures += 1
                    self.close()
                    self._absence.noticed(error)
                    # One line that has fallen silent says nothing of the queue: another is tried in any case.
                    if self._absence.hopeless and not self._children and failures > 1:
                        raise UnreachableError(
                            f"The worker has stopped, and could not say so: {self._transport.name} is away.",
                            remedy="What it held is given to others when its leases have run out.",
                        ) from error
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    self._absence.over()
                    return done

    def close(self) -> None:
        if self._line is not None:
            self._line.terminate()
            self._line = None


class Supervisor:
    """Keeps a number of processes working until told to stop."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._children: dict[int, Child] = {}
        self._stopping = asyncio.Event()
        self._transport = make_transport(plan.setup.work, plan.setup.clickhouse, sends_logs=plan.setup.sends_logs)
        self._shipper = LogShipper(plan.setup.log_directory)
        self._absence = Absence()
        lease = plan.duty.lease_seconds
        house = max(lease, HOUSE_SECONDS)
        self._births, self._leases, self._limits, self._loops, self._events, self._runtimes, self._logs = (
            Insistent(self._transport, self._absence, self._children, seconds)
            for seconds in (lease, lease / 3, lease, house, house, house, house)
        )
        self._bell = router.Bell()
        self._heard = time.monotonic()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """First call: finish. Second call: give back what runs, now."""
        if self._stopping.is_set():
            self._hang_up()
        self._stopping.set()
        self._absence.stopping()
        for child in self._children.values():
            _signal(child.process, signal.SIGTERM)

    async def run(self) -> None:
        """Work until all processes have ended for good; only then says what went wrong with one of them."""
        beside = (
            self._keep_leases, self._end_overdue, self._lead, self._route, self._dispatch, self._tidy, self._hurry,
            self._ship_logs,
        )  # fmt: skip
        keepers = [asyncio.create_task(steadily(work, until=(UnreachableError,))) for work in beside]
        try:
            places = [self._keep_one() for _ in range(self._plan.processes)]
            ends = await asyncio.gather(*places, return_exceptions=True)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            for line in (
                self._births, self._leases, self._limits, self._loops, self._events, self._runtimes, self._logs,
            ):  # fmt: skip
                line.close()
            await self._transport.close()
        errors = [end for end in ends if end is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, UnreachableError)):
            raise error

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _keep_one(self) -> None:
        """One place for a process: filled again whenever it falls empty, until the work or the worker ends."""
        failures = 0
        while not self._stopping.is_set():
            child = await self._start()
            code = await child.process.wait()
            del self._children[child.worker_id]
            await self._settle(child, code)
            if code == UNFIT:
                self.stop()
                raise EntrypointError("The worker cannot run: its processes cannot be set up (see above).")
            if code == FINISHED or child.drained:
                return
            if not self._stopping.is_set():
                _logger.warning("A process ended by %s. A new one takes its place, and its tasks.", in_words(code))
            failures = failures + 1 if time.monotonic() - child.started < STEADY_SECONDS else 0
            with contextlib.suppress(TimeoutError):
                pause = RESTART_SECONDS[min(failures, len(RESTART_SECONDS) - 1)]
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _start(self) -> Child:
        worker_id = get_snowflake_id()
        await self._births.do(lambda line: line.register(self._registration(worker_id)))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aaiclick.orchestration.worker.main", stdin=PIPE, start_new_session=True
        )
        assert process.stdin is not None  # noqa: S101
        duty = replace(self._plan.duty, worker_id=worker_id)
        order = {"setup": self._plan.setup.to_json(), "duty": duty.to_json()}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        child = self._children[worker_id] = Child(worker_id, process)
        if self._stopping.is_set():  # meanwhile: nobody has told this one
            _signal(process, signal.SIGTERM)
        return child

    def _registration(self, worker_id: int) -> Registration:
        duty = self._plan.duty
        return Registration(
            worker_id, socket.gethostname(), os.getpid(), duty.concurrency, __version__, duty.queues, duty.log_directory
        )

    async def _settle(self, child: Child, code: int) -> None:
        """A process has ended: what it still held goes back, and whoever did it pays if we know."""
        crashed = None if code == FINISHED or child.overdue else in_words(code)

        async def settle(line: Line) -> None:
            if self._transport.sends_logs:
                await self._shipper.ship_last(line, child.worker_id)
            await line.settle(child.worker_id, child.overdue, crashed)

        await self._births.do(settle)

    def _hang_up(self) -> None:
        """Processes take the end of their input as the order to give everything back."""
        for child in self._children.values():
            if child.process.stdin is not None:
                child.process.stdin.close()

    async def _hurry(self) -> None:
        """After `stop_seconds` of stopping, do not wait for tasks any longer."""
        await self._stopping.wait()
        await self._all_gone(self._plan.stop_seconds)
        self._hang_up()
        await self._all_gone(self._plan.duty.grace_seconds)
        for child in self._children.values():
            _signal(child.process, signal.SIGKILL)

    async def _all_gone(self, seconds: float) -> None:
        ends = [asyncio.create_task(child.process.wait()) for child in self._children.values()]
        if ends:
            await asyncio.wait(ends, timeout=seconds)

    # --- beside them --------------------------------------------------------------------------------------------------

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._plan.heartbeat_seconds)
            await self._leases.do(self._extend)

    async def _extend(self, line: Line) -> None:
        """After a silence (of the queue, or of ours: machines are suspended) we may have been taken for dead, and even
        forgotten. Others have our tasks by now; who is not registered again would never lead nor be seen.
        """
        lease, now = self._plan.duty.lease_seconds, time.monotonic()
        if now - self._heard > lease / 2:
            for worker_id in [*self._children]:
                await line.register(self._registration(worker_id))
        await line.keep_leases(list(self._children), lease)
        self._heard = now

    async def _end_overdue(self) -> None:
        """Kill a process that holds a task which should have ended: nothing else ends code that does not listen."""
        while True:
            await asyncio.sleep(self._transport.check_seconds)
            found = await self._limits.do(self._overdue)
            for task in found:
                child = self._children.get(task.worker_id)
                if child is not None:
                    child.overdue.append(task)
                    _signal(child.process, signal.SIGKILL)

    async def _lead(self) -> None:
        """Offer to lead, and run the loops while we do; whoever does it, all live by them."""
        while True:
            if self._children:
                await self._loops.do(self._run_loops)
            await asyncio.sleep(self._loop_seconds)

    @property
    def _loop_seconds(self) -> float:
        """Short leases are meant to be missed soon."""
        return min(LOOP_SECONDS, self._plan.duty.lease_seconds / LOOPS_IN_LEASE)

    async def _run_loops(self, line: Line) -> None:
        worker_id = next(iter(self._children), None)
        if worker_id is not None:
            await line.keep_house(worker_id, TURNS_IN_TERM * self._loop_seconds)
            for drained in await line.draining(list(self._children)):
                child = self._children.get(drained)
                if child is not None and not child.drained:
                    child.drained = True
                    _signal(child.process, signal.SIGTERM)

    async def _route(self) -> None:
        """Route events of datasets as soon as there are any; a server does so for those who come to it."""
        while isinstance(self._plan.setup.work, PostgresTarget):
            await self._events.do(self._route_once)
            await self._bell.wait(router.POLL_SECONDS)

    async def _tidy(self) -> None:
        await tidy_logs.run(self._plan.duty.log_directory, keep_seconds=get_settings().retention_seconds)

    async def _ship_logs(self) -> None:
        """Send logs of an HTTP worker while their tasks run."""
        while self._transport.sends_logs:
            await asyncio.sleep(SHIP_SECONDS)
            if await self._shipper.has_unsent():
                await self._logs.do(lambda line: self._shipper.ship(line, list(self._children)))

    async def _route_once(self, line: Line) -> None:
        await self._bell.listen(line.connection)
        await router.run_once(line.connection)

    async def _dispatch(self) -> None:
        """Tell runtimes elsewhere of their tasks."""
        if not self._plan.runtimes or not isinstance(self._plan.setup.work, PostgresTarget):
            return
        loop = importlib.import_module("aaiclick.orchestration.loops.dispatcher")  # for those who have runtimes
        dispatcher = loop.Dispatcher(
            self._plan.runtimes,
            again_seconds=self._plan.again_seconds,
            lease_seconds=self._plan.duty.lease_seconds,
        )
        while True:
            await self._runtimes.do(lambda line: dispatcher.run_once(line.connection))
            await asyncio.sleep(loop.POLL_SECONDS)

    async def _overdue(self, line: Line) -> list[supervision.Overdue]:
        duty = self._plan.duty
        return await line.overdue(list(self._children), duty.grace_seconds, duty.task_timeout_seconds)


def _signal(process: Process, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sign)
