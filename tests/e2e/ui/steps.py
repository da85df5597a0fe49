"""What the jobs of these tests do."""

from __future__ import annotations

import os
import time
from pathlib import Path

from aaiclick.data import create_object_from_value
from aaiclick.orchestration import PermanentError


def say(words: str = "hello") -> str:
    print(f"I say {words}")
    return words


def add(left: object = None, right: object = None) -> int:
    return 3


def wait_for(path: str, words: str = "waiting") -> str:
    """Work until a file is there."""
    print(words, flush=True)
    while not Path(path).exists():
        time.sleep(0.05)
    print("seen it")
    return "done"


def fail(words: str = "it is broken") -> None:
    raise PermanentError(words)


def fail_until(path: str) -> str:
    """Fails until a file is there."""
    if not Path(path).exists():
        raise ValueError(f"{Path(path).name} is not there")
    return "mended"


def die_once(path: str) -> str:
    """Kills its own process the first time."""
    mark = Path(path)
    if not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), 9)
    return "recovered"


def orders(event: dict[str, object]) -> list[dict[str, object]]:
    """What the source of a DAG fetches: a row for the time it runs for."""
    return [{"day": str(event.get("nominal", "today"))[:10], "amount": 7}]


async def mistype() -> None:
    """Fail with an error that has a remedy."""
    made = await create_object_from_value({"country": ["no"]})
    await made["contry"].data()
