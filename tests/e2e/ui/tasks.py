"""Task functions of the UI tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from aaiclick.data import create_object_from_value
from aaiclick.orchestration import Job, PermanentError, create_job, create_task


def say(text: str = "hello") -> str:
    print(f"I say {text}")
    return text


async def submit_child() -> Job:
    return await create_job("child of the family", create_task(say))


def add(left: object = None, right: object = None) -> list[int]:
    """Return more than a literal may have, so that the result is a table."""
    return list(range(20_000))


def wait_for(path: str, text: str = "waiting") -> str:
    """Run until a file exists."""
    print(text, flush=True)
    while not Path(path).exists():
        time.sleep(0.05)
    print("seen it")
    return "done"


def fail(text: str = "it is broken") -> None:
    raise PermanentError(text)


def fail_until(path: str) -> str:
    """Fail until a file exists."""
    if not Path(path).exists():
        raise ValueError(f"{Path(path).name} is not there")
    return "repaired"


def die_once(path: str) -> str:
    """Kill the own process on the first call."""
    mark = Path(path)
    if not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), 9)
    return "recovered"


def orders(event: dict[str, object]) -> list[dict[str, object]]:
    """Source of a DAG: return one row for the nominal time."""
    return [{"day": str(event.get("nominal", "today"))[:10], "amount": 7}]


async def mistype() -> None:
    """Fail with an error that has a remedy."""
    created = await create_object_from_value({"country": ["no"]})
    await created["contry"].data()
