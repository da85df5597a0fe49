"""Faults on purpose, for tests: a process can be told to die, fail or dawdle at a named commit.

AAICLICK_FAULTS says where and how: `complete.before=kill`, `claim.after=error`, `end.before=delay:0.5`; several with
commas, `@3` at the end for the third time. `before` is the last moment before a commit, `after` the first at which it
has happened and nobody has been told (`after=error` is a commit whose answer is lost). A fault strikes once in each
process; with AAICLICK_FAULT_MARKS, a directory, once in all of them, and leaves a file with its name there.

Nothing is armed unless that variable is set; then a place costs nothing but the question.
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
    """The connection "failed" here, because a test said so."""


@dataclass(slots=True)
class Fault:
    """What happens at a place, and how many more times it passes before."""

    mode: str
    seconds: float
    passes: int


_armed: dict[str, Fault] = {}
_marks: Path | None = None


def arm(faults: str, marks: str | None = None) -> None:
    """Forget all faults and take these."""
    global _marks
    _marks = Path(marks) if marks else None
    _armed.clear()
    for word in filter(None, faults.split(",")):
        place, _, what = word.partition("=")
        what, _, nth = what.partition("@")
        mode, _, seconds = what.partition(":")
        if mode not in ("kill", "error", "delay"):
            raise ValueError(f"AAICLICK_FAULTS: {word!r} is not PLACE=kill, PLACE=error or PLACE=delay:SECONDS.")
        _armed[place.strip()] = Fault(mode, float(seconds or 0), int(nth or 1) - 1)


def statement(name: str) -> AbstractAsyncContextManager[Any]:
    """Around one statement that commits by itself."""
    return _watched(name) if _armed else _NOTHING


def transaction(connection: asyncpg.Connection[asyncpg.Record], name: str) -> AbstractAsyncContextManager[Any]:
    """A transaction of `connection` whose commit has a name."""
    return _watched_transaction(connection, name) if _armed else connection.transaction()


_NOTHING = nullcontext()


@asynccontextmanager
async def _watched(name: str) -> AsyncGenerator[None]:
    await _reach(f"{name}.before")
    yield
    await _reach(f"{name}.after")


@asynccontextmanager
async def _watched_transaction(connection: asyncpg.Connection[asyncpg.Record], name: str) -> AsyncGenerator[None]:
    async with connection.transaction():
        yield
        await _reach(f"{name}.before")
    await _reach(f"{name}.after")


async def _reach(place: str) -> None:
    fault = _armed.get(place)
    if fault is None:
        return
    if fault.passes:
        fault.passes -= 1
        return
    del _armed[place]
    if not _first(place):
        return
    if fault.mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.mode == "error":
        raise FaultError(f"A fault at {place}, as asked for by AAICLICK_FAULTS.")
    await asyncio.sleep(fault.seconds)


def _first(place: str) -> bool:
    """Whether no process has struck there before."""
    if _marks is None:
        return True
    try:
        os.close(os.open(_marks / place, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


arm(os.environ.get(VARIABLES[0], ""), os.environ.get(VARIABLES[1]))
