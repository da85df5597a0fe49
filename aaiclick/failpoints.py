"""Failpoints: named commits at which tests can kill a process, raise an error or add a delay.

AAICLICK_FAULTS has a comma-separated list such as `complete.before=kill`, `claim.after=error`, `end.before=delay:0.5`;
`@3` at the end means the third pass. `before` is just before a commit, `after` just after it, before the caller gets
the result (`after=error` is a commit with a lost response). A fault triggers once per process; with a directory in
AAICLICK_FAULT_MARKS once in all processes, which leaves a marker file there.

Without AAICLICK_FAULTS no failpoint is armed, and each costs only a check.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncpg

VARIABLES = ("AAICLICK_FAULTS", "AAICLICK_FAULT_MARKS")


class FaultError(ConnectionError):
    """The simulated connection failure of an `error` fault."""


@dataclass(slots=True)
class Fault:
    """A fault, and how many passes it skips first."""

    mode: str
    seconds: float
    passes: int


_armed: dict[str, Fault] = {}
_marks: Path | None = None


def arm_faults(faults: str, marks: str | None = None) -> None:
    """Replace all armed faults."""
    global _marks
    _marks = Path(marks) if marks else None
    _armed.clear()
    for entry in filter(None, faults.split(",")):
        failpoint, _, action = entry.partition("=")
        action, _, nth = action.partition("@")
        mode, _, seconds = action.partition(":")
        if mode not in ("kill", "error", "delay"):
            raise ValueError(
                f"AAICLICK_FAULTS: {entry!r} is not FAILPOINT=kill, FAILPOINT=error or FAILPOINT=delay:SECONDS."
            )
        _armed[failpoint.strip()] = Fault(mode, float(seconds or 0), int(nth or 1) - 1)


def statement(name: str) -> AbstractAsyncContextManager[Any]:
    """Return a context manager around one statement that commits by itself."""
    return _wrap_statement(name) if _armed else _NO_FAULTS


def transaction(connection: asyncpg.Connection[asyncpg.Record], name: str) -> AbstractAsyncContextManager[Any]:
    """Return a transaction of `connection`; its commit is a failpoint."""
    return _wrap_transaction(connection, name) if _armed else connection.transaction()


_NO_FAULTS = nullcontext()


@asynccontextmanager
async def _wrap_statement(name: str) -> AsyncGenerator[None]:
    await _trigger(f"{name}.before")
    yield
    await _trigger(f"{name}.after")


@asynccontextmanager
async def _wrap_transaction(connection: asyncpg.Connection[asyncpg.Record], name: str) -> AsyncGenerator[None]:
    async with connection.transaction():
        yield
        await _trigger(f"{name}.before")
    await _trigger(f"{name}.after")


async def _trigger(failpoint: str) -> None:
    fault = _armed.get(failpoint)
    if fault is None:
        return
    if fault.passes:
        fault.passes -= 1
        return
    del _armed[failpoint]
    if not _claim_marker(failpoint):
        return
    if fault.mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.mode == "error":
        raise FaultError(f"Fault at {failpoint}, set by AAICLICK_FAULTS.")
    await asyncio.sleep(fault.seconds)


def _claim_marker(failpoint: str) -> bool:
    """Create the marker file; False if another process already did."""
    if _marks is None:
        return True
    try:
        os.close(os.open(_marks / failpoint, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


arm_faults(os.environ.get(VARIABLES[0], ""), os.environ.get(VARIABLES[1]))
