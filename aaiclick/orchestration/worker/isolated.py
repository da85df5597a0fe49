"""A task in a process of its own: for code that may not share one, and to find out which task ends its process.

When a worker process dies, nobody can say which of its tasks did it. All are given back uncharged, but from then on
each runs here, alone: the one that kills its process again is the culprit, and pays with an attempt; the others
finish. When memory runs out in a process of many, the one that is told of it need not be the one that took it: the same
is done. `--isolation process` runs every task this way.

A child is forked from a template that has imported everything (see `template`), so it is there within milliseconds. It
takes one task after the other, a line of JSON each, and answers with a line. Ending a task is ending its child, which
no code can refuse. Suspects are mostly innocent and short, and a child costs more than they do: a few children take
them one after the other, and there are more only when these are held up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import psutil

from aaiclick.orchestration.transport import Transport, forms
from aaiclick.orchestration.worker.executor import (
    Executor,
    Outcome,
    Running,
    ending_outcome,
    failed,
    make_running,
)
from aaiclick.orchestration.worker.logs import captured_output
from aaiclick.orchestration.worker.orders import Setup, in_words
from aaiclick.orchestration.worker.setup import make_executor
from aaiclick.orchestration.worker.template import Template, TemplateLostError, serve
from aaiclick.store.leases import CRASHED, Claim, Failure

LINE_BYTES = 1 << 30
KEPT = 2
"""Children that are kept when there are places for more than there are tasks."""
SOON_SECONDS = 0.25
"""How long a task waits for one of these to be free, before it gets another child."""


@dataclass(eq=False)
class Child:
    """A process that runs one task at a time."""

    pid: int
    template: Template
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """Its answer; None if it ended instead."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(json.dumps(order).encode() + b"\n")
            await self.writer.drain()
            line = await self.reader.readline()
            if line.endswith(b"\n"):
                return json.loads(line)
        return None

    async def end(self) -> int | None:
        """How it ended, if anybody knows."""
        self.writer.close()
        with contextlib.suppress(TemplateLostError):
            return await self.template.end(self.pid)
        return None


class Isolation:
    """Runs tasks in child processes, at most one at a time in each."""

    def __init__(
        self,
        setup: Setup,
        children: int,
        transport: Transport,
        template: Template | None = None,
        *,
        at_once: int | None = None,
    ) -> None:
        """Up to `children`, of which `at_once` are started without hesitation (all, if nothing is said)."""
        self._setup = setup
        self._at_once = children if at_once is None else at_once
        self._busy = 0
        self._freed = asyncio.Event()
        self._transport = transport
        self._template = template
        self._idle: list[Child] = []
        self._places = asyncio.Semaphore(children)

    async def run(self, running: Running) -> Outcome | None:
        """The outcome of a task run alone."""
        try:
            async with self._places:
                self._busy += 1  # before there is a child: others must not start theirs meanwhile
                try:
                    return await self._run(running)
                finally:
                    self._busy -= 1
                    self._freed.set()
        except asyncio.CancelledError:
            return ending_outcome(running)  # it was still waiting for a place
        except OSError as error:
            outcome = failed(running, f"No process could be started for this task: {error}.", CRASHED, permanent=False)
            return replace(outcome, charged=False, outcome="LOST")

    async def _run(self, running: Running) -> Outcome | None:
        child = await self._child()
        running.began = time.monotonic()
        try:
            left = running.deadline - running.began
            order = {"claim": forms.claim_form(running.claim), "told": self._transport.tell(), "seconds": left}
            answer = await child.ask(order)
        except asyncio.CancelledError:
            await child.end()
            return ending_outcome(running)
        if answer is None:
            code = await child.end()
            how = "its template" if code is None else in_words(code)
            return failed(running, f"The process of this task ended with {how}.", CRASHED, permanent=False)
        if len(self._idle) < KEPT or self._places.locked():  # others may wait for it
            self._idle.append(child)
        else:
            await child.end()
        return forms.outcome_of(answer)

    async def close(self) -> None:
        for child in self._idle:
            child.writer.close()
        self._idle.clear()
        if self._template is not None:
            await self._template.close()

    async def _child(self) -> Child:
        child = await self._idle_child()
        patient_until = time.monotonic() + SOON_SECONDS
        while child is None and self._busy > self._at_once and (left := patient_until - time.monotonic()) > 0:
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), left)
            child = await self._idle_child()
        return child or await self._new_child()

    async def _idle_child(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if not child.reader.at_eof() and _lives(child.pid):
                return child
            await child.end()  # it was killed while it had nothing to do: no task is to blame
        return None

    async def _new_child(self) -> Child:
        template = self._template
        try:
            return await self._start()
        except TemplateLostError:
            if template is not None and template is self._template:  # else another task has noticed before
                self._template = None
                await template.close()
            return await self._start()

    async def _start(self) -> Child:
        template = self._template = self._template or Template.spawn(__name__)
        ours, theirs = socket.socketpair()
        try:
            pid = await template.start(theirs)
        except BaseException:
            ours.close()  # if a child comes all the same, it finds nobody and ends
            raise
        reader, writer = await _streams(ours)
        writer.write(self._setup.to_json().encode() + b"\n")
        return Child(pid, template, reader, writer)


async def _streams(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    end.setblocking(False)
    return await asyncio.open_unix_connection(sock=end, limit=LINE_BYTES)


def suspected(outcome: Outcome | None) -> Outcome | None:
    """The outcome of a task that had company: out of memory, it is tried alone before it pays."""
    if isinstance(outcome, Failure) and outcome.fingerprint.startswith(f"{MemoryError.__name__}:"):
        return replace(outcome, fingerprint=CRASHED, charged=False, delay_seconds=0.0, outcome="LOST")
    return outcome


def _lives(pid: int) -> bool:
    """Its end of the socket may be heard of a moment after its death."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- the child ----------------------------------------------------------------------------------------------------


def work_alone(end: socket.socket) -> None:
    """What a child does: take tasks from a socket until it ends."""
    with captured_output():
        asyncio.run(_serve(end))


async def _serve(end: socket.socket) -> None:
    reader, writer = await _streams(end)
    setup = Setup.from_json((await reader.readline()).decode())
    executor = await make_executor(setup, threads=1)
    while line := await reader.readline():
        order = json.loads(line)
        executor.transport.hear(order["told"])
        writer.write(await _answer(executor, forms.claim_of(order["claim"]), setup, order["seconds"]))
        await writer.drain()


async def _answer(executor: Executor, claim: Claim, setup: Setup, seconds: float) -> bytes:
    running = make_running(claim, setup.log_directory, seconds, spooled=executor.transport.sends_logs)
    running.deadline = time.monotonic() + seconds  # its parent keeps the time; publishing has to end before
    outcome = await executor.execute(running)
    assert outcome is not None  # noqa: S101  (a lease is lost only to the parent's knowledge)
    return json.dumps(forms.outcome_form(outcome)).encode() + b"\n"


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), work_alone)
