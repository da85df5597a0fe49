"""A task in a process of its own: for code that may not share one, and to find out which task ends its process.

When a worker process dies, nobody can say which of its tasks did it. All are given back uncharged, but from then on
each runs here, alone: the one that kills its process again is the culprit, and pays with an attempt; the others
finish. When memory runs out in a process of many, the one that is told of it need not be the one that took it: the same
is done. `--isolation process` runs every task this way.

A child is warm: it takes one task after the other, a line of JSON each, and answers with a line. Ending a task is
ending its child, which no code can refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

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
from aaiclick.orchestration.worker.orders import Setup
from aaiclick.orchestration.worker.setup import make_executor
from aaiclick.store.leases import CRASHED, Claim, Failure

LINE_BYTES = 64_000_000
FOREVER_SECONDS = 1e9
"""The child keeps no time: its parent does."""


class Isolation:
    """Runs tasks in child processes, at most one at a time in each."""

    def __init__(self, setup: Setup, children: int, transport: Transport) -> None:
        self._setup = setup
        self._transport = transport
        self._idle: list[Process] = []
        self._places = asyncio.Semaphore(children)

    async def run(self, running: Running) -> Outcome | None:
        """The outcome of a task run alone."""
        try:
            async with self._places:
                return await self._run(running)
        except asyncio.CancelledError:
            return ending_outcome(running)  # it was still waiting for a place

    async def _run(self, running: Running) -> Outcome | None:
        child = self._idle.pop() if self._idle else await self._start()
        running.started_at = datetime.now(UTC)
        try:
            answer = await _ask(child, {"claim": forms.claim_form(running.claim), "told": self._transport.tell()})
        except asyncio.CancelledError:
            child.kill()
            await child.wait()
            return ending_outcome(running)
        if answer is None:
            code = await child.wait()
            return failed(running, f"The process of this task ended with {_exit(code)}.", CRASHED, permanent=False)
        self._idle.append(child)
        return forms.outcome_of(answer)

    async def close(self) -> None:
        for child in self._idle:
            child.kill()
            await child.wait()
        self._idle.clear()

    async def _start(self) -> Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aaiclick.orchestration.worker.isolated", stdin=PIPE, stdout=PIPE, limit=LINE_BYTES
        )
        assert child.stdin is not None  # noqa: S101
        child.stdin.write(self._setup.to_json().encode() + b"\n")
        return child


def suspected(outcome: Outcome | None) -> Outcome | None:
    """The outcome of a task that had company: out of memory, it is tried alone before it pays."""
    if isinstance(outcome, Failure) and outcome.fingerprint.startswith(f"{MemoryError.__name__}:"):
        return replace(outcome, fingerprint=CRASHED, charged=False, delay_seconds=0.0, outcome="LOST")
    return outcome


async def _ask(child: Process, order: dict[str, Any]) -> dict[str, Any] | None:
    assert child.stdin is not None  # noqa: S101
    assert child.stdout is not None  # noqa: S101
    with contextlib.suppress(ConnectionError):
        child.stdin.write(json.dumps(order).encode() + b"\n")
        await child.stdin.drain()
        line = await child.stdout.readline()
        if line.endswith(b"\n"):
            return json.loads(line)
    return None


def _exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


# --- the child ----------------------------------------------------------------------------------------------------


async def _serve() -> None:
    """Take tasks from standard input until it ends; answers go to a copy of standard output that no task can reach."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    setup = Setup.from_json((await reader.readline()).decode())
    executor = await make_executor(setup, threads=1)
    while line := await reader.readline():
        order = json.loads(line)
        executor.transport.hear(order["told"])
        answers.write(await _answer(executor, forms.claim_of(order["claim"]), setup))


async def _answer(executor: Executor, claim: Claim, setup: Setup) -> bytes:
    running = make_running(claim, setup.log_directory, FOREVER_SECONDS)
    outcome = await executor.execute(running)
    assert outcome is not None  # noqa: S101  (a lease is lost only to the parent's knowledge)
    return json.dumps(forms.outcome_form(outcome)).encode() + b"\n"


if __name__ == "__main__":
    with captured_output():
        asyncio.run(_serve())
